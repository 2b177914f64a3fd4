#!/usr/bin/env python3
"""What the program says: lines of at most 80 columns, names that cannot write to the terminal,
numbers at the ends of their range, sentences for what people do wrong, one of each remark. The
commands train and eval are tested by others. ZONAL_PROGRAM is the program to test."""
import glob
import json
import math
import os
import re
import shutil
import struct
import subprocess
import unicodedata

from harness import PROGRAM, SOURCE, case, refused, report, run, run_tests

def save(name, rows):
    """A .npy file of float64, without numpy."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for row in rows:
            file.write(struct.pack(f"<{len(row)}d", *row))


def axis(k, d, value=1.0):
    return [value if i == k else 0.0 for i in range(d)]


ROWS = [[1.0, 0.2, 0.1], [0.1, -1.0, 0.3], [0.2, 0.5, 1.0], [-1.0, 0.4, -0.2], [0.3, 0.3, -1.0]]


def raw(*arguments):
    """The program with arguments of any bytes; output as bytes."""
    words = [a if isinstance(a, bytes) else str(a).encode() for a in arguments]
    return subprocess.run([PROGRAM.encode(), *words], capture_output=True, timeout=100)


# ---- 80 columns ----------------------------------------------------------------------------------


def too_wide(text):
    return [line for line in text.split("\n") if len(line) > 80]


def textures(folder, family="disk", count=2):
    done = run("data", "textures", "--family", family, "--count", count, "--size", 16, "--out", folder)
    return done.returncode == 0  # not in a build without libpng


def list_commands():
    """ "", "loss" ... "bench data" """
    return run("man", "--list").stdout.split("\n")[:-1]


def test_width():
    report(len(list_commands()) > 20, "width: the program lists its commands", list_commands())
    for command in list_commands():
        done = run(*command.split(), "--help")
        wide = too_wide(done.stdout)
        report(done.returncode == 0 and not wide, f"width: zonal {command} --help", wide)

    has_png = textures("photos/a") and textures("photos/b", "wood")
    examples = readme_examples()
    report(len(examples) >= 15, "width: the README has examples", examples)
    for line in examples:
        words = small(line.split())
        if not words or (not has_png and {"photos", "textures"} & set(words)):
            continue
        done = run(*words)
        wide = too_wide(done.stdout)
        good = done.returncode == 0 and not wide
        report(good, "width: zonal " + " ".join(words), done.stderr or wide)
    for name in ("photos", "figures", "runs"):
        shutil.rmtree(name, ignore_errors=True)
    for name in os.listdir():
        os.remove(name)


def readme_examples():
    """The lines "zonal COMMAND ..." of the README's examples, without their comments."""
    with open(os.path.join(SOURCE, "README.md")) as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^zonal (.*)$", "\n".join(blocks), re.MULTILINE)
    return [line.split("  #")[0].split(" #")[0].strip() for line in lines]


def small(words):
    """An example in less time; None: it is tested elsewhere."""
    smaller = {"--n": "300", "--dim": "32", "--batch": "32", "--count": "4", "--side": "16"}
    words = [smaller.get(words[i - 1], word) for i, word in enumerate(words)]
    more = {
        "variance": ["--replicates", "3", "--slices", "4,8", "--quiet"],
        "bench": ["--dim", "16", "--batch", "16", "--limit", "1"],
        "metrics": [],
    }
    if words[0] in ("train", "eval", "embed", "export", "report", "metrics"):
        return None  # a run is needed: train_test.py and eval_cli_test.py
    if words[0] == "reproduce" and words[1].startswith("table-"):
        return None  # many are needed: reproduce_test.py
    if words[:2] == ["data", "textures"]:
        words += ["--size", "16"]
    if words[0] == "reproduce":
        words[1] = "figure-kernels"
    return words + more.get(words[0], [])


# ---- options in the documents --------------------------------------------------------------------

# Of mpirun, srun, torchrun, tensorboard, cmake, ctest, pkg-config, our scripts; and zonal --version.
OTHERS = set(
    "mca bind-to signal kill-on-bad-exit nproc-per-node max-restarts no-python logdir preset build test-dir "
    "cflags libs version check part layers".split()
)


def options_in(text):
    return set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", text))


