"""zonal train on several ranks: the curve of one, one run folder, an end at the same step for all, and a rank
that is lost. Usage: train_ranks_test.py [TIMES]: with TIMES, ranks are killed and stopped so many times."""
import json
import os
import random
import re
import signal
import sys
import tempfile
import time

import launcher
from harness import PROGRAM, case, finish, report, run, skip

TIMES = int(sys.argv[1]) if len(sys.argv) > 1 else 1
SEED = int(os.environ.get("ZONAL_TEST_SEED", time.time_ns() % 10 ** 9))
TIMEOUT = 3.0  # --rank-timeout
SPARE = 15  # seconds for a busy machine
KINDS = ["tcp"] + (["mpi"] if launcher.has_mpi(PROGRAM) else [])
if "mpi" not in KINDS:
    skip("training over MPI", "built without MPI, or no mpirun")
FOLDER = tempfile.TemporaryDirectory()
os.chdir(FOLDER.name)

# Low rates and smooth views: roundings differ between numbers of ranks and must not grow (docs/distributed.md).
NETWORK = ("textures:disk --texture-count 40 --texture-size 40 --side 16 --width 0.125 --projector 16-8 "
           "--view-erase 0 --optimiser sgd --schedule constant --warmup 0 --precision fp32 --device cpu "
           "--threads 1 --workers 1 --eval-count 10 --eval-every 4 --no-tensorboard --log-every 1").split()
RATE, BATCH = ["--lr", "1e-6"], ["--batch", "10"]
SMALL = [*NETWORK, *RATE, *BATCH, "--steps", "8"]
LONG = [*NETWORK, *RATE, *BATCH, "--eval", "none", "--checkpoint-every", "5"]


def command(*words):
    return [PROGRAM, "train", *map(str, words)]


def train(kind, ranks, *words, seconds=60, **extra):
    return launcher.run(kind, ranks, command(*words), seconds=seconds, **extra)


def lines(folder, kind):
    with open(f"{folder}/metrics.jsonl") as file:
        return [line for line in map(json.loads, file) if line["kind"] == kind]


def apart(folder, other):
    """The largest relative difference of what two runs logged at the same steps."""
    most = 0
    for kind, names in (("step", ("loss", "invariance", "discrepancy")), ("monitor", ("effective_rank",))):
        ours, theirs = ({line["step"]: line for line in lines(f, kind)} for f in (folder, other))
        assert ours.keys() == theirs.keys() and ours, (kind, list(ours), list(theirs))
        most = max([most] + [abs(ours[s][n] / theirs[s][n] - 1) for s in ours for n in names])
    return most


def numbers(text):
    """The table of a run without its speed."""
    return [line.split()[:6] for line in text.splitlines() if re.match(r" +\d+ +\d", line)]


alone = run("train", *SMALL, "--out", "one")
report(alone.returncode == 0, "one rank", alone.stderr)

for kind, ranks in [("tcp", 3)] + [(kind, 2) for kind in KINDS[1:]]:
    @case(f"{kind}: {ranks} ranks log what one does, once, in one folder")
    def _():
        job = train(kind, ranks, *SMALL, "--out", kind)
        assert job.status == 0, job.text()
        assert numbers(job.text()) == numbers(alone.stdout), job.text()
        assert apart(kind, "one") < 1e-5, apart(kind, "one")
        assert lines(kind, "eval") == lines("one", "eval") != [], (lines(kind, "eval"), lines("one", "eval"))
        assert len(re.findall("done: 8 steps", job.text())) == 1 and f"ranks     {ranks} over" in job.text()


# ---- an end, and going on ----

def wait_for_steps(folder, steps, job):
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            if lines(folder, "step")[-1]["step"] >= steps:
                return
        except (OSError, IndexError, json.JSONDecodeError):
            pass
        if all(process.poll() is not None for process in job.processes):
            break
        time.sleep(0.05)
    raise AssertionError(f"no step {steps}: {job.text()}")


def own(text):
    return [line for line in text.splitlines() if line.startswith("zonal")]


