"""Ranks as processes: the collectives, agreement and shared failures, over TCP and over MPI, and the
ways in which they find each other. Usage: ranks_test.py RANKS_TOOL."""
import os
import socket
import struct
import sys
import tempfile
import threading
import time

import launcher
from harness import case, finish, report, skip

TOOL = os.path.abspath(sys.argv[1])
# The NCCL that does nothing, before any other.
FAKE = os.path.join(os.path.dirname(TOOL), "fake_nccl")
os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (FAKE, os.environ.get("LD_LIBRARY_PATH"))))
KINDS = ["tcp"] + (["mpi"] if launcher.has_mpi(TOOL) else [])
if "mpi" not in KINDS:
    skip("ranks over MPI", "built without MPI, or no mpirun")


def tool(kind, ranks, mode, *words, **extra):
    return launcher.run(kind, ranks, [TOOL, mode, "--rank-timeout", "10", *words], **extra)


def ours(text):
    """The lines that ranks have printed, without those of mpirun."""
    return [line for line in text.splitlines() if line.startswith("tool: ")]


def check_done(name, job):
    report(job.status == 0 and job.text() == "done\n", name, f"{job.status}\n{job.text()}")


def check_failed(name, job, status, sentence):
    good = job.status == status and ours(job.text()) == ["tool: " + sentence]
    report(good, name, f"status {job.status}, {job.seconds:.1f} s\n{job.text()}")


for kind in KINDS:
    for ranks in (2, 3) if kind == "tcp" else (3,):
        check_done(f"{kind}: collectives, {ranks} ranks", tool(kind, ranks, "collectives"))
    check_failed(f"{kind}: another value", tool(kind, 3, "same", "batch=256", "seed=1", "2:seed=4"), 2,
                 "the ranks differ in seed: rank 0 has 1, rank 2 has 4; start all of them with the same "
                 "program, options and data")
    check_failed(f"{kind}: one rank fails", tool(kind, 3, "fail", "1:the disk is full"), 1,
                 "rank 1: the disk is full")
    if kind == "mpi":
        continue  # mpirun takes its time, and what follows is the same code
    check_done(f"{kind}: texts and flags", tool(kind, 3, "text"))
    check_done(f"{kind}: the same settings", tool(kind, 3, "same", "batch=256", "seed=1", "empty="))
    check_failed(f"{kind}: a missing value", tool(kind, 2, "same", "batch=256", "0:data=x"), 2,
                 "the ranks differ in data: rank 0 has x, rank 1 has nothing; start all of them with the "
                 "same program, options and data")
    check_failed(f"{kind}: a value too many", tool(kind, 2, "same", "batch=256", "1:data=x"), 2,
                 "the ranks differ in data: rank 0 has nothing, rank 1 has x; start all of them with the "
                 "same program, options and data")
    check_failed(f"{kind}: two ranks fail, the first is heard",
                 tool(kind, 3, "fail", "2:no memory", "1:the disk is full"), 1, "rank 1: the disk is full")
    check_failed(f"{kind}: all ranks fail", tool(kind, 2, "fail", "0:no file", "1:no file"), 1, "no file")

    @case(f"{kind}: ranks, and their places on the machine")
    def _():
        job = tool(kind, 3, "describe", "unbound")
        lines = sorted(job.text().splitlines())
        assert lines == [f"{r} of 3, local {r}, {kind}" for r in range(3)] + ["done"], job.text()


# ---- one rank works alone for longer than the others would wait ----

for kind, rank in [("tcp", 0), ("tcp", 1)] + [(kind, 1) for kind in KINDS[1:]]:
    command = [TOOL, "busy", "--rank-timeout", "1", f"{rank}:4"]
    check_done(f"{kind}: rank {rank} is busy and shows life", launcher.run(kind, 3, command))
check_failed("tcp: rank 1 is busy and does not", launcher.run("tcp", 3, command + ["silent"]), 1,
             "rank 1 of 3 has not answered for 1 s: stuck, stopped or cut off; start the job again, or give ranks "
             "more time with --rank-timeout")


