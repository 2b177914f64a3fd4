"""A rank of a working job is killed or stopped at a random moment: the job must end on every rank, in time,
with one sentence that names the rank. Usage: failure_test.py RANKS_TOOL [TIMES]; ZONAL_TEST_SEED repeats."""
import os
import random
import re
import signal
import subprocess
import sys
import time

import launcher
from harness import finish, report, skip

TOOL = os.path.abspath(sys.argv[1])
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 1
SEED = int(os.environ.get("ZONAL_TEST_SEED", time.time_ns() % 10 ** 9))
TIMEOUT = 2.0  # --rank-timeout
SPARE = 12  # seconds for a busy machine, and for mpirun to clean up


def processes_of(job, ranks):
    """The process of each rank, once all have begun."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = dict(re.findall(r"rank (\d+) is process (\d+)", job.text()))
        if len(found) == ranks:
            return {int(rank): int(process) for rank, process in found.items()}
        time.sleep(0.05)
    raise AssertionError(f"not all ranks have begun: {job.text()}")


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split(")")[-1].split()[0] not in "ZX"
    except OSError:
        return False


def hurt(kind, ranks, sent, draw):
    """Hurts a rank; returns which one, the lines that ranks printed, the seconds until the job's end, the
    processes that are left, and the whole output."""
    job = launcher.Job(kind, ranks, [TOOL, "work", "--rank-timeout", str(TIMEOUT)])
    process = processes_of(job, ranks)
    time.sleep(draw.uniform(0, 0.5))
    rank = draw.randrange(ranks)
    begun = time.monotonic()
    os.kill(process[rank], sent)
    until = begun + 1.25 * TIMEOUT + SPARE
    for other in [p for p in job.processes if p.pid != process[rank]]:
        try:
            other.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass

    def find_left():
        return [r for r in process if is_alive(process[r]) and not (r == rank and kind == "tcp")]

    while find_left() and time.monotonic() < until:  # mpirun may end before the last of its ranks
        time.sleep(0.05)
    seconds, left = time.monotonic() - begun, find_left()
    for p in process.values():  # a stopped rank over TCP has nobody to end it but its launcher: us
        if is_alive(p):
            os.kill(p, signal.SIGKILL)
    job.wait(10)
    lines = [line for line in job.text().splitlines() if line.startswith("tool: ")]
    return rank, lines, seconds, left, job.text()


def named(kind, sent, rank, ranks, lines, text):
    if sent == signal.SIGSTOP:
        return len(lines) == 1 and lines[0].startswith(f"tool: rank {rank} of {ranks} has not answered for 2 s")
    if kind == "tcp" or lines:
        return len(lines) == 1 and lines[0].startswith(f"tool: rank {rank} of {ranks} has ended")
    # mpirun notices as well, and may end all ranks before one of them has spoken
    return re.search(rf"process rank {rank} with PID \d+ .*signal 9", text, re.S) is not None


def check(kind, sent, draw):
    ranks = draw.choice((2, 3, 4))
    rank, lines, seconds, left, text = hurt(kind, ranks, sent, draw)
    name = signal.Signals(sent).name
    limit = (1.25 * TIMEOUT if sent == signal.SIGSTOP else 0) + SPARE
    good = not left and seconds < limit and named(kind, sent, rank, ranks, lines, text)
    report(good, f"{kind}: {name} of rank {rank} of {ranks}: {seconds:.1f} s",
           f"seed {SEED}, left {left}, {seconds:.1f} s\n{text}")


def main():
    draw = random.Random(SEED)
    kinds = ["tcp"] + (["mpi"] if launcher.has_mpi(TOOL) else [])
    print(f"# seed {SEED}")
    if len(kinds) == 1:
        skip("failures over MPI", "built without MPI, or no mpirun")
    for kind in kinds:
        for sent in (signal.SIGKILL, signal.SIGSTOP):
            for _ in range(TIMES):
                check(kind, sent, draw)
    finish()


main()