def test_documents():
    known = set(OTHERS)
    for command in list_commands():
        for name in re.findall(r"^  --([\w-]+)", run(*command.split(), "--help").stdout, re.M):
            known |= {name, "no-" + name}
    pages = ["README.md", "NEWS.md", "docs/*.md", "results/*.md", "recipes/*.toml"]
    files = [file for page in pages for file in sorted(glob.glob(os.path.join(SOURCE, page)))]
    report(len(files) > 20 and len(known) > 200, "documents: there are pages and options", files)
    for file in files:
        with open(file, encoding="utf-8") as page:
            unknown = options_in(page.read()) - known
        report(not unknown, f"options named in {os.path.relpath(file, SOURCE)} exist", unknown)
    report(options_in("`--wrong` and a--right, ---") == {"wrong"}, "documents: an option is found")


# ---- names ---------------------------------------------------------------------------------------

NAMES = {
    "ESC": b"a\x1b[31mred",
    "a newline": b"two\nlines",
    "U+202E": "right\u202eleft".encode(),
    "U+009B": "c1\u009b31m".encode(),
    "invalid UTF-8": b"\xff\xfe\xc3(",
}


def is_harmless(text):
    """One line that is UTF-8 and has no character of control or direction, by Python's tables."""
    line = text.decode("utf-8")  # an exception is a failure
    assert line.endswith("\n")
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in line[:-1])


def test_names():
    for what, name in NAMES.items():

        @case(f"names: {what} in messages of every command")
        def _():
            tries = [
                (name,),
                ("loss", name, "--method", "mmd-heat"),
                ("loss", b"x.npy", "--method", name),
                ("loss", b"x.npy", b"--" + name),
                ("loss", b"x.npy", "--method", "mmd-heat", "--grad", b"none/" + name),
                ("test", name),
                ("kernel", name),
                ("kernel", "--kernel", name),
                ("sample", name, "--out", "s.npy"),
                ("data", name),
                ("data", "info", name),
                ("data", "info", b"textures:" + name),
                ("data", "pack", name, "--out", "p.zpk"),
                ("embed", name, "--out", "e.npy"),
                ("export", name, "--out", "e.safetensors"),
                ("metrics", name),
                ("report", name),
                ("reproduce", name),
                ("train", name),
                ("train", "--resume", name),
                ("eval", name),
            ]
            for words in tries:
                done = raw(*words)
                assert done.returncode in (1, 2), (words, done)
                assert done.stderr.startswith(b"zonal: ") and is_harmless(done.stderr), (words, done)

        @case(f"names: {what} in what is printed")
        def _():
            done = raw("sample", "uniform", "--n", 3, "--dim", 3, "--out", name)
            assert done.returncode == 0 and is_harmless(done.stdout), done
            done = raw("loss", name, "--method", "mmd-band", "--quiet")
            assert done.returncode == 0 and is_harmless(done.stdout.split(b"\n")[0] + b"\n"), done
            os.remove(name)

    @case("names: letters of other scripts stay as they are")
    def _():
        name = "Größe-数据-данные"
        done = run("test", name)
        assert name in done.stderr, done.stderr

    @case("names: what was hidden can be read")
    def _():
        assert b"a\\x1b[31mred" in raw("test", NAMES["ESC"]).stderr
        assert b"right\\u202eleft" in raw("test", NAMES["U+202E"]).stderr

    @case("names: a long one leaves room for the remedy")
    def _():
        done = run("loss", "x" * 3000, "--method", "mmd-heat")
        assert done.stderr.startswith("zonal: cannot read xxx") and len(done.stderr) < 1100
        done = run("loss", "x.npy", "--method", "y" * 3000)
        assert "susreg, sigreg" in done.stderr, done.stderr
        done = run("z" * 5000)
        assert done.stderr.endswith("lists the commands\n"), done.stderr


# ---- numbers -------------------------------------------------------------------------------------

NUMBERS = ["9223372036854775807", "9223372036854775808", "1e300", "1e-320", "1e-17", "nan", "-1"]
NUMBERS += ["", "1e308,1e308", "1e-320,1e-320"]
SMALL = {
    ("kernel", "--points", 2): ["dim", "t", "points"],
    ("kernel", "--kernel", "induced", "--dim", 8, "--points", 2): ["scale"],
    ("kernel", "--kernel", "poisson", "--dim", 8, "--points", 2): ["r"],
    ("kernel", "--kernel", "spectrum", "--dim", 8, "--points", 2): ["spectrum"],
    ("loss", "x.npy", "--method", "mmd-heat"): ["t", "threads"],
    ("loss", "x.npy", "--method", "susreg"): ["scale", "slices", "knots", "range", "seed", "step"],
    ("loss", "x.npy", "--method", "sigreg", "--collapse-norm"): ["range"],
    ("loss", "x.npy", "--method", "kl-induced"): ["scale"],
    ("test", "x.npy"): ["mc", "seed", "t", "pair-limit", "level"],
    ("variance", "--dim", 4, "--batch", 4, "--slices", 2, "--replicates", 2): ["scale", "seed"],
    ("sample", "cone", "--n", 2, "--dim", 2, "--out", "s.npy"): ["angle", "seed"],
    ("data", "info", "textures:disk", "--count", 2, "--size", 16): ["seed", "max-corrupt", "channels"],
    ("bench", "loss", "--dim", 4, "--batch", 4, "--method", "mmd-band"): ["peak", "limit"],
}


