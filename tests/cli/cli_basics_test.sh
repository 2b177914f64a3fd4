#!/usr/bin/env bash
# The program as a whole: help, mistakes, exit statuses, signals, closed and full outputs, and
# "zonal sample".
#
# shellcheck disable=SC2317 # some functions are called through check()
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=../common/harness.sh
. ../common/harness.sh
zonal=$ZONAL_PROGRAM
python=${ZONAL_PYTHON:-}

# says <status> <text> <argument>...: the exit status, and a text in the output
says() {
    local want=$1 text=$2
    shift 2
    run "$zonal" "$@"
    if [[ $status == "$want" && $output == *"$text"* ]]; then report 1 "zonal $*"; else report 0 "zonal $*"; fi
}

# usage_error <text> <argument>...: exit status 2 and one line that begins with "zonal: "
usage_error() {
    local text=$1
    shift
    run "$zonal" "$@"
    if [[ $status == 2 && $output == "zonal: "*"$text"* && $output != *$'\n'* ]]; then
        report 1 "refused: zonal ${*//$'\n'/ }"
    else
        report 0 "refused: zonal ${*//$'\n'/ }"
    fi
}

# ---- help and mistakes ----

says 2 "usage: zonal COMMAND"
says 0 "usage: zonal COMMAND" --help
says 0 "usage: zonal COMMAND" -h
says 0 "usage: zonal COMMAND" help
says 0 "usage: zonal sample" help sample
says 0 "usage: zonal sample" sample --help
says 0 "usage: zonal sample" sample uniform --n 3 -h
version=$(sed -n 's/^#define ZONAL_VERSION_[A-Z]* //p' ../../include/zonal/status.h | paste -sd.)
says 0 "zonal $version" --version
names_commit() { # of the build, so HEAD or one before it
    [[ $("$zonal" --version) =~ ^zonal\ $version,\ commit\ ([0-9a-f]{12})(-changed)?$ ]] &&
        git -C ../.. merge-base --is-ancestor "${BASH_REMATCH[1]}" HEAD
}
if [[ -e ../../.git ]] && git -C ../.. rev-parse HEAD >/dev/null; then
    check "zonal --version names the commit" names_commit
fi
usage_error "there is no command sampel; did you mean sample?" sampel
usage_error "there is no command frobnicate" frobnicate
usage_error "there is no command frobnicate" help frobnicate
usage_error "options follow the command" --dim 3
usage_error "--out is required" sample uniform
usage_error "uniform, cone or subspace is missing" sample --out "$scratch/x.npy"
usage_error "there is no option --dimm; did you mean --dim?" sample uniform --dimm 3
usage_error "--dim must be between 2 and 65536, got 1" sample uniform --dim 1
usage_error "did you mean uniform?" sample unifrom --out "$scratch/x.npy"
usage_error "got \"cone\" as well" sample uniform cone --out "$scratch/x.npy"
usage_error "--rank is for subspace, not for cone" sample cone --rank 3 --out "$scratch/x.npy"
usage_error "--angle is for cone" sample uniform --angle 3 --out "$scratch/x.npy"
usage_error "--rank must be at most --dim" sample subspace --rank 9 --dim 4 --out "$scratch/x.npy"
usage_error "standard output" sample uniform --out -
usage_error 'one line\x0a' sample uniform --dim $'one line\n' --out "$scratch/x.npy"

nothing_written() { [[ -z $(ls -A "$scratch") ]]; }
check "a mistake leaves no file" nothing_written

# ---- files ----

says 1 "zonal: cannot write $scratch/none/x.npy: No such file" sample uniform --out "$scratch/none/x.npy"
says 1 "it is a folder" sample uniform --out "$scratch"
if [[ -c /dev/full ]]; then
    says 1 "No space left on device" sample uniform --out /dev/full
    full_output() { "$zonal" --help >/dev/full; }
    check_fails "a full standard output" "zonal: cannot write to standard output: No space" full_output
else
    skip "a full standard output" "no /dev/full"
fi
closed_output() { "$zonal" --help >&-; }
check_fails "a closed standard output" "zonal: cannot write to standard output: Bad file" closed_output
# With 1 and 2 closed the .npy file must not receive what is printed.
all_closed() {
    "$zonal" sample uniform --n 1 --dim 2 --out "$scratch/closed.npy" <&- >&- 2>&- && return 1
    [[ $(wc -c <"$scratch/closed.npy") == 136 ]]
}
check "closed streams do not reach into files" all_closed
reader_gone() {
    { sleep .3 && { "$zonal" --help 2>"$scratch/said"; echo $? >"$scratch/status"; }; } | true
    [[ $(cat "$scratch/status") == 0 && ! -s $scratch/said ]]
}
check "a reader that has gone ends it quietly" reader_gone

# ---- signals ----

