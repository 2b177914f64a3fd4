#!/usr/bin/env python3
"""Thousands of threads and a small address space: whatever is asked for, the program ends within
seconds with a right result or with a sentence. ZONAL_PROGRAM is the program to test."""
import json
import os
import resource
import subprocess
import time

from harness import PROGRAM, case, run, run_tests, skip

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side
MIB = 1 << 20
TRAIN = (
    "train textures:disk --texture-count 32 --texture-size 24 --side 16 --width 0.015625 "
    "--projector 16-8 --batch 8 --precision fp32 --device cpu --eval none --steps 2 --quiet --out"
).split()


def is_sanitized():
    """The sanitizers take terabytes of addresses for themselves."""
    with open(PROGRAM, "rb") as file:
        return b"__asan_init" in file.read()


def run_counted(*arguments):
    """Status, output and the most memory that was in use, in MiB."""
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, error = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, out, error, usage.ru_maxrss / 1024


def numbers(text):
    return {k: v for k, v in json.loads(text).items() if k != "scratch_bytes"}


def test_threads():
    run("sample", "uniform", "--n", 1500, "--dim", 64, "--out", "x.npy")
    most = 4 * len(os.sched_getaffinity(0))
    commands = {
        "loss, pairs": ["loss", "x.npy", "--method", "mmd-heat", "--t", "5/d", "--json"],
        "loss, slices": ["loss", "x.npy", "--method", "susreg", "--json"],
        "test": ["test", "x.npy", "--json"],
    }
    for name, command in commands.items():

        @case(f"{name}: 4096 threads are as many as are of use, and the result is the same")
        def _():
            status, want, _, little = run_counted(*command, "--threads", 1)
            assert status == 0
            status, out, error, much = run_counted(*command, "--threads", 4096)
            assert status == 0 and numbers(out) == numbers(want), (out, error)
            assert f"--threads 4096: {most} are used" in error, error
            more = f"{much:.0f} MiB, {little:.0f} with one thread"
            assert much < little + 64 + 4 * most or is_sanitized(), more

    @case("train: 4096 threads and 256 workers")
    def _():
        weights = []
        for threads, workers in ((1, 1), (4096, 256)):
            status, _, error, used = run_counted(
                *TRAIN, f"run{threads}", "--threads", threads, "--workers", workers
            )
            assert status == 0, (status, error)
            assert used < 300 + 8 * most or is_sanitized(), f"{used:.0f} MiB"
            with open(f"run{threads}/checkpoints/step-00000002.safetensors", "rb") as file:
                weights.append(file.read())
        assert weights[0] == weights[1]

    @case("one processor: one thread unless more are asked for")
    def _():
        one = {min(os.sched_getaffinity(0))}
        done = run("loss", "x.npy", "--method", "mmd-heat", "--t", "5/d", "--threads", 9,
                   preexec_fn=lambda: os.sched_setaffinity(0, one))
        assert "4 are used, 4 for each of 1 processor\n" in done.stderr, done.stderr

    subprocess.run("rm -rf x.npy run1 run4096", shell=True, check=True)


def test_addresses():
    name = "a limited address space: a right result or a sentence, within seconds"
    if is_sanitized():
        skip(name, "built with the address sanitizer")
        return
    run("sample", "uniform", "--n", 300, "--dim", 32, "--out", "x.npy")
    loss = ["loss", "x.npy", "--method", "mmd-band", "--json"]
    test = ["test", "x.npy", "--json"]
    want = {"loss": json.loads(run(*loss).stdout), "test": json.loads(run(*test).stdout)}

    def limited(size, *arguments):
        return run(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))

    @case(name)
    def _():
        good = 0
        for size in (40, 80, 100, 140, 180, 220, 300, 400, 600, 1000, 2000, 4000):
            for command in (loss, test, [*TRAIN, f"run{size}"]):
                began = time.monotonic()
                done = limited(size * MIB, *command)
                what = f"{command[0]} in {size} MiB: status {done.returncode}, {done.stderr}"
                assert time.monotonic() - began < 60, what
                if done.returncode == 0:
                    good += 1
                    if command[0] in want:
                        assert json.loads(done.stdout) == want[command[0]], what
                elif done.returncode == 127:  # not the program, but what loads its libraries
                    assert size < 100 and "loading shared libraries" in done.stderr, what
                else:
                    assert done.returncode == 1, what
                    assert done.stderr.startswith(("zonal: ", "\nlibgomp: ")), what
        assert good >= 6, "hardly anything works any more"

    subprocess.run("rm -rf x.npy run*", shell=True, check=True)


run_tests(test_threads, test_addresses)
