#!/usr/bin/env bash
# A build folder does not remember what was missing or what has gone: parts are planted in a root of
# their own, the only place where this configuration looks, and taken away again.
#
# shellcheck disable=SC2317 # the functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh

source=${ZONAL_SOURCE_DIR:-$PWD/../..}
build=$scratch/build
root=$scratch/root
mkdir -p "$root/usr/bin" "$root/usr/include" "$root/usr/lib"
unset DESTDIR

# reconfigure [argument]...: what "make" does in a folder that is configured
reconfigure() {
    cmake -S "$source" -B "$build" -DCMAKE_FIND_ROOT_PATH="$root" \
        -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY \
        -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DZONAL_ZLIB=AUTO "$@"
}
part() { grep -q "^$1: $2" "$build/parts.txt"; }
has_python_tests() { grep -q "Test.*: cli_data$" <<<"$(ctest --test-dir "$build" -N)"; }
no_python_tests() { ! has_python_tests; }

check "the first configuration" cmake --preset min -S "$source" -B "$build" \
    ${CC:+-DCMAKE_C_COMPILER="$CC"}
check "a look where there is nothing" reconfigure
check "no zlib" part ZLIB absent
check "no Python, no tests in Python" no_python_tests

: >"$root/usr/include/zlib.h"
: >"$root/usr/lib/libz.so"
printf '#!/bin/sh\n' >"$root/usr/bin/python3"
chmod +x "$root/usr/bin/python3"
run reconfigure
[[ $output == *"configured again: ZLIB: $root"* ]] && status=0 || status=1
report $((status == 0)) "what was installed since is told"
check "zlib is found where it was missing" part ZLIB "$root"
check "and so is Python, and the tests in Python" has_python_tests
check "an answer that an older version kept does no harm" \
    reconfigure -DZONAL_PYTHON=python_default-NOTFOUND
check "Python is found all the same" has_python_tests

# A build, by whatever tool, after the library has gone: the folder is configured anew first.
rm "$root/usr/lib/libz.so"
run cmake --build "$build" --target zonal_core -j 2
[[ $output == *"configured again: ZLIB: absent"* ]] && status=0 || status=1
report $((status == 0)) "a build sees that a library has gone"
check "and does without it" part ZLIB absent

check_fails "a part that was insisted on is named" "ZONAL_ZLIB=ON, but zlib1g-dev is not installed" \
    reconfigure -DZONAL_ZLIB=ON
check_fails "a path that does not exist is named" "ZONAL_PNG_LIBRARY is set to /no/libpng.so" \
    reconfigure -DZONAL_ZLIB=AUTO -DZONAL_PNG_LIBRARY=/no/libpng.so
check_fails "an unknown sanitizer is named" "ZONAL_SANITIZE is memory: set it to address, thread or OFF" \
    reconfigure -UZONAL_PNG_LIBRARY -DZONAL_SANITIZE=memory
sanitized_by() { # sanitized_by <flags> <value>
    reconfigure -DZONAL_SANITIZE="$2" && grep -q -- "-fsanitize=$1 " "$build/compile_commands.json"
}
check "the thread sanitizer" sanitized_by thread thread
check "the address sanitizer" sanitized_by address,undefined address
check "ON means the address sanitizer" sanitized_by address,undefined ON

finish
