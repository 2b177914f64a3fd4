#!/usr/bin/env bash
# Times on the GPU as tables: the losses (with the share of the floor), a step of training and its
# profile, each with the ratio to PyTorch in the same run where torch can be imported; then views.
#
#   scripts/gpu_bench.sh [FILE]    FILE: where the JSON lines go; build-cuda/bench.jsonl unless given
#   PART=loss|train|augment        that part alone
set -euo pipefail
cd "$(dirname "$0")/.."
part=${PART:-all}
case $part in
    all | loss | train | augment) ;;
    *)
        echo "gpu_bench: PART is loss, train or augment, not $part" >&2
        exit 2
        ;;
esac
wanted() { [[ $part == all || $part == "$1" ]]; }

cmake --preset cuda >/dev/null
cmake --build build-cuda -j "$(nproc)" --target zonal_cli >/dev/null
lines=${1:-build-cuda/bench.jsonl}
: >"$lines"
torch=
if python3 -c 'import torch' 2>/dev/null; then
    torch=yes
else
    echo "python3 has no torch module: no comparison, and no floor for the losses"
fi

bench() { # precision, batches, methods, more options
    build-cuda/zonal bench loss --json --device cuda --precision "$1" --batch "$2" --method "$3" \
        "${@:4}" >>"$lines"
}

if wanted loss; then
    bench fp32 256 mmd-heat,mmd-band,mmd-induced,ksd-heat,ksd-band,ksd-induced,kl-heat,susreg
    for precision in fp32 tf32 bf16; do
        bench $precision 4096,16384 mmd-heat,kl-heat
        bench $precision 65536 mmd-heat,kl-heat
        bench $precision 1048576 mmd-band
    done
    bench fp32 4096,16384,65536 mmd-band,mmd-induced,ksd-heat,susreg
fi
if wanted loss && [[ $torch ]]; then
    python3 bench/gpu_table.py --rates >>"$lines"
    # One comparison per loss at batch 256, and the large ones there is or nearly is memory for.
    # Their own rows are measured once more, and not shown twice.
    for task in 256:mmd-heat,mmd-band,mmd-induced,ksd-heat,kl-heat,susreg \
        4096,16384:mmd-heat 16384:kl-heat,susreg; do
        build-cuda/zonal bench loss --json --device cuda --batch "${task%%:*}" \
            --method "${task#*:}" --torch | grep '"torch"' >>"$lines" || true
    done
fi
if wanted train; then
    build-cuda/zonal bench train --json --device cuda ${torch:+--torch} >>"$lines"
fi
python3 bench/gpu_table.py "$lines"
if wanted train; then
    build-cuda/zonal bench train --device cuda --bare --profile --rows resnet18@224,resnet50@224
fi
if wanted augment; then
    build-cuda/zonal bench augment --device cuda
    build-cuda/zonal bench augment --device cuda --json >>"$lines"
fi
python3 scripts/run_record.py --stamp build-cuda/zonal cuda "$lines"
