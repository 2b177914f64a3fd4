#!/usr/bin/env bash
# On a bare machine "make demo" and "make check" each work as the first command, and it does not
# matter which of them was: two roots of this machine's own release, with nothing added but git,
# make and ccache (the second root need not compile again what the first has), get the two commands
# in either order. Both must end with the same tests and the same optional parts, and with those of
# a build folder of this machine where one is named.
#
#   scripts/bare_check.sh [build folder]    ZONAL_BARE_BASE=FOLDER: a bare root to copy, for repeats
#   scripts/bare_check.sh --base            only makes that root
#
# Only tests that stand on the parts are run, and the demo trains for a few steps. Needs root,
# debootstrap, and the package mirror that apt is configured with here; where one of them is not to
# be had, it is skipped and says why. Ends with "N passed, N failed, N skipped".
set -euo pipefail
reference=
base_only=
if [[ ${1:-} == --base ]]; then
    base_only=yes
elif [[ $# -gt 0 ]]; then
    reference=$(realpath "$1")
fi
if [[ -n ${ZONAL_BARE_BASE:-} ]]; then ZONAL_BARE_BASE=$(realpath -m "$ZONAL_BARE_BASE"); fi
cd "$(dirname "$0")/.."

tests='^cli_basics|^codec|^file|^harness|^install|^npy|^readers|^safetensors'
demo='--steps 8 --warmup 0 --eval-every 4'

passed=0 failed=0 skipped=0
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    exit $((failed > 0))
}
skip() {
    echo "bare check skipped: $1"
    skipped=1
    finish
}
report() { # report <status> <name>
    if (($1 == 0)); then
        passed=$((passed + 1))
        echo "ok - $2 (after $SECONDS s)"
    else
        failed=$((failed + 1))
        echo "not ok - $2 (after $SECONDS s)"
    fi
}

# ---- what it takes ----

[[ $(id -u) == 0 ]] || skip "it takes root to make another root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
command -v apt-get >/dev/null || skip "this machine has no apt"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "this is not a clone"
unshare --mount --pid --fork true 2>/dev/null || skip "this machine allows no namespaces of one's own"
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# Lines "mirror suite component" of this machine's release and its updates. $(...) is apt's.
# shellcheck disable=SC2016
sources=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$release" '$2 == release || index($2, release "-") == 1' | sort -u)
mirror=$(awk -v release="$release" '$2 == release { print $1; exit }' <<<"$sources")
[[ -n $mirror ]] || skip "apt is not configured for the release \"$release\""

# Every mount and process inside a root belongs to a namespace of its own and ends with it, so that
# removing a root is safe and nothing else is left to be cleaned up.
work=$(mktemp -d)
child=
# shellcheck disable=SC2317 # called at the end
clean_up() {
    if [[ -n $child ]] && kill -KILL "$child" 2>/dev/null; then wait "$child" 2>/dev/null || true; fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
apart() { # apart <command>...: in the background, so that a signal need not wait for its end
    local status=0
    unshare --mount --pid --fork --kill-child "$@" </dev/null &
    child=$!
    wait "$child" || status=$?
    child=
    return "$status"
}

# ---- the bare root ----

base=${ZONAL_BARE_BASE:-$work/base}
if [[ ! -d $base ]]; then
    echo "making a bare $release"
    rm -rf --one-file-system "$base.part" # of one that was interrupted
    if ! apart --mount-proc debootstrap --variant=minbase --include=git,make,ccache "$release" \
        "$base.part" "$mirror" >"$work/log" 2>&1; then
        tail -n 5 "$work/log"
        skip "debootstrap failed (above); is the package mirror reachable?"
    fi
    mv "$base.part" "$base"
    echo "made after $SECONDS s"
fi
[[ -z $base_only ]] || exit 0

# The same tree for both: what git knows of, as it is now.
mkdir "$work/tree" "$work/ccache"
git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- --ignore-failed-read | tar --extract -C "$work/tree"

make_root() { # make_root <name>: a copy of the base that can use apt as this machine does
    local root=$work/$1 part
    cp -a "$base" "$root"
    for part in apt.conf.d auth.conf.d preferences.d; do
        if [[ -d /etc/apt/$part ]]; then cp -a "/etc/apt/$part" "$root/etc/apt/"; fi
    done
    rm -rf "$root"/etc/apt/sources.list.d/*
    awk '{ print "deb", $0 }' <<<"$sources" >"$root/etc/apt/sources.list"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -a "$work/tree" "$root/root/tree"
    mkdir "$root/ccache"
}
inside() { # inside <root> <command>...: with a clean environment but for how to reach the mirror
    local root=$work/$1 keep=() name
    shift
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        if [[ -n ${!name:-} ]]; then keep+=("$name=${!name}"); fi
    done
    # shellcheck disable=SC2016 # expanded by the inner shell
    apart sh -c \
        'mount --bind "$1" "$2/ccache" && mount -t proc proc "$2/proc" && shift && exec chroot "$@"' \
        sh "$work/ccache" "$root" env -i -C /root/tree HOME=/root "${keep[@]}" CCACHE_DIR=/ccache \
        CMAKE_C_COMPILER_LAUNCHER=ccache PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "$@"
}

# ---- the two orders ----

try() { # try <root> <demo or check>
    local status=0 log=$work/$1-$2.log arguments
    if [[ $2 == demo ]]; then arguments="DEMO_ARGS=$demo"; else arguments="CHECK_ARGS=-R '$tests'"; fi
    inside "$1" make "$2" JOBS=2 "$arguments" >"$log" 2>&1 || status=$?
    if ((status)); then tail -n 60 "$log"; fi
    report "$status" "make $2, $1"
}
# What a build folder found, "yes" or "no" for each part, and which tests it has. CUDA and MPI are left
# out: the one does not come from the distribution, the other is installed for CI alone.
found() {
    sed -n '/^CU/d; /^MPI/d; s/: absent.*/ no/p; t; s/: off$/ no/p; t; s/: .*/ yes/p' "$1/parts.txt"
    find "$1/tests" -name CTestTestfile.cmake -exec grep -oh '^add_test([^ ]*' {} + | sed '/cuda_/d' | sort
}
same() { # same <name> <file> <file>
    local status=0
    diff "$2" "$3" || status=$?
    report "$status" "$1"
}

make_root demo-first
try demo-first demo
try demo-first check
make_root check-first
try check-first check
try check-first demo
((failed == 0)) || finish
for root in demo-first check-first; do
    found "$work/$root/root/tree/build" >"$work/$root.found"
    tail -n 1 "$work/$root-check.log" >"$work/$root.sum"
    echo "$root: $(cat "$work/$root.sum"); $(grep -c yes "$work/$root.found") parts," \
        "$(grep -c add_test "$work/$root.found") test programs"
done
same "the same parts and tests in either order" "$work/demo-first.found" "$work/check-first.found"
same "as many passed in either order" "$work/demo-first.sum" "$work/check-first.sum"
if [[ -n $reference ]]; then
    found "$reference" >"$work/reference.found"
    same "the parts and tests of this machine" "$work/reference.found" "$work/demo-first.found"
fi
finish
