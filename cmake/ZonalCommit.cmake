# Writes a C file with the commit that is being built, for what is exported to say where it comes
# from. Run at every build, because a commit does not configure anew; the file is rewritten only when
# it changes. Without git, or outside a repository of its own, the commit is empty; where sources are
# not as committed it ends with "-changed".
#
#     cmake -DSOURCE=<folder of the sources> -DOUT=<file> -P ZonalCommit.cmake
set(commit "")
if(EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
        set(commit "")
    else()
        execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD -- CMakeLists.txt cmake include src
            OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE changed)
        if(changed)
            string(APPEND commit "-changed")
        endif()
    endif()
endif()
file(WRITE ${OUT}.new "#include \"cli/eval/model_card.h\"\nconst char *const zonal__commit = \"${commit}\";\n")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
