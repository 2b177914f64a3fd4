#!/usr/bin/env bash
# libzonal is light: what it needs is compared with a list, for the file, for all that is loaded with
# it, and for a program that opens a copy of it alone and computes a loss. Each check is also made to
# fail, with libraries that need what they must not.
#
# shellcheck disable=SC2317 # the functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh

source=${ZONAL_SOURCE_DIR:-$PWD/../..}
build=${ZONAL_BUILD_DIR:-$source/build}
cc=${CC:-cc}
for tool in readelf ldd nm; do
    if ! command -v "$tool" >/dev/null; then
        skip "what libzonal needs" "$tool is not installed"
        finish
    fi
done

# The C library in its parts, the compiler's own, OpenMP, BLAS and LAPACK. The CUDA driver is opened
# by the runtime inside libzonal, cuBLAS by src/backend/cuda/blas.cu.
may_need='lib(c|m|dl|rt|pthread|gcc_s|atomic|gomp|omp|iomp5|lapacke|lapack|blas|cblas|openblas)'
# Besides these, what BLAS and LAPACK load themselves.
may_load="$may_need|lib(gfortran|quadmath|openblasp|tmglib|flexiblas|blis|mkl_[a-z0-9_]+)|linux-vdso|linux-gate"
# A compiler without an archive of its C++ library leaves the shared one (cmake/ZonalLibraries.cmake).
if [[ $("$cc" -print-file-name=libstdc++.a) != /* ]]; then may_need+='|libstdc\+\+'; fi

refuse() { # refuse <pattern of names without .so>: reads names of files, fails on the first other one
    local name
    while read -r name; do
        if ! [[ $name =~ ^(($1)\.so|ld-linux|ld-musl|libc\.musl) ]]; then
            echo "it needs $name"
            return 1
        fi
    done
}
needed() { LC_ALL=C readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
light() {
    local names
    names=$(needed "$1") && [[ -n $names ]] && refuse "$may_need" <<<"$names"
}
loads_light() { # the same for whatever is loaded with it
    local names
    names=$(ldd "$1" | awk '{ print $1 }' | sed 's|.*/||') && [[ -n $names ]] &&
        refuse "$may_load" <<<"$names"
}

check "libzonal.so needs the C library and BLAS at most" light "$build/libzonal.so"
check "so does all that is loaded with it" loads_light "$build/libzonal.so"

# The program has the libraries of image files too, but those of CUDA take the loader a tenth of a
# second: they are opened by the commands that train there.
starts_fast() { ! needed "$1" | grep -E 'cudnn|cublas'; }
check "the program needs no library of CUDA to start" starts_fast "$build/zonal"

# ---- the same of libraries that are not light ----

echo 'int zonal_planted(void) { return 0; }' >"$scratch/planted.c"
echo 'int zonal_planted(void); int zonal_user(void) { return zonal_planted(); }' >"$scratch/user.c"
echo 'int zonal_user(void); int zonal_hides(void) { return zonal_user(); }' >"$scratch/hides.c"
for name in cudnn.so.9 cublas.so.13 cublasLt.so.13 jpeg.so.62 hdf5.so.103 z.so.1 cuda.so.1; do
    rm -rf "$scratch/planted"
    mkdir "$scratch/planted"
    "$cc" -shared -fPIC "$scratch/planted.c" -Wl,-soname,"lib$name" -o "$scratch/planted/lib$name"
    # It uses that one, and has an innocent name for those who use it.
    "$cc" -shared -fPIC "$scratch/user.c" "$scratch/planted/lib$name" -Wl,-soname,libblas.so.3 \
        -Wl,-rpath,"$scratch/planted" -o "$scratch/planted/libblas.so.3"
    "$cc" -shared -fPIC "$scratch/hides.c" "$scratch/planted/libblas.so.3" \
        -Wl,-rpath,"$scratch/planted" -o "$scratch/planted/libhides.so"
    check_fails "one that needs lib$name is refused" "it needs lib$name" light "$scratch/planted/libblas.so.3"
    if [[ $name == cudnn* || $name == cublas* ]]; then
        check_fails "a program that needs it would start slowly" "lib$name" starts_fast \
            "$scratch/planted/libblas.so.3"
    fi
    check_fails "and one that loads it through another" "it needs lib$name" \
        loads_light "$scratch/planted/libhides.so"
done

# ---- nothing of the second library ----

names_of() { nm -g --defined-only "$1" 2>/dev/null | awk 'NF == 3 && $2 != "W" && $2 != "V" { print $3 }' | sort -u; }
apart() { # no function is in both archives, and both have some
    names_of "$1" >"$scratch/first"
    names_of "$2" >"$scratch/second"
    [[ -s $scratch/first && -s $scratch/second ]] &&
        ! comm -12 "$scratch/first" "$scratch/second" | grep .
}
together() { ! apart "$@"; }
check "no function is in both libraries" apart "$build/libzonal.a" "$build/libzonal_training.a"
check "a function in both is found" together "$build/libzonal.a" "$build/libzonal.a"

# What a program with libzonal.a is told to link.
pc=$build/zonal.pc
tells_light() {
    local names
    names=$(sed -n 's/^Libs\.private://p' "$1" | tr ' ' '\n' | sed -n 's/^-l\(.*\)/lib\1.so/p')
    [[ -n $names ]] && refuse "$may_need|libcudart_static|libstdc\+\+" <<<"$names"
}
if [[ -f $pc ]]; then
    check "zonal.pc names no more for libzonal.a" tells_light "$pc"
    sed 's/^Libs\.private:.*/& -lcudnn/' "$pc" >"$scratch/heavy.pc"
    check_fails "one that names cuDNN is refused" "it needs libcudnn.so" tells_light "$scratch/heavy.pc"
fi

# ---- a copy of it alone ----

cat >"$scratch/alone.c" <<'END'
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zonal/zonal.h>

/* Calls through pointers of the headers' own types. */
#define FUNCTION(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name)

/* What may not be mapped into this process. */
static int heavy(void) {
    static const char *const names[] = {"cudnn", "cublas", "jpeg", "png", "tiff", "webp", "gif",
                                        "hdf5",  "libz.",  "zonal_training"};
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0, lines = 0;
    if (!maps) return 1;
    for (; fgets(line, sizeof line, maps); lines++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strstr(line, names[i])) {
                printf("loaded: %s", line);
                found = 1;
            }
    fclose(maps);
    return found || lines == 0;
}

int main(int argc, char **argv) {
    static float z[64 * 16], gradient[64 * 16];
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan = NULL;
    double collapsed = NAN, spread = NAN;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return printf("%s\n", dlerror()), 2;
    FUNCTION(zonal_loss_defaults);
    FUNCTION(zonal_plan_create);
    FUNCTION(zonal_plan_execute);
    FUNCTION(zonal_plan_destroy);
    if (zonal_loss_defaults_("mmd-heat", &options) || zonal_plan_create_(&options, 64, 16, &plan))
        return 3;
    for (int i = 0; i < 64; i++) z[i * 16] = 1; /* one point: D = 1 by definition */
    if (zonal_plan_execute_(plan, z, &collapsed, gradient)) return 4;
    memset(z, 0, sizeof z); /* the 16 axes and their opposites, twice */
    for (int i = 0; i < 64; i++) z[i * 16 + i % 16] = i & 16 ? -1 : 1;
    if (zonal_plan_execute_(plan, z, &spread, gradient)) return 5;
    zonal_plan_destroy_(plan);
    printf("%.9g %.9g\n", collapsed, spread);
    return !(fabs(collapsed - 1) < 1e-6 && spread > 0 && spread < 0.1) || heavy();
}
END
mkdir "$scratch/alone"
cp -L "$build/libzonal.so" "$scratch/alone/libzonal.so"
alone() { # alone <file>: in an environment of nothing, in a folder of nothing else
    "$cc" -std=gnu17 -Wall -I "$source/include" "$scratch/alone.c" -o "$scratch/alone_program" -lm -ldl &&
        cd "$scratch/alone" && env -i "$scratch/alone_program" "$1"
}
check "a program opens a copy of it alone and computes a loss" alone ./libzonal.so
mv "$scratch/alone/libzonal.so" "$scratch/alone/libpng16.so.16"
check_fails "a library that it must not load would be noticed" "loaded: " alone ./libpng16.so.16

# ---- its size ----

kilobytes() { echo $(($(stat -L -c %s "$1") / 1024)); }
size=$(kilobytes "$build/libzonal.so")
limit=1024
# Kernels are compiled for each generation of GPUs: "CUDA: /path/nvcc, for 90;100".
generations=$(sed -n 's/^CUDA: .*, for //p' "$build/parts.txt" | tr ';' '\n' | grep -c . || true)
limit=$((limit + 16384 * generations))
# Hopper's own instructions are compiled for 90a besides.
if ((generations > 0)); then limit=$((limit + 4096)); fi
output="$size kB" status=1
report $((size > 0 && size < limit)) "libzonal.so has $size kB, less than $limit"

finish
