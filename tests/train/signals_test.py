#!/usr/bin/env python3
"""zonal train under signals: asked to stop at any moment it ends with a checkpoint and goes on to the
same weights; asked twice it ends at once and leaves nothing half-written. With the argument "long":
fifty signals into one run. ZONAL_PROGRAM is the program to test, ZONAL_TEST_SEED repeats the moments."""
import fcntl
import glob
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time

from harness import PROGRAM, case, run, run_tests

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side
SEED = int(os.environ.get("ZONAL_TEST_SEED") or random.SystemRandom().randrange(2**32))

# A network whose steps are matrix products in fp32 and little else: some ten milliseconds each.
WIDE = (
    "textures:disk --texture-count 64 --texture-size 32 --side 32 --width 0.125 --projector 64-32 "
    "--batch 16 --threads 2 --workers 1 --precision fp32 --device cpu --eval none --log-every 1 "
    "--quiet --selectivity 10"  # no word of a plateau in these few steps
).split()
# A few milliseconds.
TINY = (
    "textures:disk --texture-count 32 --texture-size 24 --side 16 --width 0.015625 --projector 16-8 "
    "--batch 8 --threads 1 --workers 1 --precision fp32 --device cpu --log-every 1 --quiet"
).split()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def checkpoints(folder):
    return sorted(glob.glob(folder + "/checkpoints/step-*.safetensors"))


def half_written(folder):
    return [n for _, _, names in os.walk(folder) for n in names if ".tmp." in n]


def metrics(folder, kind="step"):
    """The whole lines of this kind, but for what tells the time."""
    if not os.path.exists(folder + "/metrics.jsonl"):
        return []
    with open(folder + "/metrics.jsonl") as file:
        found = [json.loads(line) for line in file if line.endswith("\n")]
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "images_per_second")}
        for line in found
        if line["kind"] == kind
    ]


def start(*arguments, **keywords):
    keywords.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen(
        [PROGRAM, "train", *map(str, arguments)], stdout=subprocess.DEVNULL, text=True, **keywords
    )


