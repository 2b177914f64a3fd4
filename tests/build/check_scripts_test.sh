#!/usr/bin/env bash
# The checks must be able to fail: plants one fault after the other in copies and fakes, and expects
# each script to object. A check that passes whatever one feeds it is worse than none.
#
# shellcheck disable=SC2317 # some functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh
scripts=$PWD/../../scripts

# ---- check_includes.sh ----

tree=$scratch/tree
plant() { # plant <file> <line>...: a tree with just this file
    local file=$1
    shift
    rm -rf "$tree"
    mkdir -p "$tree/src" "$tree/include/zonal" "$(dirname "$tree/$file")"
    printf '%s\n' "$@" >"$tree/$file"
}
allowed() {
    plant "${@:2}"
    check "includes: $1" "$scripts/check_includes.sh" "$tree"
}
refused() { # refused <what> <text> <file> <line>...
    plant "${@:3}"
    check_fails "includes: $1" "$2" "$scripts/check_includes.sh" "$tree"
}

refused "core includes math" "core may not know math" src/core/a.c '#include "math/harmonics.h"'
refused "math includes backend" "math may not know backend" src/math/a.h '#include "backend/backend.h"'
refused "backend includes loss" "backend may not know loss" src/backend/a.c '#include "loss/plan.h"'
refused "ref includes cpu" "ref may not know cpu" src/backend/ref/a.c '#include "backend/cpu/gram.h"'
refused "cpu includes ref" "cpu may not know ref" src/backend/cpu/a.c '#include "backend/ref/pairs.h"'
refused "loss includes cpu" "loss may not know cpu" src/loss/a.c '  #  include "backend/cpu/gram.h"'
refused "loss includes the layers" "loss may not know backend/training" \
    src/loss/a.c '#include "backend/training/nn.h"'
refused "uniformity includes neighbours" "uniformity may not know backend/training" \
    src/uniformity/a.c '#include "backend/training/neighbours.h"'
refused "the table of losses includes the layers" "backend may not know backend/training" \
    src/backend/a.c '#include "backend/training/nn.h"'
refused "losses of cpu include layers of cpu" "cpu may not know cpu/training" \
    src/backend/cpu/a.c '#include "backend/cpu/training/nn_layer.h"'
refused "losses of CUDA include views of CUDA" "cuda may not know cuda/training" \
    src/backend/cuda/a.cu '#include "backend/cuda/training/views.cuh"'
refused "layers of ref include layers of cpu" "ref/training may not know cpu/training" \
    src/backend/ref/training/a.c '#include "backend/cpu/training/nn_layer.h"'
refused "data includes views of cpu" "data may not know cpu/training" \
    src/data/a.c '#include "backend/cpu/training/views_scratch.h"'
refused "cuDNN in the losses" "src/backend/cuda/training only" src/backend/cuda/a.cu '#include <cudnn.h>'
refused "cuBLASLt in the losses" "src/backend/cuda/training only" src/backend/cuda/a.cu '#include <cublasLt.h>'
refused "loss includes uniformity" "loss may not know uniformity" src/loss/a.c '#include "uniformity/a.h"'
refused "uniformity includes cli" "uniformity may not know cli" src/uniformity/a.c '#include "cli/main.h"'
refused "cli includes cpu" "cli may not know cpu" src/cli/a.c '#include "backend/cpu/cpu.h"'
refused "a header of ours in angle brackets" "may not know" src/core/a.c '#include <math/harmonics.h>'
refused "CUDA outside cuda" "CUDA headers" src/backend/cpu/a.c '#include <cuda_runtime.h>'
refused "cuBLAS in loss" "CUDA headers" src/loss/a.c '#include <cublas_v2.h>'
refused "BLAS outside cpu" "BLAS" src/backend/ref/a.c '#include <cblas.h>'
refused "LAPACK in uniformity" "BLAS" src/uniformity/a.c '#include <lapacke.h>'
refused "OpenMP in math" "BLAS" src/math/a.c '#include <omp.h>'
refused "PNG in cli" "src/data only" src/cli/a.c '#include <png.h>'
refused "CUDA asked for in data" "src/backend only" src/data/a.c '#ifdef ZONAL_HAVE_CUDA' '#endif'
refused "a backend by name in loss" "take a device" src/loss/a.c 'int x = zonal__backend_cpu () != 0;'
refused "layers of CUDA by name in train" "take a device" src/train/a.c 'void *t = zonal__nn_cuda();'
refused "the tables of CUDA by name in train" "take a device" \
    src/train/a.c 'void *t = zonal__training_cuda();'
refused "data knows cli" "data may not know cli" src/data/a.c '#include "cli/common/cli.h"'
refused "report knows cli" "report may not know cli" src/report/a.c '#include "cli/common/cli.h"'
refused "report knows reproduce" "report may not know reproduce" \
    src/report/a.c '#include "reproduce/paper.h"'
