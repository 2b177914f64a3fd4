#!/usr/bin/env bash
# Runs the tests of a build folder and adds up their closing lines.
#
#   scripts/check.sh [build folder] [ctest arguments...]        JOBS=2 programs at a time
#
# Every test program prints "N passed, N failed, N skipped". One that crashes, runs out of time,
# ends without that line, or fails although the line says otherwise, counts as one failure; a test
# whose name begins with canary_ counts as one, by CTest's verdict, since its line is meant to
# report a failure. The last line printed is the sum; the exit status is 1 when anything failed.
set -euo pipefail

build=${1:-build}
shift || true
if [[ ! -f $build/CTestTestfile.cmake ]]; then
    echo "check: $build holds no tests; configure it first: cmake --preset release" >&2
    exit 2
fi
log=$build/check.log

# -V prints whole outputs, line by line, each behind the test's number. The one-line verdicts are
# shown as they come.
status=0
ctest --test-dir "$build" -V -j "${JOBS:-2}" --timeout 600 "$@" 2>&1 | tee "$log" |
    { grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' || true; } ||
    status=$?

awk -v ctest_status="$status" '
    # "12: text": a line that test 12 printed
    match($0, /^[0-9]+: /) {
        number = substr($0, 1, RLENGTH - 2)
        text = substr($0, RLENGTH + 1)
        sub(/\r$/, "", text)
        output[number] = output[number] text "\n"
        if (text ~ /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/) closing[number] = text
        next
    }
    # "3/7 Test #12: name ....***Failed  0.01 sec"
    match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
        head = substr($0, 1, RLENGTH)
        rest = substr($0, RLENGTH + 1)
        sub(/^.*#/, "", head)
        number = head + 0
        name = rest
        sub(/ .*$/, "", name)
        sub(/\.+\*.*$/, "", name)
        order[++count] = number
        names[number] = name
        if (rest ~ /\*\*\*Skipped/ || rest ~ /\*\*\*Not Run \(Disabled\)/) verdict[number] = "skipped"
        else if (rest ~ / Passed +[0-9.]+ sec/) verdict[number] = "passed"
        else verdict[number] = "failed"
        next
    }
    /^test [0-9]+$/ { started++ }
    END {
        for (i = 1; i <= count; i++) {
            n = order[i]
            split(closing[n], part, /[^0-9]+/)
            good = part[1] + 0; bad = part[2] + 0; left = part[3] + 0
            why = ""
            if (names[n] ~ /^canary_/) {
                good = verdict[n] == "passed"; bad = !good; left = 0
                if (bad) why = "it did not fail, as it must"
            } else if (verdict[n] == "passed") {
                if (closing[n] == "") { bad = 1; why = "no closing line" }
                else if (bad) why = "its status says success"
            } else if (verdict[n] == "skipped") {
                if (closing[n] == "") left = 1
            } else if (bad == 0) {
                bad = 1
                why = closing[n] == "" ? "it ended without its closing line" : "it failed after its closing line"
            }
            passed += good; failed += bad; skipped += left
            if (bad) {
                printf "\n---- %s failed%s ----\n", names[n], why == "" ? "" : ": " why
                printf "%s", output[n]
            }
        }
        if (count == 0) { print "\ncheck: no tests were run"; failed++ }
        else if (count < started) { print "\ncheck: ctest stopped early"; failed++ }
        else if (ctest_status != 0 && failed == 0) {
            printf "\ncheck: ctest ended with status %d\n", ctest_status
            failed++
        }
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0
    }' "$log"
