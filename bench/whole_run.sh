#!/usr/bin/env bash
# Whole runs of zonal train on a GPU at its defaults beside the bare step: what evaluation, lines,
# checkpoints and the borders of epochs cost. Start-up is told apart.
#
#   bench/whole_run.sh [PROGRAM]       PROGRAM: build-cuda/zonal unless given
#   STEPS=3000                         of each run
#   CASES="cifar textures"             which sets: one like CIFAR-10, made of noise; textures:disk
#   DATA=FOLDER                        a CIFAR-10 of yours instead of noise
#   DEVICE=cuda                        where
#   MORE="--width 0.5"                 more options of every run
#
# A line for each run: steps per second of the bare step (zonal bench train), of the run between
# its first and its last line of metrics, and seconds that are not steps: before the first line and
# after the last.
set -euo pipefail
program=$(realpath "${1:-build-cuda/zonal}")
steps=${STEPS:-3000}
device=${DEVICE:-cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra more <<<"${MORE:-}"

# CIFAR-10's files, full of noise: 50,000 images to train on and 10,000 to test.
make_cifar() {
    python3 - "$work/data" <<'EOF'
import os
import sys

folder = sys.argv[1]
os.makedirs(folder)
for name in [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]:
    with open(os.path.join(folder, name), "wb") as file:
        for i in range(10000):
            file.write(bytes([i % 10]) + os.urandom(3072))
EOF
}

bare_ms() { # row
    "$program" bench train --device "$device" --bare --json --method mmd-band --rows "$1" |
        python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["ms"])'
}

# One run: its metrics against the bare step.
measure() { # name, bare ms, options of zonal train
    local name=$1 bare=$2 began
    began=$(date +%s.%N)
    "$program" train "${@:3}" --device "$device" --steps "$steps" --out "$work/$name" --quiet \
        "${more[@]}"
    python3 - "$work/$name/metrics.jsonl" "$name" "$bare" "$began" "$(date +%s.%N)" <<'EOF'
import json
import sys

path, name, bare = sys.argv[1], sys.argv[2], float(sys.argv[3])
began, ended = map(float, sys.argv[4:])
lines = [json.loads(line) for line in open(path, encoding="utf-8")]
steps = [line for line in lines if line["kind"] == "step"]
first, last = steps[0], steps[-1]
made = last["step"] - first["step"]
rate = made / (last["seconds"] - first["seconds"])
rest = ended - began - (last["seconds"] - first["seconds"]) - first["step"] / rate
evaluations = sum(line["kind"] == "eval" for line in lines)
print(f"{name:<22} {1e3 / bare:>9.1f} {rate:>9.1f} {100 * rate * bare / 1e3:>6.1f} % {rest:>9.2f} s"
      f" {evaluations:>6}", flush=True)
EOF
}

printf '%-22s %9s %9s %8s %11s %6s\n' "$steps steps" bare/s whole/s share others evals
for set in ${CASES:-cifar textures}; do
    case $set in
        cifar)
            data=${DATA:-$work/data}
            [[ -d $data ]] || make_cifar
            bare=$(bare_ms resnet18@32/small)
            ;;
        textures)
            data=textures:disk
            bare=$(bare_ms resnet18@128/1)
            ;;
        *)
            echo "whole_run: CASES has cifar and textures, not $set" >&2
            exit 2
            ;;
    esac
    measure "$set" "$bare" "$data"
    measure "$set-without-eval" "$bare" "$data" --eval none
    measure "$set-steps-alone" "$bare" "$data" --eval none --log-every "$((steps / 3))"
done