refused "train knows report" "train may not know report" src/train/a.c '#include "report/run.h"'
refused "a public header includes an internal one" "public may not know core" \
    include/zonal/a.h '#include "core/error.h"'
refused "a public header includes POSIX" "C library" include/zonal/a.h '#include <unistd.h>'
refused "a header without its folder" "name the folder" src/core/a.c '#include "error.h"'
refused "a header by a way up" "name the folder" src/core/a.c '#include "../math/harmonics.h"'
refused "a folder that is not on the map" "no place" src/extra/a.c 'int zonal__a;'
refused "a build switch in loss" "src/backend only" src/loss/a.c '#ifdef ZONAL_HAVE_CUDA' '#endif'
refused "printf in core" "printf" src/core/a.c 'void zonal__f(void) { printf("x"); }'
refused "fputs in math" "fputs" src/math/a.c '/* so */ void zonal__f(void) { fputs ("x", 0); }'
refused "exit in loss" "exit" src/loss/a.c 'void zonal__f(void) {' '    exit(1);' '}'
refused "stderr in backend" "stderr" src/backend/a.c 'void *zonal__f(void) { return stderr; }'
refused "argv in loss" "argv" src/loss/a.c 'int zonal__f(char **argv);'
refused "a signal caught in train" "only src/cli catches signals" src/train/a.c \
    'void zonal__f(void) { sigaction(2, 0, 0); }'
refused "train knows cli" "train may not know cli" src/train/a.c '#include "cli/common/cli.h"'
refused "the line number" "src/core/a.c:3:" src/core/a.c '' '' '#include "loss/plan.h"'
check_fails "includes: an empty tree" "no sources" "$scripts/check_includes.sh" "$scratch"
allowed "what may be known" src/uniformity/a.c '#include "loss/plan.h"' '#include "math/x.h"' \
    '#include "zonal/status.h"' '#include <math.h>'
allowed "BLAS in cpu" src/backend/cpu/a.c '#include <cblas.h>' '#include <omp.h>' '#ifdef ZONAL_HAVE_OPENBLAS'
allowed "MPI in dist" src/dist/a.c '#include <mpi.h>' '#ifdef ZONAL_HAVE_MPI' '#endif'
allowed "MPI in its own header" include/zonal/mpi.h '#include <mpi.h>'
refused "MPI in the losses" "MPI belongs to src/dist" src/loss/a.c '#include <mpi.h>'
refused "the losses of ranks knowing dist" "loss may not know dist" src/loss/a.c '#include "dist/job.h"'
allowed "JPEG in data" src/data/a.c '#include <jpeglib.h>' '#ifdef ZONAL_HAVE_JPEG' '#endif'
allowed "CUDA in cuda" src/backend/cuda/a.cu '#include <cuda_runtime.h>'
allowed "cuDNN in the layers of CUDA" src/backend/cuda/training/a.cu '#include <cudnn.h>' \
    '#include "backend/cuda/common.cuh"' '#include "backend/training/nn.h"' '#ifdef ZONAL_HAVE_CUDNN'
allowed "the layers in nn" src/nn/a.c '#include "backend/training/nn.h"'
allowed "printing in cli" src/cli/main.c 'int main(int argc, char **argv) { printf("x"); exit(0); }'
allowed "snprintf anywhere" src/core/a.c 'f(snprintf(a, 1, "x"), vsnprintf(a, 1, "x", b));'
allowed "words in comments and strings" src/core/a.c '/* printf("x")' ' * #include "loss/plan.h"' \
    ' exit(1) */' 'const char *zonal__a = "exit(1) /* \" argv";' "char zonal__b = '\"'; // abort()"
allowed "longer names" src/core/a.c 'zonal__exit(x); reprintf(y); my_argv = 1; my_stdout = 2;'

# ---- check_symbols.sh ----

