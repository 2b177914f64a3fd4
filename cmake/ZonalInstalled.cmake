# The end of an installation. Programs that were linked to libzonal.so must find it when they run:
# where the loader looks in its folder, its list of libraries is brought up to date, which takes
# root; otherwise it is said what to do. The program zonal holds the library and needs nothing.
cmake_policy(VERSION 3.25)
if(NOT "$ENV{DESTDIR}" STREQUAL "")
    return() # a package in the making; the loader in question is another machine's
endif()
get_filename_component(folder "${CMAKE_INSTALL_PREFIX}/${zonal_libdir}" REALPATH)

find_program(ldconfig ldconfig PATHS /usr/sbin /sbin NO_CACHE)
set(known "")
if(ldconfig)
    execute_process(COMMAND ${ldconfig} -v -N -X OUTPUT_VARIABLE said ERROR_QUIET)
    string(REGEX MATCHALL "(^|\n)/[^:\n]*:" lines "${said}")
    foreach(line IN LISTS lines)
        string(REGEX REPLACE "[\n:]" "" line "${line}")
        get_filename_component(line "${line}" REALPATH)
        list(APPEND known "${line}")
    endforeach()
endif()

if(NOT folder IN_LIST known)
    message(STATUS "The loader does not look for libraries in ${folder}: link programs with "
        "-Wl,-rpath,${folder} as well, or run them with LD_LIBRARY_PATH=${folder}")
    return()
endif()
execute_process(COMMAND ${ldconfig} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
    message(STATUS "For programs that use libzonal.so, run ldconfig once, as root")
endif()
