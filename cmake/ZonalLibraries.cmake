# libzonal.so and libzonal.a: kernels, losses and tests of uniformity; and libzonal_training.a, all that
# training and evaluation add, for the program and the tests. All are made of the folders' objects.
function(zonal_objects out)
    set(objects "")
    foreach(folder IN LISTS ARGN)
        list(APPEND objects $<TARGET_OBJECTS:${folder}>)
    endforeach()
    set(${out} ${objects} PARENT_SCOPE)
endfunction()

get_property(folders GLOBAL PROPERTY ZONAL_FOLDERS)
zonal_objects(objects ${folders})
get_property(dependencies GLOBAL PROPERTY ZONAL_USES)

# nvcc's objects are C++ inside: each launch of a kernel guards a static variable. libzonal.so holds
# the few functions for that (70 kB) where the compiler has them in an archive, and so needs no
# libstdc++ that may be older than the one it was built with.
set(cxx_shared "")
set(cxx_static "")
if(ZONAL_WITH_CUDA)
    set(cxx_static stdc++)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a
        OUTPUT_VARIABLE cxx_shared OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${cxx_shared}")
        set(cxx_shared stdc++)
    endif()
endif()
add_library(zonal SHARED ${objects})
add_library(zonal_static STATIC ${objects})
add_library(zonal::zonal ALIAS zonal)
add_library(zonal::zonal_static ALIAS zonal_static)
foreach(library zonal zonal_static)
    set_target_properties(${library} PROPERTIES
        OUTPUT_NAME zonal
        LINKER_LANGUAGE C
        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_include_directories(${library} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# To Ninja "zonal" is the program's file, not this target; so the shared library alone has another name.
add_custom_target(zonal_shared)
add_dependencies(zonal_shared zonal)

# Before 1.0 every minor version may change the interface, so it is part of the SONAME.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
else()
    set(soversion ${PROJECT_VERSION_MAJOR})
endif()
set_target_properties(zonal PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${soversion})
target_link_options(zonal PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/zonal.map)
set_property(TARGET zonal APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/zonal.map)
if(NOT ZONAL_SANITIZE) # whose run-time functions come from the program
    target_link_options(zonal PRIVATE LINKER:-z,defs)
endif()

# Private: whoever links the library gets these on the link line, and none of their macros and
# headers. Installed, libzonal.a names them; the paths of this machine stay here.
foreach(dependency IN LISTS dependencies cxx_shared ITEMS m ${CMAKE_DL_LIBS})
    target_link_libraries(zonal PRIVATE $<BUILD_INTERFACE:${dependency}>)
endforeach()
foreach(dependency IN LISTS dependencies cxx_static ITEMS m ${CMAKE_DL_LIBS})
    target_link_libraries(zonal_static PRIVATE $<BUILD_INTERFACE:${dependency}>)
endforeach()
foreach(name IN LISTS ZONAL_STATIC_LIBS)
    target_link_libraries(zonal_static INTERFACE $<INSTALL_INTERFACE:${name}>)
endforeach()
target_link_directories(zonal_static INTERFACE "$<INSTALL_INTERFACE:${ZONAL_STATIC_DIRS}>")

# The second library stands on the first; whoever links it gets both, in this order.
get_property(folders GLOBAL PROPERTY ZONAL_TRAINING_FOLDERS)
zonal_objects(objects ${folders})
get_property(dependencies GLOBAL PROPERTY ZONAL_TRAINING_USES)
add_library(zonal_training STATIC ${objects})
set_target_properties(zonal_training PROPERTIES
    LINKER_LANGUAGE C
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(zonal_training INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(zonal_training PUBLIC zonal_static PRIVATE ${dependencies} pthread m)
