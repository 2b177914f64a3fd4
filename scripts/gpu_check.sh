#!/usr/bin/env bash
# Builds the CUDA preset and runs what is on the GPU against the reference; skips are failures
# here. Then the smallest cases under compute-sanitizer. Ends with "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
tests=(test_cuda_launch test_cuda_views_launch test_cuda test_cuda_views test_cuda_feed test_cuda_jpeg
    test_cuda_trainer test_cuda_neighbours test_cuda_nn_launch test_cuda_nn test_cuda_optimiser
    test_cuda_convolution test_cuda_fold test_cuda_classifier test_cuda_libraries test_cuda_ranks
    test_nn_ranks test_ranks_training test_nccl)
cmake --preset cuda >build-cuda.log 2>&1 || { cat build-cuda.log; exit 1; }
cmake --build build-cuda -j "$jobs" --target "${tests[@]}" steps_tool zonal_shared zonal \
    >>build-cuda.log 2>&1 || { tail -n 50 build-cuda.log; exit 1; }
rm -f build-cuda.log

export ZONAL_REQUIRE_GPU=1
passed=0 failed=0 skipped=0
count() { # the closing line of a test program; a program without one has failed
    local line
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$1" | tail -n 1 || true)
    if [ -z "$line" ]; then
        failed=$((failed + 1))
        return
    fi
    read -r p _ f _ s _ <<<"$line"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# Whether the sanitizer ($1: its exit status) found nothing but what it takes for races inside of
# cuBLAS's kernels, named nvjet_...; with those excluded by name it crashes.
only_cublas() {
    [ "$1" -eq 99 ] && grep -q '1 passed, 0 failed' "$log" && grep -q 'Race reported' "$log" &&
        ! grep 'Race reported' "$log" | grep -qv 'access at nvjet_'
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test in "${tests[@]}"; do
    echo "== $test"
    "build-cuda/tests/$test" >"$log" 2>&1 || true
    cat "$log"
    count "$log"
done
echo "== the Python package"
PYTHONPATH=bindings/python ZONAL_LIBRARY=$PWD/build-cuda/libzonal.so \
    python3 bindings/python/tests/run.py 'test_cuda*.py' >"$log" 2>&1 || true
cat "$log"
count "$log"
echo "== ranks that share the GPU"
PYTHONPATH=tests/common ZONAL_PROGRAM=$PWD/build-cuda/zonal \
    python3 tests/dist/gpu_ranks_test.py >"$log" 2>&1 || true
cat "$log"
count "$log"
echo "== ten steps beside PyTorch"
PYTHONPATH=tests/common python3 tests/train/torch_steps_test.py build-cuda/tests/steps_tool cuda \
    >"$log" 2>&1 || true
cat "$log"
count "$log"
for check in "memcheck test_cuda tiny" "racecheck test_cuda races" "memcheck test_cuda_views tiny" \
    "racecheck test_cuda_views tiny" "memcheck test_cuda_neighbours tiny" \
    "racecheck test_cuda_neighbours tiny" "memcheck test_cuda_nn tiny" "racecheck test_cuda_nn races" \
    "memcheck test_cuda_optimiser tiny" "racecheck test_cuda_optimiser tiny" \
    "memcheck test_cuda_fold tiny" "racecheck test_cuda_fold tiny" \
    "memcheck test_cuda_ranks same bits" "memcheck test_cuda_convolution stem_nans" "racecheck test_cuda_convolution stem_nans"; do
    read -r tool test cases <<<"$check"
    echo "== compute-sanitizer --tool $check"
    if timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 99 \
        "build-cuda/tests/$test" "$cases" >"$log" 2>&1 || only_cublas "$?"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 40 "$log"
    fi
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" || true
done
[ "$skipped" -eq 0 ] || failed=$((failed + skipped)) # a skip here means the GPU was not used
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
