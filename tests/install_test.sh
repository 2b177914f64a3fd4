#!/usr/bin/env bash
# Installs into a folder of its own and builds a user's program against that, in each way a user
# may: pkg-config with the shared and with the static library, and CMake's find_package.
#
# shellcheck disable=SC2317 # the functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=harness.sh
. ./harness.sh

source=${ZONAL_SOURCE_DIR:-$PWD/..}
build=${ZONAL_BUILD_DIR:-$source/build}
cc=${CC:-cc}
prefix=$scratch/installed

cat >"$scratch/user.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <zonal/status.h>

int main(void) {
    char headers[32];
    snprintf(headers, sizeof headers, "%d.%d.%d", ZONAL_VERSION_MAJOR, ZONAL_VERSION_MINOR,
             ZONAL_VERSION_PATCH);
    printf("zonal %s\n", zonal_version());
    return strcmp(headers, zonal_version()) != 0;
}
END
programs=("$scratch/user.c")
example=$source/examples/01_loss.c
if [[ -f $example ]]; then programs+=("$example"); fi

check "install" cmake --install "$build" --prefix "$prefix"
[[ $status == 0 ]] || finish

libdir=$(dirname "$(find "$prefix" -name libzonal.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig

# Every installed header must stand alone, in C and for a C++ compiler too.
headers_alone() {
    local header name language
    for header in "$prefix"/include/zonal/*.h; do
        name=zonal/$(basename "$header")
        for language in c c++; do
            if [[ $language == c++ ]] && ! command -v c++ >/dev/null; then continue; fi
            echo "#include <$name>" |
                "$cc" -x "$language" -Wall -Wextra -Werror -pedantic -fsyntax-only \
                    -I "$prefix/include" - || return 1
        done
    done
}
check "each header compiles alone, as C and as C++" headers_alone

shared() {
    local out=$scratch/shared
    # shellcheck disable=SC2046 # lists of flags
    "$cc" -std=c17 -Wall "$1" $(pkg-config --cflags zonal) -o "$out" $(pkg-config --libs zonal) -lm &&
        readelf -d "$out" | grep -q 'NEEDED.*libzonal\.so\.' &&
        LD_LIBRARY_PATH=$libdir "$out"
}
static() {
    local out=$scratch/static
    # The linker prefers a shared library, so the static one is put where there is no other.
    mkdir -p "$scratch/static_only"
    cp "$libdir/libzonal.a" "$scratch/static_only"
    # shellcheck disable=SC2046 # lists of flags
    "$cc" -std=c17 -Wall "$1" $(pkg-config --cflags zonal) -o "$out" -L "$scratch/static_only" \
        $(pkg-config --static --libs zonal | sed "s|-L[^ ]*$(basename "$prefix")[^ ]*||") &&
        ! readelf -d "$out" | grep -q libzonal &&
        "$out"
}
package() { # package <program> <target>
    local dir
    dir=$(mktemp -d -p "$scratch")
    cat >"$dir/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(zonal $version REQUIRED)
add_executable(user "$1")
target_link_libraries(user PRIVATE $2 m)
END
    cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_BUILD_TYPE=Release && cmake --build "$dir/build" && "$dir/build/user"
}

if command -v pkg-config >/dev/null; then
    version=$(pkg-config --modversion zonal)
    for program in "${programs[@]}"; do
        name=$(basename "$program")
        check "$name through pkg-config, shared" shared "$program"
        check "$name through pkg-config, static" static "$program"
    done
else
    skip "pkg-config, shared and static" "pkg-config is not installed"
    version=
fi
for program in "${programs[@]}"; do
    name=$(basename "$program")
    check "$name through find_package, shared" package "$program" zonal::zonal
    check "$name through find_package, static" package "$program" zonal::zonal_static
done

# Nothing installed may point back into the source or build folder.
if [[ -x $prefix/bin/zonal ]]; then
    check "the installed program runs" "$prefix/bin/zonal" --version
fi
no_way_back() { ! grep -rlF -e "$(cd "$source" && pwd)/" -e "$(cd "$build" && pwd)/" "$prefix"; }
check "no path of the build is left in what is installed" no_way_back

finish