def is_right_or_a_sentence(words):
    done = run(*words)
    if done.returncode != 0:
        one = done.stderr.startswith("zonal: ") and done.stderr.count("\n") == 1
        assert done.returncode in (1, 2) and one and not done.stdout, (words, done)
    wrong = re.search(r"(?<![a-z])-?(nan|inf)(?![a-z])", done.stdout, re.IGNORECASE)
    assert not wrong, (words, done.stdout)


def test_numbers():
    save("x.npy", ROWS)
    for command, options in SMALL.items():

        @case("numbers: " + " ".join(map(str, command)) + ", " + " ".join(options))
        def _():
            for option in options:
                words, name = list(command), "--" + option
                if name in words:
                    del words[words.index(name) : words.index(name) + 2]
                for value in NUMBERS:
                    if option == "mc" and value.startswith("1e"):
                        continue
                    is_right_or_a_sentence([*words, f"{name}={value}"])

    refused("a kernel that is flat", 2, "constant to the last digit", "variance", "--scale", "1e-320")
    refused("a loss without a norm", 2, "value at collapse", "variance", "--scale", "1e-17")
    for name in ("x.npy", "s.npy"):
        os.remove(name)


# ---- p-values, the plot, plurals, remarks --------------------------------------------------------


def test_results():
    @case("p-values: a cross-polytope, whose lower tail is 0, says p < 1e-300")
    def _():
        d = 16
        save("cross.npy", [axis(k, d, sign) for k in range(d) for sign in (1.0, -1.0)])
        done = run("test", "cross.npy")
        os.remove("cross.npy")
        assert "p < 1e-300 on the" in " ".join(done.stdout.split()), done.stdout
        assert "inf" not in done.stdout and "nan" not in done.stdout, done.stdout

    @case("variance: the plot draws the column that it names")
    def _():
        few = ["--dim", 8, "--batch", 8, "--slices", "2,64", "--replicates", 40, "--quiet"]
        done = run("variance", *few, "--csv", "--plot", "v.svg")
        assert done.returncode == 0, done.stderr
        lines = [line.split(",") for line in done.stdout.split()]
        total = [float(line[lines[0].index("total")]) for line in lines[1:]]
        exact = float(lines[1][lines[0].index("exact")])
        with open("v.svg") as file:
            svg = file.read()
        os.remove("v.svg")
        assert "total variance" in svg and "Projection" not in svg
        curves = re.findall(r' d="(M[^"]*)"', svg)
        heights = [[float(y) for y in re.findall(r"[ML][-\d.]+[ ,]([-\d.]+)", c)] for c in curves]
        heights = [h for h in heights if len(h) == 2]
        assert len(heights) == 2, curves
        drop = heights[0][1] - heights[0][0]  # of the dashed curve, in pixels
        above = heights[1][1] - heights[0][1]  # of its end over the solid one
        wanted = math.log(total[0] / total[1]) / math.log(total[1] / exact)
        assert abs(drop / above - wanted) < 0.02 * abs(wanted), (drop, above, wanted)

    @case("plurals: one row, one slice")
    def _():
        done = run("sample", "uniform", "--n", 1, "--dim", 2, "--out", "s.npy")
        assert "1 row of 2" in done.stdout, done.stdout
        save("x.npy", ROWS)
        done = run("loss", "x.npy", "--method", "susreg", "--slices", 1, "--quiet")
        assert "1 slice," in done.stdout, done.stdout
        os.remove("s.npy")
        os.remove("x.npy")

    if textures("set/a", count=6) and textures("set/b", "wood", 6):

        @case("remarks: once, although a source is opened for each of its parts")
        def _():
            shutil.copy("set/a/" + os.listdir("set/a")[0], "set/loose.png")
            done = run("data", "pack", "set", "--split", "train,val,test", "--out", "p.zpk")
            os.remove("p.zpk")
            remark = "set: 1 image in no class's folder is not used"
            assert done.stderr.count(remark) == 1, done.stderr

        @case("plurals: one image")
        def _():
            os.mkdir("one")
            shutil.copy("set/loose.png", "one")
            assert re.search(r"\b1 image\b", run("data", "info", "one").stdout)
            shutil.rmtree("one")

    shutil.rmtree("set", ignore_errors=True)


