#!/usr/bin/env bash
# Whole runs of zonal train on a GPU at its defaults beside the bare step: what evaluation, lines,
# checkpoints and the borders of epochs cost. Start-up is told apart.
#
#   bench/whole_run.sh [PROGRAM]       PROGRAM: build-cuda/zonal unless given
#   STEPS=3000                         of each run
#   CASES="cifar textures"             which sets: one like CIFAR-10, made of noise; textures:disk
#   DATA=FOLDER                        a CIFAR-10 of yours instead of noise
#   ALL=1                              also without evaluations, and with five lines of metrics
#   DEVICE=cuda                        where
#   MORE="--width 0.5"                 more options of every run
#
# A line for each run: steps per second of the bare step and of the step that makes its views (zonal
# bench train), and of the run between its first and its last line of metrics, with its share of the
# bare step's. "others": seconds before the first line and after the last that are not steps. "ms an
# eval": what windows between two lines with an evaluation take longer than the median one, on
# average, without the first, which also makes what evaluations need.
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

step_ms() { # row; prints the bare step and the one with views
    "$program" bench train --device "$device" --json --method mmd-band --rows "$1" |
        python3 -c 'import json, sys
line = json.loads(sys.stdin.readline())
print(line["ms"], line["with_views_ms"])'
}

# One run: its metrics against the bare step.
measure() { # name, bare ms, ms with views, options of zonal train
    local name=$1 began
    began=$(date +%s.%N)
    "$program" train "${@:4}" --device "$device" --steps "$steps" --out "$work/$name" --quiet \
        "${more[@]}"
    python3 - "$work/$name/metrics.jsonl" "$name" "$2" "$3" "$began" "$(date +%s.%N)" <<'EOF'
import json
import statistics
import sys

path, name = sys.argv[1:3]
bare, fed, began, ended = map(float, sys.argv[3:])
lines = [json.loads(line) for line in open(path, encoding="utf-8")]
steps = [line for line in lines if line["kind"] == "step"]
evaluated = [line["step"] for line in lines if line["kind"] == "eval"]
first, last = steps[0], steps[-1]
rate = (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])
rest = ended - began - (last["seconds"] - first["seconds"]) - first["step"] / rate
windows = [(a["step"], b["step"], 1e3 * (b["seconds"] - a["seconds"])) for a, b in zip(steps, steps[1:])]
usual = statistics.median(ms / (end - begin) for begin, end, ms in windows)
extra = [ms - usual * (end - begin) for begin, end, ms in windows if any(begin <= e < end for e in evaluated)]
text = f"{statistics.mean(extra[1:]):8.1f}" if len(extra) > 1 else ""
print(f"{name:<22} {1e3 / bare:>8.1f} {1e3 / fed:>8.1f} {1e3 / usual:>8.1f} {rate:>8.1f}"
      f" {rate * bare / 10:>6.1f} % {rest:>8.2f} {len(evaluated):>6} {text}", flush=True)
EOF
}

printf '%-22s %8s %8s %8s %8s %8s %8s %6s %s\n' "$steps steps" bare/s views/s window/s whole/s share \
    others evals 'ms an eval'
for set in ${CASES:-cifar textures}; do
    case $set in
        cifar)
            data=${DATA:-$work/data}
            [[ -d $data ]] || make_cifar
            times=$(step_ms resnet18@32/small)
            ;;
        textures)
            data=textures:disk
            times=$(step_ms resnet18@224/1) # a texture has 256 pixels, and views 224 unless given
            ;;
        *)
            echo "whole_run: CASES has cifar and textures, not $set" >&2
            exit 2
            ;;
    esac
    read -r bare fed <<<"$times"
    measure "$set" "$bare" "$fed" "$data"
    [[ -z ${ALL:-} ]] && continue
    measure "$set-without-eval" "$bare" "$fed" "$data" --eval none
    measure "$set-rare-lines" "$bare" "$fed" "$data" --eval none --log-every "$((steps / 5))"
done
