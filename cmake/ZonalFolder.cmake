# zonal_folder(<target> [SOURCES <file>...] [KNOWS <target>...])
#
# One folder of src/ as one target. KNOWS are the folders below it whose headers it may include;
# a folder that has no sources yet becomes an empty target that the others can link all the same.
# Targets with objects are noted in the global property ZONAL_FOLDERS, from which the libraries are
# made.
function(zonal_folder target)
    cmake_parse_arguments(PARSE_ARGV 1 folder "" "" "SOURCES;KNOWS")
    if(NOT folder_SOURCES)
        add_library(${target} INTERFACE)
        target_link_libraries(${target} INTERFACE ${folder_KNOWS})
        return()
    endif()
    add_library(${target} OBJECT ${folder_SOURCES})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src
        ${PROJECT_SOURCE_DIR}/include)
    foreach(lower IN LISTS folder_KNOWS)
        if(NOT TARGET ${lower})
            message(FATAL_ERROR "${target} may not know ${lower}, which lies above it")
        endif()
    endforeach()
    target_link_libraries(${target} PUBLIC ${folder_KNOWS} PRIVATE zonal_flags)
    set_property(GLOBAL APPEND PROPERTY ZONAL_FOLDERS ${target})
endfunction()

# -Wconversion where an implicit rounding or truncation would be a numerical fault; its sign half
# only nags about sizes.
function(zonal_strict_conversions target)
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY")
        target_compile_options(${target} PRIVATE -Wconversion -Wno-sign-conversion)
    endif()
endfunction()