# ---- devices, with the NCCL that does nothing ----

for kind in KINDS:
    check_done(f"{kind}: ranks with a device each take NCCL", tool(kind, 2, "device", "own"))
    job = launcher.Job(kind, 3, [TOOL, "device", "--rank-timeout", "2", "hang", "1:asleep"])
    if kind == "tcp":  # nobody else ends the one that sleeps
        job.processes[0].wait(20), job.processes[2].wait(20)
        job.processes[1].kill()
    check_failed(f"{kind}: one rank does not come to NCCL's call", job.wait(20), 1,
                 "rank 1 of 3 has not answered for 2 s: stuck, stopped or cut off; start the job again, or give "
                 "ranks more time with --rank-timeout")
check_done("tcp: ranks that share a device do not take NCCL", tool("tcp", 2, "device", "shared"))
check_failed("tcp: work that never ends", launcher.run("tcp", 2, [TOOL, "device", "--rank-timeout", "2", "hang"]), 1,
             "all ranks answer, but wait for each other in different calls: this is a fault of the program")


if "mpi" in KINDS:
    check_done("mpi: messages in pieces", launcher.run("mpi", 3, [os.path.join(os.path.dirname(TOOL), "mpi_pieces")]))


@case("mpi: the example, a plan with an MPI of the caller's own")
def _():
    if "mpi" not in KINDS:
        return
    example = os.path.join(os.path.dirname(TOOL), "example_mpi")
    texts = [launcher.run("mpi", ranks, [example]).text() for ranks in (1, 3)]
    assert texts[0].startswith("1000 rows on 1 ranks: 0."), texts
    assert texts[1] == texts[0].replace("on 1 ranks", "on 3 ranks"), texts


# ---- how ranks find each other ----

def by_hand(rank, ranks, *words, seconds=20, **variables):
    """One process with just these variables."""
    extra = {"RANK": str(rank), "WORLD_SIZE": str(ranks), **variables}
    return launcher.Job("none", 1, [TOOL, "describe", *words], **extra)


def slurm(rank, ranks, nodes="127.0.0.1", **extra):
    variables = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_JOB_ID": "77",
                 "SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": nodes, "WORLD_SIZE": "1", "RANK": "0"}
    return launcher.Job("none", 1, [TOOL, "describe", "--rank-timeout", "2"], **{**variables, **extra})


@case("alone where nothing was launched, or one rank only, or on request")
def _():
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for job in (by_hand(0, 1, **environment), by_hand(1, 2, "--launcher", "none", **environment)):
        assert job.wait(10).text() == "0 of 1, local 0, alone\ndone\n", job.text()


@case("Slurm's variables")
def _():
    port = str(launcher.free_port())
    jobs = [slurm(r, 2, MASTER_PORT=port) for r in range(2)]
    texts = [job.wait(20).text() for job in jobs]
    assert texts == ["0 of 2, local 0, tcp\ndone\n", "1 of 2, local 1, tcp\n"], texts


@case("a rendezvous by file: found, and gone afterwards")
def _():
    with tempfile.TemporaryDirectory() as folder:
        late = threading.Timer(0.5, lambda: None)
        jobs = [by_hand(1, 3, "--rendezvous", folder)]
        late.start()
        late.join()
        jobs += [by_hand(r, 3, "--rendezvous", folder) for r in (0, 2)]
        texts = [job.wait(20).text() for job in jobs]
        assert texts == ["1 of 3, local 1, tcp\n", "0 of 3, local 0, tcp\ndone\n", "2 of 3, local 2, tcp\n"], texts
        assert os.listdir(folder) == [], os.listdir(folder)


@case("a file that was left behind is no trap, nor is one with other words in it")
def _():
    for left in (f"zonal rendezvous 1\n127.0.0.1 {launcher.free_port()}\n", "zonal rendezvous 1\nx y z\n",
                 "nonsense", "", "zonal rendezvous 1\n" + "9" * 60000):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/zonal-run-0.rendezvous", "w") as file:
                file.write(left)
            jobs = [by_hand(1, 2, "--rendezvous", folder)]
            time.sleep(0.3)
            jobs.append(by_hand(0, 2, "--rendezvous", folder))
            assert [job.wait(20).status for job in jobs] == [0, 0], [job.text() for job in jobs]
            assert os.listdir(folder) == [], os.listdir(folder)


