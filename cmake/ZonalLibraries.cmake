# libzonal.so and libzonal.a, both made of the folders' objects.
get_property(folders GLOBAL PROPERTY ZONAL_FOLDERS)
set(objects "")
foreach(folder IN LISTS folders)
    list(APPEND objects $<TARGET_OBJECTS:${folder}>)
endforeach()

set(dependencies "")
foreach(part openblas lapacke openmp)
    if(TARGET zonal_dep_${part})
        list(APPEND dependencies zonal_dep_${part})
    endif()
endforeach()
get_property(cuda_targets GLOBAL PROPERTY ZONAL_CUDA_TARGETS)
get_property(cuda_libs GLOBAL PROPERTY ZONAL_CUDA_LIBS)
list(APPEND dependencies ${cuda_targets})
list(APPEND ZONAL_STATIC_LIBS ${cuda_libs})
if(ZONAL_WITH_CUDA)
    list(APPEND dependencies stdc++) # nvcc's objects are C++ inside
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
foreach(dependency IN LISTS dependencies ITEMS m)
    target_link_libraries(zonal PRIVATE $<BUILD_INTERFACE:${dependency}>)
    target_link_libraries(zonal_static PRIVATE $<BUILD_INTERFACE:${dependency}>)
endforeach()
foreach(name IN LISTS ZONAL_STATIC_LIBS)
    target_link_libraries(zonal_static INTERFACE $<INSTALL_INTERFACE:${name}>)
endforeach()
target_link_directories(zonal_static INTERFACE "$<INSTALL_INTERFACE:${ZONAL_STATIC_DIRS}>")
