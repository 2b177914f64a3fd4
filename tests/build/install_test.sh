#!/usr/bin/env bash
# Installs into a folder of its own, moves that, and builds a user's program against it in each way a
# user may: pkg-config with the shared and with the static library, and CMake's find_package. Then
# the installed program, DESTDIR and the way back.
#
# shellcheck disable=SC2317 # the functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh

source=${ZONAL_SOURCE_DIR:-$PWD/../..}
build=${ZONAL_BUILD_DIR:-$source/build}
cc=${CC:-cc}
prefix=$scratch/installed
unset DESTDIR LD_LIBRARY_PATH

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

# CMake notes what it has installed in the build folder. A user's own note must survive this test.
install_to() { # install_to <prefix>: leaves the note in $scratch/note/install_manifest.txt
    local note=$build/install_manifest.txt result=0
    mkdir -p "$scratch/note"
    if [[ -f $note ]]; then cp -p "$note" "$scratch/users_note"; fi
    cmake --install "$build" --prefix "$1" || result=$?
    mv "$note" "$scratch/note/" || result=$?
    if [[ -f $scratch/users_note ]]; then mv "$scratch/users_note" "$note"; fi
    return "$result"
}
first=$scratch/first/place
check "install" install_to "$first"
[[ $status == 0 ]] || finish
[[ $output == *"LD_LIBRARY_PATH=$(dirname "$(find "$first" -name libzonal.a)")"* ]] && status=0 || status=1
report $((status == 0)) "it says what programs need to find the library"
# All that follows is with a folder that was moved after the installation.
mv "$first" "$prefix"

libdir=$(dirname "$(find "$prefix" -name libzonal.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig

# Every installed header must stand alone, in C and for a C++ compiler too; zonal/mpi.h where there is
# an MPI.
headers_alone() {
    local header name language mpi
    read -ra mpi <<<"$(pkg-config --cflags-only-I mpi-c 2>/dev/null | sed 's/-I/-isystem /g')"
    for header in "$prefix"/include/zonal/*.h; do
        name=zonal/$(basename "$header")
        if [[ $name == zonal/mpi.h ]] && ! echo '#include <mpi.h>' | "$cc" -fsyntax-only "${mpi[@]}" -x c -; then
            continue
        fi
        for language in c c++; do
            if [[ $language == c++ ]] && ! command -v c++ >/dev/null; then continue; fi
            echo "#include <$name>" |
                "$cc" -x "$language" -Wall -Wextra -Werror -pedantic -fsyntax-only \
                    -I "$prefix/include" "${mpi[@]}" - || return 1
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
# What the installation says about folders that the loader does not know.
shared_by_rpath() {
    # shellcheck disable=SC2046 # lists of flags
    "$cc" -std=c17 -Wall "$1" $(pkg-config --cflags --libs zonal) -Wl,-rpath,"$libdir" -lm \
        -o "$scratch/rpath" && "$scratch/rpath"
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
        check "$name through pkg-config, shared, by its run path" shared_by_rpath "$program"
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

# ---- the example of README.md ----

# Its block of C as it stands, and a main that calls it.
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/README.md" >"$scratch/readme.c"
cat >>"$scratch/readme.c" <<'END'

int main(void) {
    static float z[256 * 128], gradient[256 * 128];
    double value, square = 0;
    for (int i = 0; i < 256 * 128; i++) z[i] = (float)sin(i * (1 + 1e-3 * i));
    value = spread(z, gradient);
    for (int i = 0; i < 256 * 128; i++) square += (double)gradient[i] * gradient[i];
    printf("%g %g\n", value, square);
    return !(isfinite(value) && value > 0 && value < 1 && isfinite(square) && square > 0);
}
END
readme() {
    "$cc" -Wall -Wextra -Werror "$scratch/readme.c" -I "$prefix/include" -L "$libdir" -lzonal -lm \
        -o "$scratch/readme" && LD_LIBRARY_PATH=$libdir "$scratch/readme"
}
check "the example of README.md compiles without a warning and gives a value" readme

# ---- the installed program ----

# A script of the current folder that has the name of one of ours must not be run.
mkdir -p "$scratch/here/bench"
echo "open('$scratch/planted', 'w')" >"$scratch/here/bench/loss_torch.py"
compare() { # compare <program>: beside PyTorch, as small as can be
    cd "$scratch/here" && "$1" bench loss --torch --method mmd-band --batch 16 --dim 8
}
runs_our_script() { # the script itself says that there is no PyTorch, or compares
    local said
    said=$(compare "$1" 2>&1) && [[ $said != *"not installed with"* && ! -e $scratch/planted ]]
}
runs_no_script() {
    local said
    said=$(compare "$1" 2>&1)
    [[ $said == *"loss_torch.py was not installed with this program"* && ! -e $scratch/planted ]]
}
if [[ -x $prefix/bin/zonal ]]; then
    check "the manual pages are installed" test -s "$prefix/share/man/man1/zonal-train.1"
    check "the installed program runs" "$prefix/bin/zonal" --version
    check "it runs the scripts that were installed with it" runs_our_script "$prefix/bin/zonal"
    check "the built one those of its source tree" runs_our_script "$build/zonal"
    cp "$prefix/bin/zonal" "$scratch/here/zonal"
    check "one that was copied elsewhere runs no other" runs_no_script "$scratch/here/zonal"
fi

# The second library is the program's and the tests' own.
no_training() { [[ -z $(find "$prefix" -name '*training*') && -e $libdir/libzonal.so ]]; }
check "the library alone is installed, without the one for training" no_training

# Nothing installed may point back into the source or build folder.
no_way_back() { ! grep -rlF -e "$(cd "$source" && pwd)/" -e "$(cd "$build" && pwd)/" "$prefix"; }
check "no path of the build is left in what is installed" no_way_back

# ---- DESTDIR, and the way back ----

export DESTDIR=$scratch/stage
check "install under DESTDIR" install_to /opt/some/zonal
[[ $output != *LD_LIBRARY_PATH* ]] && status=0 || status=1
report $((status == 0)) "it leaves the loader to the machine the package is for"
same_files() { diff <(cd "$prefix" && find . -type f | sort) \
    <(cd "$DESTDIR/opt/some/zonal" && find . -type f | sort); }
check "the same files are there" same_files
mkdir -p "$DESTDIR/opt/some/zonal/include/zonal"
: >"$DESTDIR/opt/some/zonal/include/zonal/users_own.h"
check "uninstall" "$source/scripts/uninstall.sh" "$scratch/note"
left() { [[ $(cd "$DESTDIR" && find . -type f) == ./opt/some/zonal/include/zonal/users_own.h ]] &&
    [[ ! -e $DESTDIR/opt/some/zonal/lib/cmake/zonal && ! -e $DESTDIR/opt/some/zonal/share/zonal ]]; }
check "nothing is left but what was not installed" left
check_fails "uninstall without an installation" "nothing was installed" \
    "$source/scripts/uninstall.sh" "$scratch/here"

finish
