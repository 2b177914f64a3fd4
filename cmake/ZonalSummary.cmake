# What was found, at the end of configure. A folder that is configured again also says, where the
# rest is not shown (see the Makefile), which parts have come or gone since.
message(STATUS "zonal ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} "
    "${CMAKE_C_COMPILER_VERSION}")
foreach(line IN LISTS ZONAL_SUMMARY)
    message(STATUS "  ${line}")
endforeach()
if(NOT TARGET zonal_cli)
    message(STATUS "  program: left out (no sources yet)")
endif()

set(parts_file ${PROJECT_BINARY_DIR}/parts.txt)
if(EXISTS ${parts_file})
    file(STRINGS ${parts_file} earlier)
    foreach(line IN LISTS ZONAL_SUMMARY)
        if(NOT line IN_LIST earlier)
            message(NOTICE "configured again: ${line}")
        endif()
    endforeach()
endif()
list(JOIN ZONAL_SUMMARY "\n" parts)
file(WRITE ${parts_file} "${parts}\n")
