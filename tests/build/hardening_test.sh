#!/usr/bin/env bash
# The program and the shared library as readelf sees them: what cmake/ZonalFlags.cmake asks of
# compiler and linker must have arrived in the files.
#
#   hardening_test.sh [yes or no: optimised, and so with _FORTIFY_SOURCE]
#
# shellcheck disable=SC2317 # the functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh

build=${ZONAL_BUILD_DIR:-$PWD/../../build}
optimised=${1:-yes}
if ! command -v readelf >/dev/null; then
    skip "the files' headers" "readelf is not installed"
    finish
fi

elf() { LC_ALL=C readelf --wide "$@"; }
# A library that is loaded at any address has the same type; a flag tells the two apart.
pie() { elf -h "$1" | grep -q 'Type: *DYN' && elf -d "$1" | grep -q 'FLAGS_1.*PIE'; }
bound_at_start() { elf -d "$1" | grep 'FLAGS_1' | grep -qw NOW; }
relro() { elf -l "$1" | grep -q GNU_RELRO; }
stack_not_executable() { # the segment is there, and its flags have no E
    local line
    line=$(elf -l "$1" | grep GNU_STACK) && [[ $line =~ \ RW\  ]]
}
no_text_relocations() { ! elf -d "$1" | grep -q TEXTREL; }
calls() { # calls <file> <pattern of an imported function>
    local imported
    imported=$(elf --dyn-syms "$1" | awk '$7 == "UND" { sub(/@.*/, "", $8); print $8 }')
    grep -qEx "$2" <<<"$imported"
}

check "zonal is a position-independent executable" pie "$build/zonal"
for file in zonal libzonal.so; do
    check "$file is bound in full at the start" bound_at_start "$build/$file"
    check "$file has read-only relocations" relro "$build/$file"
    check "$file has a stack that is not executable" stack_not_executable "$build/$file"
    check "$file has no relocations in its code" no_text_relocations "$build/$file"
    check "$file has stack protectors" calls "$build/$file" __stack_chk_fail
    if [[ $optimised == yes ]]; then
        check "$file has checked library calls" calls "$build/$file" '__(v?snprintf|memcpy|read|fread)_chk'
    else
        skip "$file has checked library calls" "they want an optimised build"
    fi
done

finish
