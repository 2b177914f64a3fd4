# What was found, at the end of configure.
message(STATUS "zonal ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} "
    "${CMAKE_C_COMPILER_VERSION}")
foreach(line IN LISTS ZONAL_SUMMARY)
    message(STATUS "  ${line}")
endforeach()
if(NOT TARGET zonal_cli)
    message(STATUS "  program: left out (no sources yet)")
endif()
