#!/usr/bin/env bash
# Makes sure that what a task needs is installed; quick and silent when it is.
#
#   scripts/setup.sh build|check|ci
#
# Asks for what is missing by trying it, not by package name, so that other sources than Debian's
# packages count too. What is missing is installed with apt-get, as root or through sudo; where that
# cannot be done, the packages are named and the exit status is 1. ZONAL_SETUP=off: do nothing.
#
# shellcheck disable=SC2317 # the tests below are called through need()
set -euo pipefail

task=${1:-build}
case $task in
    build | check | ci) ;;
    *)
        echo "usage: scripts/setup.sh build|check|ci" >&2
        exit 2
        ;;
esac
[[ ${ZONAL_SETUP:-on} != off ]] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

has() { command -v "$1" >/dev/null 2>&1; }

# A C program that includes header $1 can be linked to library $2.
links() {
    has cc || return 1
    local flags
    flags=$(pkg-config --cflags "$2" 2>/dev/null) || flags=
    # shellcheck disable=SC2086 # $flags is a list
    printf '#include <%s>\nint main(void) { return 0; }\n' "$1" |
        cc $flags -x c - -o "$scratch/probe" "-l$2" >/dev/null 2>&1
}

# jpeglib.h cannot stand alone.
links_image() {
    printf '#include <stdio.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" |
        cc -x c - -o "$scratch/probe" "-l$2" >/dev/null 2>&1
}

# A module that the tests' interpreter sees: Debian's own, which need not be first on PATH.
python=${ZONAL_PYTHON:-/usr/bin/python3}
[[ -x $python ]] || python=python3
module() {
    "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" 2>/dev/null
}

cmake_new_enough() {
    has cmake || return 1
    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*//p')
    [[ $(printf '%s\n3.25\n' "$version" | sort -V | head -n 1) == 3.25 ]]
}

clang_format_14() {
    has clang-format-14 || { has clang-format && clang-format --version | grep -q 'version 14\.'; }
}

missing=()
need() { # need <package> <test>...
    local package=$1
    shift
    "$@" || missing+=("$package")
}

# ---- the list: package, how to tell, why ----
compiler() { has cc && has make; }
need build-essential compiler                       # the C compiler, libc's headers, make
need cmake cmake_new_enough                         # the build, 3.25 or later
need pkg-config has pkg-config                      # finds OpenBLAS; tries the installed zonal.pc
need libopenblas-dev links cblas.h openblas         # the BLAS below LAPACK; bench/neighbours
need liblapacke-dev links lapacke.h lapacke         # eigenvalues of covariances
need libjpeg-dev links_image jpeglib.h jpeg         # photographs
need libpng-dev links png.h png                     # images in and out
need zlib1g-dev links zlib.h z                      # .gz files, checksums
need libwebp-dev links webp/decode.h webp           # WebP images
need libgif-dev links gif_lib.h gif                 # GIF images
need libtiff-dev links tiffio.h tiff                # TIFF images
if [[ $task != build ]]; then
    need python3 has "$python"                      # runs the oracles below
    need python3-numpy module numpy                 # reads and writes the .npy files tests compare
    need python3-mpmath module mpmath               # reference values to many digits
    need python3-pil module PIL                     # images to read, and Pillow's own answer
    need python3-h5py module h5py                   # HDF5 files to read
fi
if [[ $task == ci ]]; then
    need python3-torch module torch                 # the losses as its modules
    need python3-torchvision module torchvision     # loads what zonal export writes
    need python3-sklearn module sklearn             # logistic regression and k-NN to compare with
    need dataset-fashion-mnist test -d /usr/share/datasets/fashion-mnist # real images to learn on
    need libopenmpi-dev has mpicc                   # ranks over MPI
    need openmpi-bin has mpirun                     # their launcher
    need chromium has chromium                      # shows the page of zonal report
    need clang-14 has clang-14                      # a second compiler; the thread sanitizer
    need libomp-14-dev test -e /usr/lib/llvm-14/lib/libarcher.so # tells that sanitizer of OpenMP's threads
    need clang-format-14 clang_format_14            # the layout check; versions disagree, so this one
    need shellcheck has shellcheck                  # the check of the scripts
    need groff-base has groff                       # the manual pages, as their readers see them
    if [[ $(id -u) == 0 ]]; then
        need debootstrap has debootstrap            # a bare machine to try the first commands on
    fi
fi

((${#missing[@]})) || exit 0

command=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
if ! has apt-get; then
    why="this machine has no apt-get"
elif [[ $(id -u) == 0 ]]; then
    why=
elif has sudo && sudo -n true 2>/dev/null; then
    command=(sudo -n "${command[@]}")
    why=
else
    why="that takes root, and sudo asks for a password or is not there"
fi
if [[ -z $why ]]; then
    echo "setup: installing ${missing[*]}" >&2
    log=$scratch/log
    # Old lists may do, so a failed update alone is no reason to stop.
    "${command[@]}" update >"$log" 2>&1 || true
    if "${command[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        exit 0
    fi
    tail -n 20 "$log" >&2
    why="apt-get failed (above)"
fi
{
    echo "setup: these packages are missing and could not be installed: $why"
    echo "setup: please install them: apt-get install ${missing[*]}"
    echo "setup: (or build with what there is: make SETUP=off)"
} >&2
exit 1