# ---- metrics -------------------------------------------------------------------------------------

LINES = [
    {"kind": "checkpoint", "step": 0, "score": None, "best": False},
    {"kind": "step", "step": 5, "epoch": 0.5, "loss": 0.25, "seconds": 1.5},
    {"kind": "monitor", "step": 5, "mean_cosine": 0.125, "rho": None},
    {"kind": "eval", "step": 5, "protocol": "retrieval", "features": "projector", "r1": 0.75},
    {"kind": "step", "step": 10, "epoch": 1, "loss": 0.1, "seconds": 3},
    {"kind": "eval", "step": 10, "protocol": "retrieval", "features": "projector", "r1": 0.5},
]


def test_metrics():
    os.mkdir("run")
    with open("run/metrics.jsonl", "w") as file:
        for line in LINES:
            file.write(json.dumps(line) + "\n")

    @case("metrics: CSV has a row for each step and all columns")
    def _():
        lines = run("metrics", "run", "--csv").stdout.split("\n")
        assert lines[0] == "step,epoch,loss,seconds,mean_cosine,rho,retrieval_r1", lines
        assert lines[1] == "5,0.5,0.25,1.5,0.125,,0.75" and lines[3] == "", lines
        assert lines[2].split(",")[0] == "10" and float(lines[2].split(",")[2]) == 0.1, lines
        assert lines[2].endswith(",,,0.5"), lines

    @case("metrics: JSON, and one kind alone")
    def _():
        rows = json.loads(run("metrics", "run", "--json").stdout)
        assert rows[0] == {"step": 5, "epoch": 0.5, "loss": 0.25, "seconds": 1.5} | {
            "mean_cosine": 0.125,
            "retrieval_r1": 0.75,
        }
        rows = json.loads(run("metrics", "run", "--json", "--kind", "eval").stdout)
        assert rows == [{"step": 5, "retrieval_r1": 0.75}, {"step": 10, "retrieval_r1": 0.5}]
        assert json.loads(run("metrics", "run", "--json", "--kind", "monitor").stdout)[0]["step"] == 5

    @case("metrics: what two kinds of lines have at one step is in its row once")
    def _():
        os.mkdir("probed")
        with open("probed/metrics.jsonl", "w") as file:
            for line in LINES[1], LINES[1] | {"kind": "probe", "protocol": "probe", "accuracy": 0.5}:
                file.write(json.dumps(line) + "\n")
        pairs = []
        json.loads(run("metrics", "probed", "--json").stdout, object_pairs_hook=pairs.extend)
        names = [name for name, _ in pairs]
        assert "epoch" in names and len(names) == len(set(names)), pairs
        shutil.rmtree("probed")

    @case("metrics: the summary has the last values and the best")
    def _():
        text = run("metrics", "run").stdout
        assert re.search(r"loss +0\.1 +10\n", text), text
        assert re.search(r"retrieval_r1 +0\.5 +10  best 0\.75 at step 5\n", text), text
        assert not too_wide(text)

    @case("metrics: damaged lines are left out and counted, once; half a line is not there yet")
    def _():
        with open("run/metrics.jsonl", "a") as file:
            file.write('{"kind": "step"}\nnonsense\n{"kind": "step", "step": 11, "lo')
        done = run("metrics", "run", "--csv")
        assert done.returncode == 0 and len(done.stdout.split()) == 3, done
        assert done.stderr.count("\n") == 1 and "2 lines" in done.stderr, done.stderr

    @case("metrics: a run that has not begun")
    def _():
        open("run/metrics.jsonl", "w").close()
        assert "nothing is measured yet" in run("metrics", "run").stdout
        assert json.loads(run("metrics", "run", "--json").stdout) == []

    shutil.rmtree("run")
    refused("metrics of nothing", 1, "zonal train has made", "metrics", "none")
    refused("two formats", 2, "cannot be combined", "metrics", "none", "--csv", "--json")


# ---- wrong uses ----------------------------------------------------------------------------------


