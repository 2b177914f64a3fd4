"""zonal loss on several ranks against one process: every method's value and gradient, uneven rows, ranks
without rows, and what is said when something is wrong."""
import json
import os

import numpy as np

import launcher
from harness import PROGRAM, case, finish, report, run_json, skip

BOUND = {"double": 1e-12, "fp32": 1e-6}  # of the value and of the gradient's norm: what is promised
FEW = ["mmd-heat", "mmd-band", "kl-heat", "susreg"]  # pairs, moments, two passes, slices
EXTRA = {"mmd-spectrum": ["--spectrum", "1,0.5,0.25,0.1"], "ksd-spectrum": ["--spectrum", "1,0.5,0.25"],
         "kl-spectrum": ["--spectrum", "1,0.02"], "susreg": ["--slices", "64"], "sigreg": ["--slices", "64"]}
METHODS = FEW + ["mmd-induced", "mmd-poisson", "mmd-spectrum", "ksd-heat", "ksd-band", "ksd-induced",
                 "ksd-poisson", "ksd-spectrum", "kl-induced", "kl-poisson", "kl-spectrum", "sigreg", "mmd-chordal"]
MPI = launcher.has_mpi(PROGRAM)


def make(name, rows, dim, seed, order="C", dtype=np.float64):
    x = np.random.default_rng(seed).normal(size=(rows, dim)) + 0.3
    np.save(name, np.asarray(x, dtype=dtype, order=order))


def options(method, precision, file):
    gradient = [] if method == "mmd-chordal" else ["--grad", "many.npy"]
    return ["loss", file, "--method", method, "--precision", precision, "--quiet", *gradient, *EXTRA.get(method, [])]


def compare(kind, ranks, method, precision, file):
    """Nothing but the value, the memory and the number of ranks may differ, and the value little."""
    arguments = options(method, precision, file)
    one = run_json(*[a.replace("many", "one") for a in arguments])
    job = launcher.run(kind, ranks, [PROGRAM, *arguments, "--json"])
    assert job.status == 0, f"status {job.status}: {job.text()}"
    many = json.loads(job.text())
    assert many.pop("ranks") == ranks
    assert one.pop("grad", "") == many.pop("grad", "").replace("many", "one")
    value, wanted = many.pop("value"), one.pop("value")
    many.pop("scratch_bytes"), one.pop("scratch_bytes")
    assert many == one, (many, one)
    bound = BOUND[precision]
    assert abs(value - wanted) <= bound * max(abs(wanted), 1 if method.startswith("kl") else 0), (value, wanted)
    if method != "mmd-chordal":
        got, exact = np.load("many.npy"), np.load("one.npy")
        os.remove("many.npy"), os.remove("one.npy")
        assert got.shape == exact.shape and got.dtype == np.float64
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert error <= bound, f"gradient off by {error}"
    return True


def check(kind, ranks, methods, precisions, file):
    for precision in precisions:
        for method in methods:
            case(f"{kind}, {ranks} ranks, {file}: {method}, {precision}")(
                lambda: compare(kind, ranks, method, precision, file))


def equal_to_one_process():
    make("x101.npy", 101, 24, 1)
    make("x5.npy", 5, 16, 2, dtype=np.float32)
    make("fortran.npy", 64, 20, 3, order="F")
    check("tcp", 3, METHODS, ("double", "fp32"), "x101.npy")
    check("tcp", 2, FEW, ("double",), "fortran.npy")
    check("tcp", 4, FEW, ("double", "fp32"), "x101.npy")
    check("tcp", 7, FEW, ("double",), "x5.npy")  # two ranks have no rows
    if MPI:
        check("mpi", 2, FEW[:1], ("double",), "x101.npy")
        check("mpi", 4, FEW, ("double",), "x101.npy")
        check("mpi", 3, FEW[:1], ("fp32",), "fortran.npy")
    else:
        skip("the same over MPI", "built without MPI, or no mpirun")


def alone():
    one = run_json("loss", "x101.npy", "--method", "mmd-heat")
    for kind in ("tcp", "mpi") if MPI else ("tcp",):
        job = launcher.run(kind, 1, [PROGRAM, "loss", "x101.npy", "--method", "mmd-heat", "--json"])
        report(json.loads(job.text()) == one, f"{kind}, 1 rank: as without a launcher", job.text())


def same_bits():
    """Sums are made in the order of the ranks, whatever carries them."""
    texts = []
    for kind in ("tcp", "tcp", "mpi") if MPI else ("tcp", "tcp"):
        command = [PROGRAM, "loss", "x101.npy", "--method", "kl-heat", "--precision", "fp32", "--grad", "g.npy", "--json"]
        text = launcher.run(kind, 3, command).text()
        with open("g.npy", "rb") as file:
            texts.append((text, file.read()))
        os.remove("g.npy")
    report(texts[1:] == texts[:-1], "the same bits again, and over TCP and MPI", [text for text, _ in texts])


def failed(name, ranks, status, text, *arguments, mpi=False):
    """One line of ours, one exit status, and no file."""
    before = sorted(os.listdir())
    for kind in ("tcp", "mpi") if MPI and mpi else ("tcp",):
        job = launcher.run(kind, ranks, [PROGRAM, "loss", *arguments])
        lines = [line for line in job.text().splitlines() if line.startswith("zonal: ")]
        good = job.status == status and len(lines) == 1 and text in lines[0]
        good = good and sorted(os.listdir()) == before
        report(good, f"{kind}: {name}", f"status {job.status}\n{job.text()}{os.listdir()}")


def refused():
    x = np.load("x101.npy")
    x[77] = 0
    np.save("zero.npy", x)
    np.save("single.npy", x[:1])
    failed("no such file", 3, 1, "cannot read none.npy", "none.npy", "--method", "mmd-heat", mpi=True)
    failed("a row of zeros, by its number in the file", 3, 1, "row 77", "zero.npy", "--method", "mmd-heat",
           "--grad", "g.npy", mpi=True)
    failed("too few rows", 2, 1, "single.npy", "single.npy", "--method", "mmd-heat")
    failed("a gradient that cannot be written", 3, 1, "nowhere/g.npy", "x101.npy", "--method", "mmd-heat",
           "--grad", "nowhere/g.npy")
    failed("no gradient of chordal", 2, 2, "chordal", "x101.npy", "--method", "mmd-chordal", "--grad", "g.npy")
    for name in ("zero.npy", "single.npy"):
        os.remove(name)


def main():
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        equal_to_one_process()
        alone()
        same_bits()
        refused()
        report(sorted(os.listdir()) == ["fortran.npy", "x101.npy", "x5.npy"], "no file is left", os.listdir())
        os.chdir("/")
    finish()


main()