@case("one rank is asked to stop: all end after the same step, with one checkpoint; two and one go on")
def _():
    job = launcher.Job("tcp", 3, command(*LONG, "--steps", 2000, "--out", "stopped"))
    wait_for_steps("stopped", 3, job)
    job.processes[1].send_signal(signal.SIGINT)
    job.wait(30)
    assert job.status == 0, job.text()
    step = int(re.search(r"stopped after step (\d+) of 2000", job.text())[1])
    assert lines("stopped", "step")[-1]["step"] == step, job.text()
    assert lines("stopped", "checkpoint")[-1]["step"] == step
    for ranks, steps in ((2, step + 2), (1, step + 4)):
        job = train("tcp", ranks, "--resume", "stopped", "--steps", steps)
        assert job.status == 0, job.text()
        assert [line["step"] for line in lines("stopped", "step")] == list(range(1, steps + 1))
    whole = run("train", *LONG, "--steps", str(step + 4), "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    assert apart("stopped", "whole") < 1e-5, apart("stopped", "whole")


def interrupted(name, sent, **extra):
    # Few lines: while it waits, mpirun does not read what ranks print, and holds up those that print much.
    endless = [*NETWORK[:-2], "--log-every", 50, *RATE, *BATCH, "--eval", "none", "--steps", 100000,
               "--checkpoint-every", 100000]
    job = launcher.Job("mpi", 2, command(*endless, "--out", name), **extra)
    wait_for_steps(name, 50, job)
    job.processes[0].send_signal(sent)
    job.wait(60)
    step = lines(name, "checkpoint")[-1]["step"]
    assert step >= 50, job.text()
    with open(f"{name}/log.txt") as log:
        assert len(re.findall(f"stopped after step {step} ", log.read())) == 1, job.text()


if "mpi" in KINDS:
    @case("mpi: Ctrl-C at mpirun ends all ranks with one checkpoint, and so does SIGUSR1, which it hands on")
    def _():
        # How long mpirun waits after Ctrl-C, and then leaves to ranks before it kills them: a busy disk takes
        # its time for a checkpoint.
        interrupted("interrupted", signal.SIGINT, OMPI_MCA_odls_base_sigkill_timeout="12")
        interrupted("told", signal.SIGUSR1)


# ---- a rank that is lost ----

def hurt(name, ranks, sent, draw):
    job = launcher.Job("tcp", ranks, command(*LONG, "--steps", 2000, "--rank-timeout", TIMEOUT, "--out", name))
    wait_for_steps(name, 6, job)
    time.sleep(draw.uniform(0, 0.5))
    rank = draw.randrange(ranks)
    begun = time.monotonic()
    job.processes[rank].send_signal(sent)
    for process in job.processes:
        if process is not job.processes[rank]:
            process.wait(1.25 * TIMEOUT + SPARE)
    seconds = time.monotonic() - begun
    job.processes[rank].kill()
    job.wait(5)
    said = own(job.text())
    assert len(said) == 1 and f"rank {rank}" in said[0], f"rank {rank}:\n{job.text()}"
    checkpoint = re.search(r"the last checkpoint is (\S+): zonal train --resume (\S+) continues", said[0])
    assert checkpoint and checkpoint[2] == name and os.path.exists(checkpoint[1]), said[0]
    assert all(p.returncode != 0 for p in job.processes)
    step = int(re.search(r"step-(\d+)", checkpoint[1])[1])
    again = train("tcp", 2, "--resume", name, "--steps", step + 3)
    assert again.status == 0 and lines(name, "step")[-1]["step"] == step + 3, again.text()
    print(f"# rank {rank} of {ranks}: ended after {seconds:.1f} s")


for i in range(TIMES):
    drawn = random.Random(SEED + i)
    for word, sent in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        @case(f"a rank is {word}: the others end in time, name it and the checkpoint; the run goes on (seed {SEED + i})")
        def _():
            hurt(f"{word}-{i}", drawn.choice((2, 3)), sent, drawn)


@case("--retries: the same command goes on with its run, so often and no more, and with the same options")
def _():
    again = command(*NETWORK, *BATCH, "--eval", "none", "--checkpoint-every", 5, "--steps", 2000,
                    "--out", "again", "--retries", 1)
    job = launcher.Job("tcp", 2, [*again, *RATE])
    wait_for_steps("again", 6, job)
    job.processes[1].kill()
    job.wait(20)
    assert job.status != 0, job.text()
    other = launcher.run("none", 1, [*again, "--lr", "1e-5"])
    assert other.status == 2 and "the options are not those of again: lr was 1e-06 and is 1e-05 now" in other.text(), \
        other.text()
    reached = lines("again", "step")[-1]["step"]
    job = launcher.Job("tcp", 3, [*again, *RATE])
    wait_for_steps("again", reached + 1, job)  # one of its own, so that it has begun to hear Ctrl-C
    job.processes[0].send_signal(signal.SIGINT)
    assert job.wait(20).status == 0, job.text()
    steps = [line["step"] for line in lines("again", "step")]
    assert steps == list(range(1, len(steps) + 1)), steps
    job = launcher.run("tcp", 2, [*again, *RATE])
    assert job.status == 2 and len(own(job.text())) == 1 and "started again 1 time," in job.text(), job.text()


# ---- ranks that differ ----

def differing(words, *options):
    """Rank r has the r-th of the options."""
    words, chosen = " ".join(command(*words, "--out", "never")), " ".join(f'"{option}"' for option in options)
    job = launcher.run("tcp", 2, ["sh", "-c", f'set -- {chosen}; shift $RANK; exec {words} $1'])
    assert job.status == 2 and not os.path.exists("never"), job.text()
    assert len(own(job.text())) == 1, job.text()
    return own(job.text())[0]


@case("ranks with other settings or other images are refused before anything is written")
def _():
    assert "the ranks differ in lr: rank 0 has 1e-06, rank 1 has 1e-05" in differing(
        [*NETWORK, *BATCH, "--steps", "8"], "--lr 1e-6", "--lr 1e-5")
    assert "differ in the images" in differing(SMALL[1:], "textures:disk", "textures:wood")


@case("more ranks than images")
def _():
    job = train("tcp", 3, *NETWORK, *RATE, "--batch", 2, "--steps", 4, "--out", "few")
    assert job.status == 2 and "3 ranks cannot share 2 images" in job.text(), job.text()


finish()