def test_wrong_uses():
    save("x.npy", ROWS)
    os.mkdir("folder")
    for name in ("empty.npy", "empty.zpk", "empty.safetensors"):
        open(name, "w").close()
    with open("garbage.npy", "w") as file:
        file.write("garbage")
    uses = [
        (2, "did you mean loss?", "losss"),
        (2, "options follow the command", "--jsn"),
        (2, "did you mean --method?", "loss", "x.npy", "--metod", "mmd-heat"),
        (2, "did you mean", "loss", "x.npy", "--method", "mmd-haet"),
        (2, "--method needs a value", "loss", "x.npy", "--method"),
        (2, "--method is required", "loss", "x.npy"),
        (2, "X.npy is missing", "loss", "--method", "mmd-heat"),
        (2, "the name of X.npy is empty", "loss", "", "--method", "mmd-heat"),
        (2, "nothing more", "loss", "x.npy", "y.npy", "--method", "mmd-heat"),
        (2, "must be a whole number", "loss", "x.npy", "--method", "mmd-band", "--band", "2.5"),
        (2, "is given twice", "loss", "x.npy", "--method", "kl-heat", "--method", "kl-heat"),
        (2, "takes no value", "loss", "x.npy", "--method", "mmd-heat", "--json=yes"),
        (2, "such as 5/d", "loss", "x.npy", "--method", "mmd-heat", "--t", "warm"),
        (1, "check the name", "loss", "none.npy", "--method", "mmd-heat"),
        (1, "it is a folder", "loss", "folder", "--method", "mmd-heat"),
        (1, "write it again", "loss", "empty.npy", "--method", "mmd-heat"),
        (1, "numpy.save", "loss", "garbage.npy", "--method", "mmd-heat"),
        (1, "does its folder exist?", "loss", "x.npy", "--method", "mmd-heat", "--grad", "no/g.npy"),
        (2, "between 0 and", "test", "x.npy", "--mc", "-1"),
        (2, "did you mean --pair-limit?", "test", "x.npy", "--pairlimit", "9"),
        (2, "did you mean heat?", "kernel", "--kernel", "heatt"),
        (2, "takes no argument", "kernel", "heat"),
        (2, "end in .svg", "kernel", "--plot", "k.png"),
        (2, "end in .svg", "variance", "--plot", "v.pdf"),
        (2, "end in .png", "data", "textures", "--family", "disk", "--sheet", "t.jpg"),
        (2, "--spectrum W0,W1", "kernel", "--kernel", "spectrum"),
        (2, "ascending", "variance", "--slices", "5,4"),
        (2, "did you mean uniform?", "sample", "unifrom", "--out", "s.npy"),
        (2, "--out is required", "sample", "uniform"),
        (2, "leave it out", "sample", "uniform", "--rank", "3", "--out", "s.npy"),
        (2, "did you mean info?", "data", "inf", "x"),
        (1, "textures:FAMILY", "data", "info", "none"),
        (1, "put .jpg", "data", "info", "folder"),
        (1, "not a source of images", "data", "info", "empty.zpk"),
        (2, "did you mean disk?", "data", "info", "textures:disks"),
        (2, "did you mean center?", "data", "pack", "folder", "--fit", "centr", "--out", "p.zpk"),
        (2, "--fit center", "data", "pack", "folder", "--side", "8", "--out", "p.zpk"),
        (2, "say where", "data", "textures", "--family", "disk"),
        (2, "RUN|WEIGHTS is missing", "embed", "--out", "e.npy"),
        (1, "check the name", "embed", "none", "--out", "e.npy"),
        (1, "is not a run", "embed", "folder", "--out", "e.npy"),
        (1, "no safetensors file", "embed", "empty.safetensors", "--out", "e.npy"),
        (1, "not a safetensors file", "export", "x.npy", "--out", "e.safetensors"),
        (2, "--out is required", "export", "folder"),
        (1, "is not a run", "report", "folder"),
        (1, "is not a run", "metrics", "x.npy"),
        (2, "did you mean --csv?", "metrics", "folder", "--cvs"),
        (2, "did you mean figure-kernels?", "reproduce", "figure-kernel"),
        (1, "make the folder that it lies in first", "reproduce", "figure-kernels", "--out", "a/b"),
        (2, "did you mean loss?", "bench", "los"),
        (2, "from 2 to", "bench", "loss", "--batch", "0"),
        (2, "write resnet18@64", "bench", "train", "--rows", "resnet18"),
    ]
    if textures("probe"):
        uses.append((1, "a file has that name", "data", "textures", "--family", "disk", "--out", "x.npy"))
    shutil.rmtree("probe", ignore_errors=True)
    for status, text, *words in uses:
        refused(" ".join(words), status, text, *words)
    if os.geteuid() != 0:
        os.chmod("x.npy", 0)
        refused("a file that may not be read", 1, "chmod", "test", "x.npy")
    shutil.rmtree("folder")
    for name in os.listdir():
        os.remove(name)


run_tests(test_width, test_documents, test_names, test_numbers, test_results, test_metrics, test_wrong_uses)
