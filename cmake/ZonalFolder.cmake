# zonal_folder(<target> [TRAINING] [SOURCES <file>...] [KNOWS <target>...] [USES <target>...])
#
# One folder of src/ as one target of objects. KNOWS are the folders below it whose headers it may
# include; USES are libraries of others, of which those that do not exist here are left out.
#
# The objects and what they use go into libzonal or, with TRAINING, into libzonal_training: noted in
# the global properties ZONAL_FOLDERS and ZONAL_USES, ZONAL_TRAINING_FOLDERS and ZONAL_TRAINING_USES,
# from which cmake/ZonalLibraries.cmake makes the libraries. A folder of libzonal may know none of
# libzonal_training's.
function(zonal_folder target)
    cmake_parse_arguments(PARSE_ARGV 1 folder "TRAINING" "" "SOURCES;KNOWS;USES")
    set(library ZONAL)
    if(folder_TRAINING)
        set(library ZONAL_TRAINING)
    endif()
    get_property(training GLOBAL PROPERTY ZONAL_TRAINING_FOLDERS)
    foreach(lower IN LISTS folder_KNOWS)
        if(NOT TARGET ${lower})
            message(FATAL_ERROR "${target} may not know ${lower}, which lies above it")
        elseif(lower IN_LIST training AND NOT folder_TRAINING)
            message(FATAL_ERROR "${target} is of libzonal and may not know ${lower}, which is of "
                "libzonal_training")
        endif()
    endforeach()

    add_library(${target} OBJECT ${folder_SOURCES})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src
        ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PUBLIC ${folder_KNOWS} PRIVATE zonal_flags)
    set_property(GLOBAL APPEND PROPERTY ${library}_FOLDERS ${target})
    foreach(used IN LISTS folder_USES)
        if(TARGET ${used})
            target_link_libraries(${target} PRIVATE ${used})
            set_property(GLOBAL APPEND PROPERTY ${library}_USES ${used})
        endif()
    endforeach()
endfunction()

# -Wconversion where an implicit rounding or truncation would be a numerical fault; its sign half
# only nags about sizes.
function(zonal_strict_conversions target)
    target_compile_options(${target} PRIVATE -Wconversion -Wno-sign-conversion)
endfunction()
