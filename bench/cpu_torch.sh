#!/usr/bin/env bash
# Losses and training steps on the processor beside PyTorch, in turns, as tables and JSON lines.
#
#   bench/cpu_torch.sh [FILE]     FILE: where the lines go; build/cpu_torch.jsonl unless given
#   PROGRAM=build/zonal           ours
#   PYTHON=/usr/bin/python3       the one with the PyTorch to compare with
#   THREADS=2                     of both
#   PART=loss|train               that part alone
#
# On a processor with AVX-512 or AMX, ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 holds PyTorch
# to AVX2; ours takes what there is. On two quiet cores it takes about five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${PROGRAM:-build/zonal}
threads=${THREADS:-2}
lines=${1:-build/cpu_torch.jsonl}
export ZONAL_PYTHON=${PYTHON:-/usr/bin/python3}
"$ZONAL_PYTHON" -c 'import torch' || {
    echo "cpu_torch: $ZONAL_PYTHON has no torch module; name one that has by PYTHON=..." >&2
    exit 1
}

: >"$lines"
note() { # what was measured, where
    "$ZONAL_PYTHON" - <<'EOF' | tee -a "$lines"
import json
import platform

import torch

model = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
         if line.startswith("model name")]
print(json.dumps({"processor": model[0] if model else platform.processor(),
                  "torch": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability()}))
EOF
}
note
if [[ ${PART:-loss} == loss ]]; then
    "$program" bench loss --torch --json --threads "$threads" --batch 256,1024 | tee -a "$lines" |
        "$ZONAL_PYTHON" -c '
import json, sys
for line in map(json.loads, sys.stdin):
    if "torch" in line:
        print("{:<12} {:>6} {:>10.3f} {:>10.3f} {:>7.1f}".format(line["method"], line["n"], line["ms"],
              line["torch"]["ms"], line["torch"]["ms"] / line["ms"]), flush=True)'
fi
if [[ ${PART:-train} == train ]]; then
    for precision in fp32 bf16; do
        # PyTorch emulates bf16 where the processor has none, at a twentieth of the speed.
        tasks="resnet18@64:32 resnet18@32/small:16 resnet50@64:16"
        [[ $precision == bf16 ]] && tasks="resnet18@64:4 resnet18@32/small:2 resnet50@64:2"
        for task in $tasks; do
            "$program" bench train --torch --bare --json --threads "$threads" --rows "${task%:*}" \
                --batch "${task#*:}" --precision $precision | tee -a "$lines" |
                "$ZONAL_PYTHON" -c '
import json, sys
for line in map(json.loads, sys.stdin):
    if "torch" in line:
        print("{:<20} {:<5} {:>10.1f} {:>10.1f} {:>7.2f}".format(line["row"], sys.argv[1], line["ms"],
              line["torch"]["ms"], line["torch"]["ms"] / line["ms"]), flush=True)' $precision
        done
    done
fi