def start_first(ranks, port, *words, **extra):
    return launcher.Job("none", 1, [TOOL, "describe", "--rank-timeout", "0.6", *words],
                        RANK="0", WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **extra)


def one_line(job, text):
    lines = ours(job.wait(20).text())
    assert job.status == 1 and len(lines) == 1 and text in lines[0], (job.status, job.text())


@case("a rank that never comes is named")
def _():
    port = launcher.free_port()
    jobs = [start_first(3, port)]
    jobs.append(by_hand(1, 3, "--rank-timeout", "2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
    one_line(jobs[0], "only 2 of 3 ranks have joined rank 0 within 3 s; the first one missing is rank 2")
    one_line(jobs[1], "the first one missing is rank 2")


@case("no rank 0: the sentence has its address")
def _():
    port = launcher.free_port()
    one_line(by_hand(1, 2, "--rank-timeout", "0.5", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
             f"rank 1 got no answer from rank 0 at 127.0.0.1, port {port}, in 2.5 s")


@case("a rank of another run, of another size, and a second rank 1 are refused")
def _():
    port = launcher.free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    first = launcher.Job("none", 1, [TOOL, "describe", "--rank-timeout", "10"], RANK="0", WORLD_SIZE="3", **place)
    good = by_hand(1, 3, **place)
    time.sleep(0.5)
    one_line(by_hand(2, 3, TORCHELASTIC_RUN_ID="other", **place), "it belongs to another run")
    one_line(by_hand(2, 4, **place), "it counts 4 ranks, and rank 0 counts 3")
    one_line(by_hand(1, 3, **place), "another process is rank 1 already")
    last = by_hand(2, 3, **place)
    assert [job.wait(20).status for job in (first, good, last)] == [0, 0, 0], first.text()


@case("strangers at the port: garbage, silence, a flood, a greeting cut short, are all put out")
def _():
    port = launcher.free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    first = launcher.Job("none", 1, [TOOL, "describe", "--rank-timeout", "10"], RANK="0", WORLD_SIZE="2", **place)
    time.sleep(0.5)
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    for i, stranger in enumerate(strangers):
        try:
            if i % 4 == 1:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(500))
            elif i % 4 == 2:
                stranger.sendall(struct.pack("<QIIIIQ", 0x6B6E6172616E6F7A, 1, 2 ** 32 - 1, 2, 0, 5))
            elif i % 4 == 3:
                stranger.sendall(struct.pack("<QI", 0x6B6E6172616E6F7A, 1))
        except OSError:
            pass
    second = by_hand(1, 2, **place)
    assert [job.wait(20).status for job in (first, second)] == [0, 0], first.text() + second.text()
    for stranger in strangers:
        stranger.close()


@case("rank 0 that is somebody else: no answer, or nonsense")
def _():
    for words in (b"", b"SSH-2.0-OpenSSH_9.2\r\n" * 40):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(1)

            def answer():
                try:
                    while True:
                        client, _ = server.accept()
                        client.sendall(words)
                        client.close()
                except OSError:
                    pass

            thread = threading.Thread(target=answer)
            thread.start()
            job = by_hand(1, 2, "--rank-timeout", "0.5", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(server.getsockname()[1]))
            one_line(job, "got no answer from rank 0")
        thread.join()


@case("variables that make no sense are refused by name")
def _():
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234"}
    for variables, text in (
            ({"RANK": "5", "WORLD_SIZE": "2", **place}, "RANK must be from 0 to 1, got 5"),
            ({"RANK": "x", "WORLD_SIZE": "2", **place}, "RANK"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR is not set"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "99999"}, "MASTER_PORT must be")):
        job = launcher.Job("none", 1, [TOOL, "describe"], **variables).wait(10)
        assert job.status == 2 and text in job.text() and len(ours(job.text())) == 1, job.text()


finish()