fake=$scratch/fake
library() { # library <header> <layer> <code> [<layer> <code>...]: built as the real one is
    rm -rf "$fake"
    mkdir -p "$fake/include/zonal"
    printf '#define ZONAL_API __attribute__((visibility("default")))\n%s\n' "$1" \
        >"$fake/include/zonal/a.h"
    local dir target objects=() training=()
    shift
    while (($#)); do
        target=${1#backend/}
        if [[ $target == training ]]; then target=$1; fi
        dir=$fake/build/src/$1/CMakeFiles/zonal_${target//\//_}.dir
        mkdir -p "$dir"
        case $1 in
            *training | data | nn | eval | train | report | reproduce) training+=("$dir/a.c.o") ;;
            *) objects+=("$dir/a.c.o") ;;
        esac
        printf '#include "zonal/a.h"\n%s\n' "$2" |
            "${CC:-cc}" -fPIC -fvisibility=hidden -I "$fake/include" -x c -c - -o "$dir/a.c.o"
        shift 2
    done
    ar rcs "$fake/build/libzonal.a" "${objects[@]}"
    ar rcs "$fake/build/libzonal_training.a" "${training[@]}"
    "${CC:-cc}" -shared "${objects[@]}" -o "$fake/build/libzonal.so"
}
symbols() { ZONAL_SOURCE_DIR=$fake "$scripts/check_symbols.sh" "$fake/build"; }
header='ZONAL_API int
zonal_one(int x); /* ZONAL_API int zonal_never(void); */'
one='int zonal_one(int x) { return x; }'
define() { echo "int $1(void); int $1(void) { return ${2:-1}; }"; }
use() { echo "int $1(void); $(define "$2" "$1()")"; }

library "$header" core "$one" math "$(define zonal__two 'zonal_one(2)')"
check "symbols: a faultless library" symbols
library "$header" core "$one" math "$(define two)"
check_fails "symbols: a name without the prefix" "defines two" symbols
library "$header" core "$one" nn "$(define three)"
check_fails "symbols: a name without the prefix in the second library" "defines three" symbols
library "$header" core "$one" math "ZONAL_API $(define zonal_two)"
check_fails "symbols: exported and not declared" "exports zonal_two" symbols
library "$header" core "$one" math "ZONAL_API $(define zonal__two)"
check_fails "symbols: an internal name exported" "zonal__two, an internal name" symbols
library "$header ZONAL_API void zonal_more(void);" core "$one"
check_fails "symbols: declared and not there" "declares zonal_more" symbols
library "$header" core "$one $(use zonal__two zonal__up)" math "$(define zonal__two)"
check_fails "symbols: an arrow that points up" \
    "src/core uses zonal__two, which belongs to src/math" symbols
library "$header" core "$one" backend/ref "$(define zonal__pairs)" loss "$(use zonal__pairs zonal__l)"
check_fails "symbols: loss reaches into ref" "which belongs to src/backend/ref" symbols
library "$header" core "$one" backend/ref "$(define zonal__backend_ref)" \
    loss "$(use zonal__backend_ref zonal__l)"
check "symbols: loss asks for a table" symbols
library "$header" core "$one" backend/training "$(define zonal__layer)" loss "$(use zonal__layer zonal__l)"
check_fails "symbols: loss uses a layer" "which belongs to src/backend/training" symbols
library "$header" core "$one" backend/cpu/training "$(define zonal__cpu_layer)" \
    backend/cpu "$(use zonal__cpu_layer zonal__l)"
check_fails "symbols: losses of cpu use a layer of cpu" "belongs to src/backend/cpu/training" symbols
library "$header" core "$one" backend/cpu "$(define zonal__threads)" \
    backend/cpu/training "$(use zonal__threads zonal__l)"
check "symbols: layers of cpu use what the losses of cpu have" symbols
library "$header" core "$one" backend/cpu/training "$(define zonal__training_cpu)" \
    data "$(use zonal__training_cpu zonal__l)"
check "symbols: data asks for the tables for training" symbols
library "$header" core "$one" backend/cpu/training "$(define zonal__training_cpu)" \
    loss "$(use zonal__training_cpu zonal__l)"
check_fails "symbols: loss asks for the tables for training" "src/loss uses zonal__training_cpu" symbols
library "$header" core "$one" backend/cpu/training "$(define zonal__views_cpu)" \
    data "$(use zonal__views_cpu zonal__l)"
check_fails "symbols: data takes views from cpu alone" "belongs to src/backend/cpu/training" symbols

# ---- check.sh ----

suite() { # suite <test lines...>: a folder of tests, as ctest reads it
    rm -rf "$scratch/suite"
    mkdir "$scratch/suite"
    printf '%s\n' "$@" >"$scratch/suite/CTestTestfile.cmake"
}
says() { echo "add_test($1 sh -c \"$2\")"; }
sums() { # sums <what> <exit status> <closing line>
    run "$scripts/check.sh" "$scratch/suite"
    report $((status == $2 && ${#output} > 0)) "check: $1, exit status"
    [[ ${output##*$'\n'} == "$3" ]] && status=0 || status=1
    report $((status == 0)) "check: $1, closing line"
}
fine='echo 3 passed, 0 failed, 1 skipped'

suite "$(says a "$fine")" "$(says b "echo 9 passed, 9 failed, 9 skipped; $fine")"
sums "two good programs" 0 "6 passed, 0 failed, 2 skipped"
suite "$(says a "$fine")" "$(says b 'echo 2 passed, 3 failed, 0 skipped; exit 1')"
sums "failures are added" 1 "5 passed, 3 failed, 1 skipped"
run "$scripts/check.sh" "$scratch/suite"
[[ $output == *"b failed"*"2 passed, 3 failed"* ]] && status=0 || status=1
report $((status == 0)) "check: the failing program's output is shown"
suite "$(says a "$fine")" "$(says b 'kill -SEGV $$')"
sums "a crash" 1 "3 passed, 1 failed, 1 skipped"
suite "$(says a "$fine")" "$(says b 'sleep 20')" 'set_tests_properties(b PROPERTIES TIMEOUT 1)'
sums "a program out of time" 1 "3 passed, 1 failed, 1 skipped"
suite "$(says a 'echo all is well')"
sums "no closing line" 1 "0 passed, 1 failed, 0 skipped"
suite "$(says a "$fine; exit 3")"
sums "a bad end after a good closing line" 1 "3 passed, 1 failed, 1 skipped"
suite "$(says a 'echo 1 passed, 2 failed, 0 skipped')"
sums "failures hidden by a good exit status" 1 "1 passed, 2 failed, 0 skipped"
suite 'add_test(a no-such-program)' "$(says b "$fine")"
sums "a program that is not there" 1 "3 passed, 1 failed, 1 skipped"
suite "$(says a 'echo 0 passed, 0 failed, 4 skipped; exit 77')" "$(says b 'exit 77')" \
    'set_tests_properties(a b PROPERTIES SKIP_RETURN_CODE 77)'
sums "skipped programs" 0 "0 passed, 0 failed, 5 skipped"
suite "$(says canary_a 'echo 0 passed, 1 failed, 0 skipped; exit 1')" \
    'set_tests_properties(canary_a PROPERTIES WILL_FAIL ON)' "$(says b "$fine")"
sums "a canary that fails" 0 "4 passed, 0 failed, 1 skipped"
suite "$(says canary_a 'echo 1 passed, 0 failed, 0 skipped')" \
    'set_tests_properties(canary_a PROPERTIES WILL_FAIL ON)'
sums "a canary that lives" 1 "0 passed, 1 failed, 0 skipped"
suite ''
sums "no tests at all" 1 "0 passed, 1 failed, 0 skipped"

# ---- setup.sh, on a machine that has next to nothing ----

bare=$scratch/bare
mkdir "$bare"
for tool in bash cat env head mktemp rm sed sort tail; do
    ln -s "$(command -v "$tool")" "$bare/$tool"
done
setup() { PATH=$bare ZONAL_SETUP=on ZONAL_PYTHON=python3 "$scripts/setup.sh" "$@"; }
fake_tool() { # fake_tool <name> <line of shell>
    printf '#!/bin/sh\n%s\n' "$2" >"$bare/$1"
    chmod +x "$bare/$1"
}
everything="build-essential cmake pkg-config libopenblas-dev liblapacke-dev"
everything+=" libjpeg-dev libpng-dev zlib1g-dev libwebp-dev libgif-dev libtiff-dev"

check_fails "setup: without apt-get, names the packages" "apt-get install $everything" setup build
check_fails "setup: more of them for the tests" "$everything python3 python3-numpy python3-mpmath" \
    setup check
fake_tool id 'echo 1000'
fake_tool apt-get "echo \"\$@\" >>'$scratch/apt'"
check_fails "setup: without root and sudo, names the packages" "apt-get install $everything" setup build
fake_tool sudo 'exit 1'
check_fails "setup: a sudo that asks for a password" "sudo asks for a password" setup build
report $(($(wc -l 2>/dev/null <"$scratch/apt" || echo 0) == 0)) "setup: apt-get was left alone"
fake_tool id 'echo 0'
check "setup: as root, installs" setup build
grep -q "install -y .* $everything" "$scratch/apt" && status=0 || status=1
report $((status == 0)) "setup: apt-get was given the list"
sed -n 1p "$scratch/apt" | grep -q update && status=0 || status=1
report $((status == 0)) "setup: the lists were brought up to date first"
fake_tool cmake 'echo cmake version 3.24.9'
check "setup: an old cmake" setup build
tail -n 1 "$scratch/apt" | grep -q " cmake " && status=0 || status=1
report $((status == 0)) "setup: an old cmake is replaced"
fake_tool cmake 'echo cmake version 3.101.0'
check "setup: a new cmake" setup build
tail -n 1 "$scratch/apt" | grep -q " cmake " && status=1 || status=0
report $((status == 0)) "setup: a new cmake is kept"
fake_tool apt-get 'echo nothing to be had; exit 100'
check_fails "setup: apt-get fails" "apt-get install build-essential pkg-config" setup build
check "setup: switched off" env ZONAL_SETUP=off PATH="$bare" "$scripts/setup.sh" build

finish
