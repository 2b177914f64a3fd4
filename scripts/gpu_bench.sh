#!/usr/bin/env bash
# The losses' times on the GPU, with the ratio to PyTorch (eager and compiled, in the same run) where
# torch can be imported. JSON lines are added to the file given, if any.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset cuda -DZONAL_CUDA=ON >/dev/null
cmake --build build-cuda -j "$(nproc)" --target zonal_cli >/dev/null
lines=${1:-}

bench() { # precision, batches, methods, more options
    local options=(bench loss --device cuda --precision "$1" --batch "$2" --method "$3" "${@:4}")
    if [ -n "$lines" ]; then
        build-cuda/zonal "${options[@]}" --json >>"$lines"
    else
        build-cuda/zonal "${options[@]}"
    fi
}

every=mmd-heat,mmd-band,mmd-induced,ksd-heat,ksd-band,ksd-induced,kl-heat,susreg
bench fp32 256,4096,16384 "$every" --torch
bench tf32 4096,16384 mmd-heat,kl-heat
bench fp32 65536 mmd-heat
bench tf32 65536 mmd-heat
bench fp32 1048576 mmd-band
