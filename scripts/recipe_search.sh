#!/usr/bin/env bash
# Variants of a recipe, trained one after the other and evaluated while the next one trains. Each
# leaves a line in FOLDER/records.jsonl; one that has its line is not made again, so the script can
# be cut off at any point and started anew.
#
#   scripts/recipe_search.sh PROGRAM RECIPE DATA FOLDER <LIST
#
# A line of LIST is "name | options of zonal train | options of zonal eval; ... | note": every group
# of options of zonal eval between semicolons is one more evaluation by all protocols. As in
#
#   four views | --views 4 --lr 2e-3 | --side 32; --side 40
#
# The status is 1 where a variant or its evaluation failed; the others go on.
#
#   SPLIT=val        the images to evaluate on: val or test
#   PROTOCOLS="knn linear"    of zonal eval; knn is by 20 and 200 neighbours
#   SECONDS_LEFT=    no variant begins with less than a minute of these left
#   DEVICE=cuda      where
set -euo pipefail
trap 'trap - INT; kill -TERM 0; exit 130' INT # a training that is stopped saves its state and ends well
program=$1 recipe=$2 data=$3 folder=$4
limit=${SECONDS_LEFT:-1000000000}
python3 "$(dirname "$0")/run_record.py" --check "$program" # before hours are spent
mkdir -p "$folder"
evaluation=
failed=0

join() { # the evaluation that is under way
    if [[ -n $evaluation ]] && ! wait "$evaluation"; then failed=1; fi
    evaluation=
}

evaluate() { # name, options of training, groups of options of zonal eval, the program's version
    local run=$folder/$1 group i=0 made
    local groups=()
    IFS=';' read -ra groups <<<"${3:- }"
    for group in "${groups[@]}"; do
        local given=()
        read -ra given <<<"$group"
        for protocol in ${PROTOCOLS:-knn linear}; do
            local more=()
            case $protocol in
                knn) more=(--features backbone --k "20,200" --temperature "0.07,0.1") ;;
                linear) more=(--features backbone) ;; # the others say what they look at
            esac
            "$program" eval "$run" --protocol "$protocol" "${more[@]}" --split "${SPLIT:-val}" \
                --device "${DEVICE:-cuda}" --quiet "${given[@]}" \
                --out "$run/found-$((i++)).json" >/dev/null
        done
    done
    made=$(python3 "$(dirname "$0")/run_record.py" "$program" "$4" "$run")
    python3 - "$run" "$1" "$2" "$made" "$folder/records.jsonl" <<'EOF'
import glob
import json
import re
import sys

run, name, options, made, records = sys.argv[1:]
last = {}
with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
    for line in map(json.loads, file):
        last[line["kind"]] = line
found = []
for path in sorted(glob.glob(f"{run}/found-*.json")):
    with open(path, encoding="utf-8") as file:
        for result in json.load(file)["results"]:
            view = re.findall(r"; (\d+ px, \w+), mean ", result["conditions"])[-1]
            kept = {key: result[key] for key in ("protocol", "k", "temperature", "l2", "part", "train",
                                                 "test", "accuracy") if key in result}
            found.append({"view": view, **kept})
with open(f"{run}/config.toml", encoding="utf-8") as file:
    seed = int(re.search(r"^seed = (\d+)", file.read(), re.MULTILINE)[1])
line = {"run": name, "options": options, "seed": seed, "step": last["step"], "monitor": last["monitor"],
        "eval": found, **json.loads(made)}
with open(records, "a", encoding="utf-8") as file:
    file.write(json.dumps(line) + "\n")
shown = [f"{r['view']} {r['protocol']}{' ' + str(r['k']) if 'k' in r else ''} {100 * r['accuracy']:.1f}"
         for r in found if r.get("temperature", 0) != (0.1 if r.get("k") == 20 else 0.07)]
print(f"{name}: {last['step']['seconds']:.0f} s, rank {last['monitor']['effective_rank']:.0f}; "
      + "; ".join(shown), flush=True)
EOF
    rm -rf "$run/checkpoints"
}

while IFS='|' read -r name options evals _ || [[ -n $name ]]; do # the last line may have no end
    name=$(xargs <<<"$name") options=$(xargs <<<"$options")
    [[ -z $name || $name == \#* ]] && continue
    if grep -qs "\"run\": \"$name\"," "$folder/records.jsonl"; then continue; fi
    left=$((limit - SECONDS))
    if ((left < 60)); then
        echo "no time is left for $name"
        continue
    fi
    rm -rf "${folder:?}/$name"
    read -ra given <<<"$options"
    version=$("$program" --version) || { failed=1; continue; }
    if timeout -s TERM "$left" "$program" train --config "$recipe" --data "$data" --eval none \
        --checkpoint-every 1000000000 --keep 1 --no-tensorboard --device "${DEVICE:-cuda}" --quiet \
        --out "$folder/$name" "${given[@]}" </dev/null; then
        join
        evaluate "$name" "$options" "$evals" "$version" &
        evaluation=$!
    else
        failed=1
    fi
done
join
exit "$failed"
