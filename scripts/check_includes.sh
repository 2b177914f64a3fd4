#!/usr/bin/env bash
# Who may know whom: holds every include directive under src/ and include/ against the arrows in
# CONTRIBUTING.md, and keeps printing, exiting, signals and argv inside src/cli.
#
#   scripts/check_includes.sh [root of the tree]
#
# Prints "file:line: what is wrong" for each fault and exits 1 if there is one.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

mapfile -t files < <(find src include -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
if ((${#files[@]} == 0)); then
    echo "check_includes: no sources under $PWD" >&2
    exit 1
fi

awk '
BEGIN {
    # ---- the rules ----
    # layer: the layers whose headers it may include, besides its own and the public ones
    knows["public"] = ""
    knows["core"] = ""
    knows["math"] = "core"
    knows["backend"] = "core math"
    knows["ref"] = "core math backend"
    knows["cpu"] = "core math backend"
    knows["cuda"] = "core math backend"
    knows["backend/training"] = "core math backend"
    knows["ref/training"] = "core math backend ref backend/training"
    knows["cpu/training"] = "core math backend cpu backend/training"
    knows["cuda/training"] = "core math backend cuda backend/training"
    knows["loss"] = "core math backend"
    knows["uniformity"] = "core math backend loss"
    knows["data"] = "core math backend backend/training"
    knows["nn"] = "core math backend backend/training"
    knows["dist"] = "core backend"
    knows["eval"] = "core math backend backend/training loss uniformity data nn dist"
    knows["train"] = "core math backend backend/training loss uniformity data nn dist eval"
    knows["report"] = "core math backend backend/training loss uniformity data nn dist eval train"
    knows["reproduce"] = "core math backend backend/training loss uniformity data nn dist eval train report"
    knows["cli"] = "core math backend backend/training loss uniformity data nn dist eval train report reproduce"
    for (layer in knows) {
        n = split(knows[layer], list, " ")
        for (i = 1; i <= n; i++) may[layer, list[i]] = 1
        may[layer, layer] = 1
        may[layer, "public"] = 1
    }

    # foreign headers that belong to one layer
    cuda_header = "^(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|cub/|thrust/|cutlass/|cute/" \
        "|nccl|nvtx|nvToolsExt|nvml|nvrtc|mma\\.h|cooperative_groups|device_launch|driver_types" \
        "|vector_types|host_defines)"
    network_header = "^(cudnn|cublasLt)"
    cpu_header = "^(cblas|f77blas|lapack|openblas|omp\\.h|dnnl|oneapi/|mkl)"
    mpi_header = "^mpi\\.h"
    data_header = "^(jpeglib|jerror|turbojpeg|png\\.h|pngconf|webp/|gif_lib|tiff|zlib|zconf)"

    # the C17 library: all that a public header may include
    n = split("assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp " \
        "signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string " \
        "tgmath threads time uchar wchar wctype", list, " ")
    for (i = 1; i <= n; i++) libc[list[i] ".h"] = 1

    calls = "(printf|vprintf|puts|fputs|putchar|perror|exit|_exit|_Exit|quick_exit|abort)"
}

function fault(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    faults++
}

# The layer of a path such as core/error.h or backend/cpu/training/views.c; "" if it is none.
function layer_of(path,    part) {
    split(path, part, "/")
    if (part[1] == "zonal") return "public"
    if (part[1] == "backend" && part[2] == "training" && part[3] != "") return "backend/training"
    if (part[1] == "backend" && (part[2] == "ref" || part[2] == "cpu" || part[2] == "cuda") &&
        part[3] != "")
        return part[3] == "training" && part[4] != "" ? part[2] "/training" : part[2]
    return (part[1] in knows) && part[2] != "" ? part[1] : ""
}

# The line without comments, and with its string and character literals emptied. Remembers in
# in_comment whether a comment goes on.
function code_of(line,    result, at, two, one, quote) {
    result = ""
    at = 1
    while (at <= length(line)) {
        two = substr(line, at, 2)
        one = substr(line, at, 1)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; at += 2 } else at++
        } else if (two == "/*") {
            in_comment = 1; at += 2; result = result " "
        } else if (two == "//") {
            break
        } else if (one == "\"" || one == "\047") {
            quote = one
            result = result one; at++
            while (at <= length(line) && substr(line, at, 1) != quote)
                at += substr(line, at, 1) == "\\" ? 2 : 1
            result = result quote; at++
        } else {
            result = result one; at++
        }
    }
    return result
}

FNR == 1 {
    path = FILENAME
    sub(/^(src|include)\//, "", path)
    here = layer_of(path)
    in_comment = 0
    if (here == "") fault("this folder has no place in the map of CONTRIBUTING.md")
}

{
    was_comment = in_comment
    code = code_of($0)
    if (here == "") next

    if (!was_comment && $0 ~ /^[ \t]*#[ \t]*include/) {
        name = $0
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
        kind = substr(name, 1, 1)
        if (kind != "\"" && kind != "<") {
            fault("cannot tell what a computed include brings in: write the name")
            next
        }
        name = substr(name, 2)
        sub(/[">].*$/, "", name)

        if (name ~ cuda_header && here !~ /^cuda/)
            fault("CUDA headers belong to src/backend/cuda only: " name)
        else if (name ~ network_header && here != "cuda/training")
            fault("cuDNN and cuBLASLt belong to src/backend/cuda/training only: " name)
        else if (name ~ cpu_header && here !~ /^cpu/)
            fault("BLAS, LAPACK and OpenMP headers belong to src/backend/cpu only: " name)
        else if (name ~ data_header && here != "data")
            fault("the libraries of image and data files belong to src/data only: " name)
        else if (name ~ mpi_header) {
            if (here != "dist" && path != "zonal/mpi.h")
                fault("MPI belongs to src/dist and zonal/mpi.h only: " name)
        } else if (kind == "\"" || layer_of(name) != "") {
            there = layer_of(name)
            if (there == "")
                fault("name the folder, from src/ or include/: \"" name "\"")
            else if (!((here, there) in may))
                fault(here " may not know " there ": " name)
            else if (kind == "<")
                fault("use quotes for our own headers: " name)
        } else if (here == "public" && !(name in libc))
            fault("public headers may include the C library and zonal/ only: " name)
        next
    }

    if (code ~ /^[ \t]*#[ \t]*(el)?if/ && code ~ /ZONAL_HAVE_/ &&
        here !~ /^(backend|ref|cpu|cuda)(\/training)?$/ &&
        !(here == "dist" && code ~ /ZONAL_HAVE_MPI/) &&
        !(here == "data" && code ~ /ZONAL_HAVE_(JPEG|PNG|WEBP|GIF|TIFF|ZLIB)/))
        fault("what was built in is known under src/backend only: ask the device")

    if (here !~ /^(backend|ref|cpu|cuda)(\/training)?$/ &&
        match(code, /zonal__(backend|training|nn|views|optimiser|neighbours|softmax|classifier|jpeg)_(ref|cpu|cuda)[ \t]*\(/))
        fault("above src/backend no backend is known by name: take a device " \
            "(backend/device.h), not " substr(code, RSTART, RLENGTH - 1))

    if (here != "cli") {
        padded = " " code " "
        if (match(padded, "[^A-Za-z0-9_]" calls "[ \t]*\\("))
            fault("only src/cli prints or exits; return a status or call zonal__log: " \
                substr(padded, RSTART + 1, RLENGTH - 2))
        else if (match(padded, /[^A-Za-z0-9_](stdout|stderr)[^A-Za-z0-9_]/))
            fault("only src/cli knows " substr(padded, RSTART + 1, RLENGTH - 2))
        else if (match(padded, /[^A-Za-z0-9_](sigaction|signal)[ \t]*\(/))
            fault("only src/cli catches signals; ask a callback: " \
                substr(padded, RSTART + 1, RLENGTH - 2))
        # core/options is the one parser: it is handed argv by cli and does not fetch it itself
        else if (padded ~ /[^A-Za-z0-9_]argv[^A-Za-z0-9_]/ && path !~ /^core\/options\.[ch]$/)
            fault("only src/cli knows argv")
    }
}

END {
    if (faults) {
        printf "check_includes: %d faults\n", faults
        exit 1
    }
}' "${files[@]}"
echo "check_includes: ${#files[@]} files keep to the arrows"
