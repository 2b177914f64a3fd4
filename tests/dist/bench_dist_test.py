"""zonal bench dist: lines for every call and loss on the ranks there are, and the model against its formulas,
written once more here."""
import json
import math
import re

import launcher
from harness import PROGRAM, case, finish, report, run

TIMES = {"mmd-heat": ((256, 0.0155), (2048, 0.1), (16384, 2.96)), "kl-heat": ((16384, 6.9),),
         "mmd-band": ((16384, 0.11), (65536, 0.33)), "susreg": ((256, 0.05), (16384, 0.59)),
         "sigreg": ((256, 0.05), (16384, 0.59))}
D, SLICES, NODE, STEP = 256, 1024, 8, 44.42e-3
NUMBERS = {"mmd-band": D * D, "susreg": 2 * 9 * SLICES, "sigreg": 2 * 17 * SLICES}  # SUSReg's 17 knots mirror each other
LINKS = {True: (5e-6, 450e9), False: (15e-6, 50e9)}  # inside a machine, and between machines


def compute(method, b):
    """Seconds of one rank's rows alone: straight between the measured times where both axes are logarithmic. Launches
    do not get shorter with fewer rows; above the last time, and by a single one, the work counts."""
    times = TIMES[method]
    last, growth = times[-1], 2 if method in ("mmd-heat", "kl-heat") else 1
    if len(times) == 1 or b > last[0]:
        return 1e-3 * last[1] * (b / last[0]) ** growth
    for (b0, t0), (b1, t1) in zip(times, times[1:]):
        if b0 <= b <= b1:
            part = math.log(b / b0) / math.log(b1 / b0)
            return 1e-3 * math.exp((1 - part) * math.log(t0) + part * math.log(t1))
    return 1e-3 * times[0][1]


def total(bytes, ranks, link):
    latency, bandwidth = link
    return 2 * math.log2(ranks) * latency + 2 * (ranks - 1) / ranks * bytes / bandwidth


def expected(method, ranks, b):
    link = LINKS[ranks <= NODE]
    small = 2 * total(8 * (D + 2), ranks, link)
    own = compute(method, b)
    if method in ("mmd-heat", "kl-heat"):
        shift = (2 if method == "kl-heat" else 1) * (link[0] + b * (16 + 4 * D) / link[1])
        return small + (ranks - 1) * max(own, shift) + own
    return small + own + total(8 * NUMBERS[method], ranks, link)


@case("the model is its formulas")
def _():
    times = ",".join(f"{m}:{b}:{t}" for m in TIMES for b, t in TIMES[m])
    done = run("bench", "dist", "--model", "--method", ",".join(TIMES), "--times", times, "--json",
               "--rows", "64,256,1024,32768")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 5 * 4 * 4 and not done.stderr, done.stderr
    for line in lines:
        want = expected(line["method"], line["ranks"], line["rows"])
        assert abs(line["model_ms"] / (1e3 * want) - 1) < 1e-9, (line, want)
        share = 2 * want / (STEP * line["rows"] / 256)
        assert abs(line["share"] / share - 1) < 1e-9 and line["n"] == line["ranks"] * line["rows"], line


@case("the model for people: assumptions, a table, what follows")
def _():
    done = run("bench", "dist", "--model", "--method", "mmd-heat,mmd-band", "--rows", "256", "--times",
               "mmd-heat:256:0.0155,mmd-heat:16384:2.96,mmd-band:16384:0.11")
    for text in ("one device: 0.0155 ms for 256 rows, 2.96 ms for 16384 rows", "links: 450 GB/s",
                 "under 5 % of a step up to B = "):
        assert text in done.stdout, done.stdout


@case("the ring is hidden from the rows on at which it always is: for fewer, a launch can hide it by chance")
def _():
    def hidden(b):
        return LINKS[False][0] + b * (16 + 4 * D) / LINKS[False][1] <= compute("mmd-heat", b)

    times = ",".join(f"mmd-heat:{b}:{t}" for b, t in TIMES["mmd-heat"])
    done = run("bench", "dist", "--model", "--method", "mmd-heat", "--times", times)
    inside, between = map(int, re.search(r"hidden from (\d+) rows .* machine, from (\d+) rows a rank between", done.stdout).groups())
    exact = max(b for b in range(16, 4096) if not hidden(b)) + 1
    assert inside == 16 and hidden(16) and exact <= between <= 1.0625 * exact + 1, (between, exact)
    done = run("bench", "dist", "--model", "--method", "mmd-heat", "--times", times, "--net-gb", "1e-6")
    assert "not up to 1048576 rows a rank between" in done.stdout, done.stdout


def check_measured(kind, ranks):
    arguments = [PROGRAM, "bench", "dist", "--batch", "64", "--dim", "16", "--method", "mmd-heat,mmd-band", "--json"]
    job = launcher.run(kind, ranks, arguments)
    lines = [json.loads(line) for line in job.text().splitlines()]
    calls = [line for line in lines if "collective" in line]
    losses = [line for line in lines if "method" in line]
    good = job.status == 0 and len(calls) == (28 if ranks > 1 else 0) and len(losses) == 2
    good = good and all(line["us"] > 0 and line["ranks"] == ranks for line in calls)
    good = good and all(0 <= line["exchange_ms"] <= line["ms"] * 1.5 and line["alone_ms"] > 0
                        and line["model_ms"] >= line["alone_ms"] * 0.999 for line in losses)
    report(good, f"{kind}, {ranks} ranks: calls and losses", f"{job.status}\n{job.text()}")


check_measured("tcp", 1)
check_measured("tcp", 3)
if launcher.has_mpi(PROGRAM):
    check_measured("mpi", 2)


def check_refused(text, *arguments):
    done = run("bench", "dist", *arguments)
    report(done.returncode == 2 and text in done.stderr and done.stderr.count("\n") == 1, f"refused: {text}",
           f"{done.returncode} {done.stderr}")


check_refused("--times: expected NAME:B:MS", "--model", "--times", "mmd-heat:3")
check_refused("B must grow", "--model", "--method", "mmd-heat", "--times", "mmd-heat:30:1,mmd-heat:20:1")
check_refused("MS be positive", "--model", "--method", "mmd-heat", "--times", "mmd-heat:30:0")
check_refused("at most 16 of a method", "--model", "--method", "mmd-heat", "--times",
              ",".join(f"mmd-heat:{b}:{b}" for b in range(2, 19)))
check_refused("mmd-haet", "--method", "mmd-haet")
check_refused("--batch", "--batch", "1")
finish()
