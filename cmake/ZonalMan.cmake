# Writes the manual pages, which the program makes from its own help and option tables.
#
#     cmake -DPROGRAM=<zonal> -DOUT=<folder> -P ZonalMan.cmake
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE ${OUT}) # a command that is gone has no page
execute_process(COMMAND ${PROGRAM} man --list OUTPUT_VARIABLE pages COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n$" "" pages "${pages}")
string(REPLACE "\n" ";" pages "${pages}")
foreach(words IN LISTS pages)
    separate_arguments(words)
    list(JOIN words "-" name)
    string(REGEX REPLACE "-$" "" name "zonal-${name}")
    execute_process(COMMAND ${PROGRAM} man ${words} OUTPUT_VARIABLE page COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE ${OUT}/${name}.1 "${page}")
endforeach()
