#!/usr/bin/env bash
# Short runs of every method at equal selectivity S: does one S fit all? Each run leaves a line in
# FOLDER/records.jsonl; a run that has one is not made again, so the script can be cut off at any
# point and started anew. The status is 1 where a run failed; the others go on.
#
#   scripts/selectivity_runs.sh PROGRAM FOLDER DATA [more options for zonal train]
#
#   DATA   disk, cloud, ... (a family of textures), cifar10=DIR or imagenette=DIR; demo: the small
#          network of recipes/demo.toml with the views of recipes/textures.toml, for a processor;
#          easy: the same with the demo's own views; imagenette-32px=DIR: photographs for it
#   METHODS="mmd-heat kl-heat" VALUES="5 10" SEEDS="0 1" PARALLEL=2 ... narrow it down
#
# A method can have options of its own: METHODS="susreg:slices=256 mmd-band:batch=512". With
# FIRST=20 each run starts from the weights of another, as long as itself, that had S = 20; the
# method of its record is "mmd-band:first=20".
#
# KL collapses where its gain falls below the threshold, at S = 6 under t = 2/d, so larger S go with
# a larger t (S at the threshold: 10, 17 and 50 at t = 2.5, 3 and 4 /d).
set -euo pipefail
trap 'trap - INT; kill -TERM 0; exit 130' INT # a training that is stopped saves its state and ends well

program=$1 folder=$2 data=$3
shift 3
methods=${METHODS:-susreg mmd-induced mmd-heat mmd-band ksd-heat ksd-band kl-heat}
values=${VALUES:-2 5 10 20 40}
seeds=${SEEDS:-0}
recipes=$(dirname "$0")/../recipes
log_every=50
python3 "$(dirname "$0")/run_record.py" --check "$program" # before hours are spent
mkdir -p "$folder"

case $data in
    cifar10=*)
        options=(--config "$recipes"/cifar10.toml --data "${data#*=}" --epochs "${EPOCHS:-30}"
            --eval-count 5000 --eval-memory 45000)
        ;;
    imagenette=*)
        options=(--config "$recipes"/imagenette.toml --data "${data#*=}" --epochs "${EPOCHS:-60}"
            --eval-count 4000 --eval-memory 9500)
        ;;
    demo | easy)
        options=(--config "$recipes"/demo.toml --steps "${STEPS:-1200}" --eval-count 500
            --threads 1 --workers 1 --no-tensorboard)
        if [[ $data == demo ]]; then
            options+=(--view-rotation 3.141592 --view-shift 0.2 --view-scale "0.8,1.25"
                --view-shear 0.2 --view-erase 1)
        fi
        log_every=25
        ;;
    imagenette-32px=*)
        options=(--config "$recipes"/imagenette-32px.toml --data "${data#*=}" --epochs "${EPOCHS:-30}"
            --threads 1 --workers 1 --no-tensorboard)
        ;;
    *)
        options=(--config "$recipes"/textures.toml --data "textures:$data" --side "${SIDE:-128}"
            --texture-size "${SIZE:-160}" --steps "${STEPS:-1600}")
        ;;
esac
options+=(--log-every "$log_every" --eval-every 1000000 --checkpoint-every 1000000 --keep 1 --quiet "$@")
name=${data%%=*}

temperature() { # method, S: KL's, unless the method has one of its own
    case $1-$2 in
        *:t=*) ;;
        kl-heat*-10) echo 3/d ;;
        kl-heat*-20 | kl-heat*-40) echo 4/d ;;
        kl-heat*) echo 2/d ;;
    esac
}

last() { grep "\"kind\": \"$1\"" "$2/metrics.jsonl" | tail -n 1; }

accuracy() { # run, protocol: of the features, on the validation images
    local results
    results=$("$program" eval "$1" --protocol "$2" --features backbone --split val --json --quiet) || return 1
    python3 -c 'import json, sys; print(json.load(sys.stdin)["results"][0]["accuracy"])' <<<"$results"
}

found() { # run: the part of its record that says how good it is
    local knn linear
    if [[ $name != imagenette-32px ]]; then
        echo "\"eval\": $(last eval "$1")"
        return
    fi
    knn=$(accuracy "$1" knn) && linear=$(accuracy "$1" linear) || return 1
    echo "\"backbone\": {\"knn\": $knn, \"linear\": $linear}"
}

record() { # run, method, S, t, seed, the program's version, what was found
    local escape made
    made=$(python3 "$(dirname "$0")/run_record.py" "$program" "$6" "$1") || return 1
    # the first step at which views share a fifth of the variance
    escape=$(sed -n 's/.*"kind": "monitor","step": \([0-9]*\).*"rho": \([0-9.e+-]*\).*/\1 \2/p' \
        "$1/metrics.jsonl" | awk '$2 > 0.2 { print $1; exit }')
    printf '{"data": "%s", "method": "%s", "selectivity": %s, "t": "%s", "seed": %s, "escape": %s, "step": %s, "monitor": %s, %s, %s\n' \
        "$name" "$2" "$3" "$4" "$5" "${escape:-null}" "$(last step "$1")" "$(last monitor "$1")" \
        "$7" "${made#\{}" >>"$folder/records.jsonl"
}

train() { # run, method, S, seed, more options: one training
    local t word words=() own cache=()
    t=$(temperature "$2" "$3")
    IFS=: read -ra words <<<"$2"
    own=(--method "${words[0]}")
    for word in "${words[@]:1}"; do own+=(--set "$word"); done
    if [[ -f $folder/$name.autotune ]]; then cache=(--autotune-cache "$folder/$name.autotune"); fi
    rm -rf "$1"
    "$program" train "${options[@]}" "${own[@]}" --selectivity "$3" ${t:+--t "$t"} --seed "$4" \
        "${cache[@]}" --out "$1" "${@:5}" || return 1
    if [[ -f $1/autotune.txt && ! -f $folder/$name.autotune ]]; then
        cp "$1/autotune.txt" "$folder/$name.autotune"
    fi
}

one() { # method, S, seed
    local method=$1${FIRST:+:first=$FIRST} run before=() weights version result
    run=$folder/$name-${method//[:=,\/]/-}-S$2-$3
    if grep -qs "\"data\": \"$name\", \"method\": \"$method\", \"selectivity\": $2,.*\"seed\": $3," \
        "$folder/records.jsonl"; then return; fi
    version=$("$program" --version) || return 1
    if [[ ${FIRST:-} ]]; then
        train "$run-first" "$1" "$FIRST" "$3" || return 1
        weights=("$run-first"/checkpoints/step-*.safetensors)
        before=(--init "${weights[-1]}")
    fi
    train "$run" "$1" "$2" "$3" "${before[@]}" || return 1
    result=$(found "$run") || return 1
    record "$run" "$method" "$2" "$(temperature "$1" "$2")" "$3" "$version" "$result" || return 1
    rm -rf "$run/checkpoints" "$run-first"
    echo "$name $method S=$2 seed $3: $result"
}

pause() { # until fewer than PARALLEL runs are under way
    while (($(jobs -rp | wc -l) >= ${PARALLEL:-2})); do wait -n || true; done
}

try() { # method, S, seed; a run in the background leaves a file where it fails
    one "$@" || : >"$folder/failed"
}

first=1
rm -f "$folder/failed"
for seed in $seeds; do
    for value in $values; do
        for method in $methods; do
            if ((first)); then
                try "$method" "$value" "$seed" # measures the algorithms that the others use
                first=0
            else
                pause
                try "$method" "$value" "$seed" &
            fi
        done
    done
done
wait
[[ ! -e $folder/failed ]]