def wait_for(condition, process, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended too early, status {process.returncode}"
        assert time.monotonic() < until, "nothing happens"
        time.sleep(0.003)


def start_stepping(folder, *arguments, **keywords):
    """A process that has made one step."""
    before = len(metrics(folder))
    process = start(*arguments, **keywords)
    wait_for(lambda: len(metrics(folder)) > before, process)
    return process


def freeze(process):
    process.send_signal(signal.SIGSTOP)

    def stopped():
        with open(f"/proc/{process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"

    wait_for(stopped, process)


def is_pending(process, number):
    with open(f"/proc/{process.pid}/status") as file:
        masks = [int(line.split()[1], 16) for line in file if line[:7] in ("SigPnd:", "ShdPnd:")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def start_heard(folder, number, *arguments):
    """A process that was asked to stop, has heard it, and is held up before it could."""
    for _ in range(20):
        process = start_stepping(folder, *arguments)
        freeze(process)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            wait_for(lambda: not is_pending(process, number), process)
            freeze(process)
            return process
        except (AssertionError, FileNotFoundError, ProcessLookupError):  # it was quicker
            process.communicate(timeout=60)
            shutil.rmtree(folder)
    raise AssertionError("steps are too short to be interrupted")


def pressed_twice(folder):
    """Status of a run at a terminal whose user presses Ctrl-C, and again as soon as it is seen."""
    ours, theirs = os.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = start_stepping(folder, *WIDE, "--steps", 100000, "--checkpoint-every", 100000, "--out",
                             folder, stderr=theirs, preexec_fn=take_terminal)
    os.close(theirs)
    os.write(ours, b"\x03")
    said = b""
    while b"Ctrl-C again" not in said:  # at the end of the terminal read fails
        said += os.read(ours, 1000)
    os.write(ours, b"\x03")
    status = process.wait(60)
    os.close(ours)
    shutil.rmtree(folder)
    return status


def ended_well(process):
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0 and not error, (process.returncode, error)


def finish_run(folder):
    done = run("train", "--resume", folder, "--quiet")
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)


def same_as_whole(folder, whole):
    assert read(checkpoints(folder)[-1]) == read(checkpoints(whole)[-1]), "other weights"
    assert metrics(folder) == metrics(whole), "other metrics"


def asked_to_stop(signals, steps):
    """So many signals into one run, each at a random moment of a step."""
    draw = random.Random(SEED)
    options = [*WIDE, "--steps", steps, "--checkpoint-every", 100000]

    @case(f"{signals} signals at random moments of products in fp32, seed {SEED}")
    def _():
        arguments = [*options, "--out", "asked"]
        for i in range(signals):
            number = draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            process = start_stepping("asked", *arguments)
            time.sleep(draw.random() * 0.03)
            known = len(metrics("asked"))
            process.send_signal(number)
            ended_well(process)
            arguments = ["--resume", "asked", "--quiet"]
            name = os.path.basename(checkpoints("asked")[-1])
            made = metrics("asked")[-1]["step"]
            assert name == f"step-{made:08}.safetensors", f"signal {i}: {name} after step {made}"
            assert made < steps, "the run ended before it was asked to: make it longer"
            assert len(metrics("asked")) <= known + 2, f"signal {i}: went on for several steps"
            assert not half_written("asked")
        finish_run("asked")
        done = run("train", *options, "--out", "whole")
        assert done.returncode == 0, done.stderr
        same_as_whole("asked", "whole")

    shutil.rmtree("asked", ignore_errors=True)
    shutil.rmtree("whole", ignore_errors=True)


def test_asked():
    asked_to_stop(6, 40)


def test_asked_often():
    asked_to_stop(50, 300)


def test_moments():
    """Moments that a run passes through quickly."""
    options = [*TINY, "--eval", "none", "--steps", 30, "--checkpoint-every", 1]
    done = run("train", *options, "--out", "whole")
    assert done.returncode == 0, done.stderr

    @case("asked while the run begins: a step, a checkpoint, status 0")
    def _():
        process = start(*options, "--out", "early")
        wait_for(lambda: os.path.exists("early/config.toml"), process)
        process.send_signal(signal.SIGTERM)
        ended_well(process)
        assert os.path.basename(checkpoints("early")[-1]) == "step-00000001.safetensors"
        finish_run("early")
        same_as_whole("early", "whole")

    @case("asked while a checkpoint is written: nothing stays half-written")
    def _():
        process = start(*options, "--out", "writing")
        wait_for(lambda: metrics("writing") and half_written("writing"), process)
        process.send_signal(signal.SIGTERM)
        ended_well(process)
        assert not half_written("writing")
        finish_run("writing")
        same_as_whole("writing", "whole")

    @case("a signal to the group that is also handed on is one: the step is finished, with a checkpoint")
    def _():
        for number in (signal.SIGTERM, signal.SIGINT):
            process = start_heard("often", number, *WIDE, "--steps", 100000, "--checkpoint-every",
                                  100000, "--out", "often")
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            ended_well(process)
            name = os.path.basename(checkpoints("often")[-1])
            assert name == f"step-{metrics('often')[-1]['step']:08}.safetensors", name
            assert not half_written("often")
            shutil.rmtree("often")

    @case("a second signal after a second: an end at once, and the last checkpoint is whole")
    def _():
        wide = [*WIDE, "--steps", 30, "--checkpoint-every", 1]
        process = start_heard("twice", signal.SIGTERM, *wide, "--out", "twice")
        time.sleep(1.01)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        _, error = process.communicate(timeout=10)
        assert process.returncode == 143 and not error, (process.returncode, error)
        assert not half_written("twice")
        finish_run("twice")
        done = run("train", *wide, "--out", "wide")
        assert done.returncode == 0, done.stderr
        same_as_whole("twice", "wide")

    @case("Ctrl-C twice on a terminal, however quickly: an end at once")
    def _():
        assert 130 in [pressed_twice(f"pressed-{i}") for i in range(5)]

    @case("asked with a full disk: a sentence, and the checkpoint before is intact")
    def _():
        endless = ["--eval", "none", "--steps", 100000, "--checkpoint-every", 100000]
        process = start_stepping("full", *TINY, *endless, "--out", "full")
        process.send_signal(signal.SIGTERM)
        ended_well(process)
        before = read(checkpoints("full")[-1])
        limit = (len(before) - 1,) * 2
        process = start_stepping("full", "--resume", "full", "--quiet",
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 1 and "cannot write" in error, (process.returncode, error)
        assert error.count("\n") == 1 and not half_written("full")
        assert read(checkpoints("full")[-1]) == before

    @case("a signal that is ignored stays ignored")
    def _():
        process = start(*options, "--out", "nohup",
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        wait_for(lambda: metrics("nohup"), process)
        process.send_signal(signal.SIGHUP)
        ended_well(process)
        same_as_whole("nohup", "whole")

    for folder in os.listdir():
        shutil.rmtree(folder)


def test_evaluation():
    @case("asked during an evaluation on the way: it ends with the step that was evaluated")
    def _():
        process = start_stepping("judged", *TINY, "--eval", "retrieval", "--eval-every", 1,
                                 "--steps", 100000, "--checkpoint-every", 100000, "--out", "judged")
        freeze(process)
        while len(metrics("judged")) == len(metrics("judged", "eval")):
            process.send_signal(signal.SIGCONT)
            time.sleep(0.005)
            freeze(process)
        made = len(metrics("judged"))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        ended_well(process)
        assert len(metrics("judged")) == len(metrics("judged", "eval")) == made
        assert os.path.basename(checkpoints("judged")[-1]) == f"step-{made:08}.safetensors"

    shutil.rmtree("judged", ignore_errors=True)


TESTS = {"long": [test_asked_often]}
SHORT = [test_asked, test_moments, test_evaluation]
run_tests(*TESTS.get(sys.argv[1] if len(sys.argv) > 1 else "", SHORT))
