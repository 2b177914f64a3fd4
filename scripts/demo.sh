#!/usr/bin/env bash
# A tour in a few seconds: makes three files of embeddings whose distribution is known, and shows
# what zonal says about them. Needs no network and no data.
#
#   scripts/demo.sh [the program]        writes to the folder demo beside the program
set -euo pipefail

program=$(realpath "${1:-build/zonal}")
if [[ ! -x $program ]]; then
    echo "demo: $program is not there; run make first" >&2
    exit 1
fi
folder=$(dirname "$program")/demo
mkdir -p "$folder"
cd "$folder"

say() { printf '%s\n' "$@"; }
title() { printf '\n==== %s ====\n\n' "$1"; }

# Prints a command as one would type it, then runs it.
try() {
    printf '$ zonal %s\n' "$*"
    "$program" "$@"
}

# value <file> <method>: the number alone
value() {
    "$program" loss "$1" --method "$2" --json | sed -n 's/^ *"value": \([^,]*\),*$/\1/p'
}

title "1. Three files of embeddings"
say "2000 unit rows in 256 dimensions each: uniform on the sphere, gathered in a cone" \
    "around one direction, and spread over 7 dimensions out of 256 only." ""
try sample uniform --out uniform.npy
try sample cone --out cone.npy
try sample subspace --rank 7 --out subspace.npy

title "2. Is it uniform? Has it collapsed?"
try test uniform.npy
say "" "The last line is the verdict. Above it: the p of each test should look like any" \
    "number between 0 and 1, and the two columns at the end should agree." ""
try test subspace.npy
say "" "Look at \"rayleigh\", which sees nothing (the mean is near zero, as it should be)," \
    "and at \"bingham\" and the effective rank, which see it at once. The cone:" ""
printf '$ zonal test cone.npy | tail -n 2\n'
"$program" test cone.npy | tail -n 2

title "3. The same as losses, with gradients"
try loss uniform.npy --method mmd-heat --grad gradient.npy
say "" "1 is total collapse; uniform rows give 1/2000 = 0.0005 in the mean (kl-heat has" \
    "another zero). The gradient file is what a training step would follow." ""
printf '%-12s %12s %12s %12s\n' method uniform subspace cone
for method in mmd-heat mmd-band ksd-heat mmd-induced kl-heat susreg; do
    printf '%-12s %12.6f %12.6f %12.6f\n' "$method" "$(value uniform.npy $method)" \
        "$(value subspace.npy $method)" "$(value cone.npy $method)"
done
say "" "Look down the columns: every loss ranks the three files alike. susreg estimates" \
    "mmd-induced by 1024 random directions, and differs from it by their noise."

title "4. The kernels behind it"
try kernel --kernel heat --t 5/d --points 5 --plot heat.svg
try kernel --figure kernels.svg
say "" "kernels.svg is the paper's Figure 3: open it in a browser. All of this lies in" \
    "$folder" "" \
    "Next: zonal variance --plot variance.svg   the noise of the sliced loss" \
    "      zonal bench loss                     how fast the losses are here" \
    "      zonal loss --help"
