#!/usr/bin/env bash
# Trains a small network twice on textures that are made on the spot, once with the sliced loss and
# once with an exact one, and compares the two. One to two minutes on two cores; a GPU is used if there
# is one. Needs no data and no internet.
#
#   scripts/demo.sh [the program [options of zonal train]]     writes to the folder demo beside it
set -euo pipefail

source=$(dirname "$(realpath "$0")")/..
program=$(realpath -m "${1:-$source/build/zonal}")
if [[ ! -x $program ]]; then
    echo "demo: $program is not there; run make first" >&2
    exit 1
fi
shift $(($# > 0))
cd "$source"
program=${program#"$PWD"/} # so that the commands can be typed as they are shown
folder=$(dirname "$program")/demo
sliced=$folder/susreg
exact=$folder/kl-heat

say() { printf '%s\n' "$@"; }
title() { printf '\n==== %s ====\n\n' "$1"; }

# Prints a command as one would type it, in lines of 80 columns, then runs it.
try() {
    fold -s -w 74 <<<"$program $*" | sed '1s/^/$ /; 2,$s/^/    /; $!s/ *$/ \\/'
    "$program" "$@"
}

# recalls <run>: "step R@1" for each evaluation on the way
recalls() {
    sed -n 's/.*"kind": "eval","step": \([0-9]*\),.*"r1": \([0-9.e-]*\),.*/\1 \2/p' \
        "$1/metrics.jsonl"
}

mkdir -p "$folder"
rm -rf "$sliced" "$exact" # of an earlier demo

title "1. One network, two losses"
say "A small ResNet learns, without labels, to know an image of a cloud again after" \
    "it was turned, shifted, scaled and lit otherwise. Both runs see the same" \
    "images in the same order. First SUSReg, which looks along 1024 random" \
    "directions in each step:" ""
try train --config recipes/demo.toml --method susreg --out "$sliced" "$@"
say "" "Then KL under the heat kernel, which is exact:" ""
try train --config recipes/demo.toml --method kl-heat --out "$exact" "$@"

title "2. Does a view find the other view of its image?"
say "2000 textures that were not trained on, 100 at a time: R@1 is the share of views" \
    "whose nearest neighbour among 199 is the other view of the same texture. Chance" \
    "is 0.5 percent." ""
try eval "$sliced" "$exact" --protocol retrieval --features projector

title "3. The curves"
say "The same on 200 others, R@1 in percent while the networks were learning:" ""
paste <(recalls "$sliced") <(recalls "$exact") | awk '
    function bar(share) {
        return sprintf("%5.1f %s", 100 * share, substr("#########################", 1, 25 * share))
    }
    BEGIN { printf "  step   %-33s %s\n", "susreg", "kl-heat" }
    { printf "%6d  %-33s %s\n", $1, bar($2), bar($4) }'
say ""
try report "$sliced" "$exact" --out "$folder/report.html" --quiet
say "" "Open $folder/report.html in a browser: these curves and those of the losses," \
    "sample views, and what each network finds."

title "4. Embeddings of your own"
say "Tests and losses work on any file of embeddings. This one has 2000 rows in 256" \
    "dimensions, spread over 7 of them only:" ""
try sample subspace --rank 7 --out "$folder/subspace.npy"
try test "$folder/subspace.npy"

say "" "Next:" \
    "  $program train FOLDER       your own images; docs/training.md says more" \
    "  $program export $exact --out backbone.safetensors" \
    "  $program loss $folder/subspace.npy --method mmd-heat" \
    "  $program bench loss         how fast the losses are here" \
    "  $program --help"
