# shellcheck shell=bash
# For tests written as bash scripts: source it, then
#
#   check "what must hold" command...                runs the command; its failure is a failed test
#   check_fails "what must be refused" TEXT command...
#                                    the command must exit 1 and its output contain TEXT
#   skip "what" "why"
#   finish                           prints "N passed, N failed, N skipped" and exits
#
# $scratch is an empty folder that goes away at the end.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0

# run <command>...: sets $output and $status
run() {
    status=0
    output=$("$@" 2>&1) || status=$?
}

report() { # report <ok: 0 or 1> <name>
    if (($1)); then
        passed=$((passed + 1))
        echo "ok $((passed + failed + skipped)) - $2"
    else
        failed=$((failed + 1))
        echo "# exit status $status, output:"
        echo "${output//$'\n'/$'\n'# }" | sed '1s/^/# /'
        echo "not ok $((passed + failed + skipped)) - $2"
    fi
}

check() {
    local name=$1
    shift
    run "$@"
    report $((status == 0)) "$name"
}

check_fails() {
    local name=$1 text=$2
    shift 2
    run "$@"
    if [[ $status == 1 && $output == *"$text"* ]]; then report 1 "$name"; else report 0 "$name"; fi
}

skip() {
    skipped=$((skipped + 1))
    echo "ok $((passed + failed + skipped)) - $1 # SKIP $2"
}

finish() {
    echo "1..$((passed + failed + skipped))"
    echo "$passed passed, $failed failed, $skipped skipped"
    if ((failed)); then exit 1; fi
    if ((passed == 0 && skipped > 0)); then exit 77; fi
    exit 0
}