# interrupted <signal> <status>: nothing may remain of the file that was being written
interrupted() {
    local file=$scratch/long.npy tries=0 outcome=0 child
    set -m # or the shell makes background jobs ignore SIGINT
    "$zonal" sample uniform --n 1000000000 --dim 8 --out "$file" &
    child=$!
    set +m
    until compgen -G "$file.tmp.*" >"$scratch/seen"; do
        tries=$((tries + 1))
        if ((tries > 500)); then break; fi
        sleep .02
    done
    kill "-$1" "$child"
    wait "$child" || outcome=$?
    [[ $outcome == "$2" ]] && ! compgen -G "$file*"
}
check "SIGINT removes the temporary and exits 130" interrupted INT 130
check "SIGTERM removes the temporary and exits 143" interrupted TERM 143
check "SIGHUP removes the temporary and exits 129" interrupted HUP 129
file_limit() {
    (ulimit -f 100 && exec "$zonal" sample uniform --n 100000 --out "$scratch/limit.npy")
}
check_fails "a limit on file sizes" "File too large" file_limit
no_temporaries() { ! compgen -G "$scratch/*.tmp.*" && [[ ! -e $scratch/limit.npy ]]; }
check "no temporary is left" no_temporaries

# ---- what is sampled ----

# statistics <file>: rows, columns, largest |norm - 1|, norm of the mean, smallest cosine to it, rank
statistics() {
    "$python" - "$1" <<'PYTHON'
import array, ast, math, struct, sys
data = open(sys.argv[1], "rb").read()
length = struct.unpack("<H", data[8:10])[0]
header = ast.literal_eval(data[10:10 + length].decode())
n, d = header["shape"]
values = array.array({"<f4": "f", "<f8": "d"}[header["descr"]], data[10 + length:])
assert len(values) == n * d
rows = [values[i * d:(i + 1) * d] for i in range(n)]
norms = [math.sqrt(sum(v * v for v in row)) for row in rows]
mean = [sum(row[k] for row in rows) / n for k in range(d)]
size = math.sqrt(sum(v * v for v in mean))
cosine = min(sum(a * b for a, b in zip(row, mean)) / size for row in rows)
basis = []  # of the first rows, by Gram-Schmidt
for row in rows[:40]:
    rest = list(row)
    for b in basis + basis:
        along = sum(u * v for u, v in zip(rest, b))
        rest = [u - along * v for u, v in zip(rest, b)]
    length = math.sqrt(sum(v * v for v in rest))
    if length > 1e-9:
        basis.append([v / length for v in rest])
print(n, d, max(abs(norm - 1) for norm in norms), size, cosine, len(basis))
PYTHON
}
# holds <condition of awk over n d off mean cosine rank> <argument>...
holds() {
    local condition=$1
    shift
    "$zonal" sample "$@" --out "$scratch/s.npy" --quiet >"$scratch/said" && [[ ! -s $scratch/said ]] &&
        statistics "$scratch/s.npy" | tee "$scratch/numbers" |
        awk "{ n = \$1; d = \$2; off = \$3; mean = \$4; cosine = \$5; rank = \$6 } { exit !($condition) }"
}
if [[ -n $python ]]; then
    # Under uniformity the mean of n rows has length about 1/sqrt(n).
    check "uniform rows" holds "n == 2000 && d == 16 && off < 1e-7 && mean < .045" uniform --dim 16
    check "uniform rows, float64" holds "n == 50 && d == 3 && off < 1e-15 && mean < .4" \
        uniform --dim 3 --n 50 --dtype f8
    check "a cone" holds "n == 2000 && off < 1e-15 && mean > .9 && cosine > cos(.53)" \
        cone --dim 64 --dtype f8
    check "a narrow cone" holds "off < 1e-15 && mean > .999 && cosine > cos(.0182)" \
        cone --dim 2 --angle 1 --dtype f8
    check "a subspace" holds "off < 1e-15 && mean < .09 && rank == 5" \
        subspace --dim 64 --rank 5 --dtype f8 --n 1000
    check "a line" holds "off < 1e-15 && rank == 1" subspace --dim 4 --rank 1 --dtype f8
    check "a noisy subspace" holds "off < 1e-15 && mean < .09 && rank == 40" \
        subspace --dim 64 --rank 5 --noise .01 --dtype f8 --n 1000
else
    skip "what is sampled" "no Python"
fi
same_seed() {
    "$zonal" sample uniform --n 20 --dim 5 --seed 7 --out "$scratch/a.npy" &&
        "$zonal" sample uniform --n 20 --dim 5 --seed 7 --out "$scratch/b.npy" &&
        "$zonal" sample uniform --n 20 --dim 5 --seed 8 --out "$scratch/c.npy" &&
        cmp "$scratch/a.npy" "$scratch/b.npy" && ! cmp -s "$scratch/a.npy" "$scratch/c.npy"
}
check "the seed decides" same_seed

finish
