#!/usr/bin/env python3
"""The tables of the documents, made anew from the records in results/, and figures.

    scripts/tables.py            rewrites every block that ends with <!-- end -->, and the figures
    scripts/tables.py --check    changes nothing; status 1 where a document and the records disagree

A block begins with <!-- table: NAME -->, a function below, or with <!-- zonal ARGUMENTS -->: what the program
(ZONAL_PROGRAM; build/zonal unless set) prints, run in the root of the sources.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from run_record import NO_SETTINGS

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", *sorted(p.relative_to(ROOT).as_posix()
                                  for folder in ("docs", "results")
                                  for p in (ROOT / folder).glob("*.md"))]
BLOCK = re.compile(r"<!-- (table: [^ ]+|zonal [^\n]+) -->\n(.*?)<!-- end -->", re.DOTALL)
PROGRAM = os.path.abspath(os.environ.get("ZONAL_PROGRAM", ROOT / "build/zonal"))


def records(name):
    """The lines of a file, each with the place where it stands."""
    with open(ROOT / "results" / name, encoding="utf-8") as file:
        return [{"where": f"results/{name}:{number}", **json.loads(line)}
                for number, line in enumerate(file, 1)]


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# ---- means ---------------------------------------------------------------------------------------

# What may differ between runs of one mean: the seed, what was found, and as in src/reproduce/records.h
# what made them. Of "step" and "eval" some members are settings.
FREE = {"where", "seed", "escape", "step", "monitor", "eval", "metrics", "curve", "projector", "backbone",
        "seconds", "at_once", "train_seconds", "wall", "device", "version", "commit", "date"}
OF_PARTS = {"step": ("step", "epoch"), "eval": ("protocol", "features")}


def settings(run):
    parts = {f"{part}.{name}": run[part][name] for part, names in OF_PARTS.items()
             for name in names if name in run.get(part, ())}
    return parts | {key: value for key, value in run.items() if key not in FREE}


def difference(x, y):
    """The first setting that both have and that differs, for a sentence. An option that one of two
    configurations leaves out has its default there."""
    for key in x:
        if x[key] == y.get(key, x[key]):
            continue
        if isinstance(x[key], dict):
            key, x, y = next((name, x[key], y[key]) for name in x[key] | y[key]
                             if x[key].get(name) != y[key].get(name))
        return f"{key} ({x.get(key)} and {y.get(key)})"
    return None


def sample(runs):
    """The runs of one cell by their seeds. A mean over them is one over seeds alone: what two records both
    tell must be equal (older ones tell less), and no seed may be there twice."""
    runs = sorted(runs, key=lambda run: run["seed"])
    for i, b in enumerate(runs):
        for a in runs[:i]:
            both = f"{a['where']} and {b['where']}"
            if a["seed"] == b["seed"]:
                sys.exit(f"{both} have the same seed, {a['seed']}: no mean is taken of them")
            more = difference(settings(a), settings(b))
            if more:
                sys.exit(f"{both} differ in more than the seed, in {more}: no mean is taken of them")
    return runs


def samples(runs, key):
    """By what key makes of a run, in the order of the first of each."""
    found = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return {name: sample(of) for name, of in found.items()}


def mean(values):
    return sum(values) / len(values)


def spread(values, places=1):
    """The mean, and the sample standard deviation where there are several."""
    if len(values) == 1:
        return f"{values[0]:.{places}f}"
    std = (sum((v - mean(values)) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return f"{mean(values):.{places}f} ± {std:.{places}f}"


# ---- selectivity ---------------------------------------------------------------------------------


def score(run):
    """R@1 or k-NN accuracy, in percent."""
    result = run["eval"]
    return 100 * (result["r1"] if result["protocol"] == "retrieval" else result["accuracy"])


def rank(run):
    return run["monitor"]["effective_rank"]


def spread_of(of, places):
    return lambda runs: spread([of(run) for run in runs], places)


def escapes(runs):
    return ", ".join("never" if run["escape"] is None else str(run["escape"]) for run in runs)


COLUMNS = {"score": spread_of(score, 1), "escape": escapes, "rank": spread_of(rank, 0)}


def selectivity(data, column):
    """One row a method, one column a value of S, from the short runs."""
    runs = [run for run in records("selectivity-short.jsonl") if run["data"] == data]
    found = samples(runs, lambda run: (run["method"], run["selectivity"]))
    scores = {cell: mean([score(run) for run in of]) for cell, of in found.items()}
    values = sorted({value for _, value in found})
    best = {method: max(score for (of, _), score in scores.items() if of == method) for method, _ in scores}
    rows = []
    for method in sorted(best, key=best.get, reverse=True):
        cells = [COLUMNS[column](found[method, value]) for value in values]
        if column == "score":
            cells = [f"**{cell}**" if scores[method, value] == best[method] else cell
                     for cell, value in zip(cells, values)]
        rows.append([f"`{method}`", *cells])
    return markdown(["S", *(f"{value:g}" for value in values)], rows)


def with_degrees(b1=.03, b3=0, b4=0, **more):
    """The kernel with these shares of degrees against degree 2, as scripts/selectivity_runs.sh has it."""
    shares = [0, b1, 1, b3, b4]
    while shares[-1] == 0:
        shares.pop()
    text = "mmd-spectrum:without-multiplicity=yes:spectrum=" + ",".join(f"{share:g}" for share in shares)
    return text + "".join(f":{key}={value}" for key, value in more.items())


def plateau(head, rows):
    """A row is its cells, S and its method. Over seeds: steps, and means."""
    lines = []
    for cells, value, method in rows:
        found = sample(run for run in records("plateau.jsonl")
                       if run["method"] == method and run["selectivity"] == value)
        lines.append([*cells, *(COLUMNS[column](found) for column in ("escape", "rank", "score"))])
    return markdown([*head, "rho > 0.2 at step", "rank", "R@1"], lines)


def plateau_degrees(*runs):
    rows = [([*cells, *(f"{degrees.get(name, usual):g}" for name, usual in (("b1", .03), ("b3", 0), ("b4", 0)))],
             value, with_degrees(**degrees)) for cells, value, degrees in runs]
    return plateau([*(["S"] if runs[0][0] else []), "degree 1", "degree 3", "degree 4"], rows)


def shares(method):
    """Degrees 1, 3 and 4 against degree 2 in the profile of a loss, at d = 64."""
    discrepancy, family = method.split("-")
    kernel = json.loads(made_by_program(["kernel", "--kernel", family, "--dim", "64", "--json"]))
    a = [line["a"] * (line["eigenvalue"] if discrepancy == "ksd" else 1) for line in kernel["spectrum"]]
    return [f"{a[degree] / a[2]:.2f}" if degree < len(a) else "0" for degree in (1, 3, 4)]


def plateau_kernels():
    methods = ["mmd-band", "ksd-heat", "mmd-heat", "mmd-induced"]
    return plateau(["", "degree 1", "degree 3", "degree 4"],
                   [([f"`{method}`", *shares(method)], 10, method) for method in methods])


def plateau_batch():
    kernels = [("degree 1, 0.03 times", {}, (32, 128, 512)), ("degree 1, 3 times", dict(b1=3), (32, 128, 512)),
               ("degree 1, 10 times", dict(b1=10), (32, 128, 512)),
               ("degree 3, once", dict(b3=1), (128, 512)), ("degree 3, 3 times", dict(b3=3), (128, 512)),
               ("degree 4, 3 times", dict(b4=3), (128, 512))]
    return plateau(["beside degree 2", "batch"],
                   [([name, str(batch)], 5,
                     with_degrees(**degrees, **({} if batch == 128 else dict(batch=batch))))
                    for name, degrees, batches in kernels for batch in batches])


def plateau_slices():
    rows = [([f"`susreg`, {n} directions"], 10, f"susreg:slices={n}") for n in (16, 64, 256, 1024, 4096)]
    return plateau([""], [*rows, (["`mmd-induced`, exact"], 10, "mmd-induced")])


def falling(methods, befores, values):
    """A row for each loss and S of the run before, a column for each S."""
    def cell(method, before, value, column):
        name = method if before is None else f"{method}:first={before}"
        found = sample(run for run in records("selectivity-falling.jsonl")
                       if run["method"] == name and run["selectivity"] == value)
        return COLUMNS[column](found) if found else ""

    rows = [[f"`{method}`", "" if before is None else str(before),
             *(cell(method, before, value, column) for column in ("score", "rank") for value in values)]
            for method in methods for before in befores]
    rows = [row for row in rows if any(row[2:])]
    return markdown(["loss", "S before", *(f"{name}, S = {value}" for name in ("R@1", "rank") for value in values)],
                    rows)


def probed(protocol):
    return lambda run: 100 * run["backbone"][protocol]


def temperature_of(run):
    return run["t"] or run["method"].partition("t=")[2]


def kl_temperature(data, of, projector="256-256-64", epochs=30):
    """A row for each temperature, a column for each S; long runs on hard views are those of a falling S, too."""
    runs = records("kl-temperature.jsonl")
    runs += [run for run in records("selectivity-falling.jsonl") if ":first=" not in run["method"]
             and run["method"].startswith("kl-heat") and run["step"]["step"] == 2400]
    here = [run for run in runs if run["data"] == data and (data != "imagenette-32px" or
            (run["configuration"]["projector"], run["step"]["epoch"]) == (projector, epochs))]
    found = samples(here, lambda run: (temperature_of(run), run["selectivity"]))
    values = sorted({value for _, value in found})
    rows = [[t, *(spread([of(run) for run in found[t, value]]) if (t, value) in found else "" for value in values)]
            for t in sorted({t for t, _ in found}, key=lambda t: float(t.partition("/")[0]))]
    return markdown(["t", *(f"S = {value:g}" for value in values)], rows)


def dimensions(data, of):
    """A row for each dimension of the embedding, a column for each S d/256."""
    runs = [run for run in records("dimension.jsonl") if (run["data"], run["method"]) == data]

    def dim(run):
        return int(run["configuration"]["projector"].rsplit("-", 1)[-1])

    found = samples(runs, lambda run: (dim(run), run["selectivity"] * 256 / dim(run)))
    values = sorted({value for _, value in found})
    rows = [[str(d), *(of(found[d, value]) if (d, value) in found else "" for value in values)]
            for d in sorted({d for d, _ in found})]
    return markdown(["d", *(f"S = {value:g} d/256" for value in values)], rows)


LONG = {  # a row, and its runs in results/runs/disks
    "`kl-heat`, 3/d, S = 10": ["kl-heat-3d-S10-0"],
    "`kl-heat`, 2/d, margin 1.15 (S = 5.3)": ["kl-heat-0", "kl-heat-1"],
    "`mmd-heat`, S = 10": ["mmd-heat-S10-0"],
    "`mmd-heat`, gain 256 (S = 14)": ["mmd-heat-0", "mmd-heat-1"],
    "`mmd-band`, S = 10": ["mmd-band-S10-0"],
    "`ksd-band`, gain 256 (S = 4.7)": ["ksd-band-0"],
}


def disks(name):
    """A run: its settings, and the results of each kind of features."""
    import tomllib  # of Python 3.11
    folder = ROOT / "results/runs/disks" / name
    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    seed = config["seed"]
    config = {key: value for key, value in config.items() if key not in NO_SETTINGS - {"data"}}
    results = json.loads((folder / "eval/retrieval.json").read_text(encoding="utf-8"))["results"]
    return {"where": f"results/runs/disks/{name}", "seed": seed, "configuration": config,
            "metrics": {result["features"]: result for result in results}}


def retrieved(names, columns, places):
    """Percent, over seeds."""
    runs = sample(map(disks, names))
    return [spread([100 * run["metrics"][features][member] for run in runs], places) for features, member in columns]


def selectivity_long():
    """R@1 and mAP of projector and backbone, mean and sample standard deviation over seeds."""
    columns = [("projector", "r1"), ("projector", "map"), ("backbone", "r1"), ("backbone", "map")]
    rows = [[name, *retrieved(runs, columns, 1)] for name, runs in LONG.items()]
    return markdown(["loss", "R@1", "mAP", "R@1, backbone", "mAP, backbone"], rows)


# ---- textures and Imagenette at the default gain -------------------------------------------------

DISKS = {  # a row, its gain, and its runs in results/runs/disks
    "`kl-heat`, seeds 0, 1": ("auto (7.0)", ["kl-heat-0", "kl-heat-1"]),
    "`ksd-band`": ("batch (256)", ["ksd-band-0"]),
    "`mmd-heat`, seeds 0, 1": ("batch (256)", ["mmd-heat-0", "mmd-heat-1"]),
    "`susreg`": ("256, best of 64, 256, 1000", ["susreg-0"]),
}


def textures_disks():
    columns = [("projector", "r1"), ("projector", "r3"), ("projector", "r5"), ("projector", "map"),
               ("backbone", "r1"), ("backbone", "map")]
    rows = [[name, gain, *retrieved(runs, columns, 2)] for name, (gain, runs) in DISKS.items()]
    return markdown(["loss", "gain", "R@1", "R@3", "R@5", "mAP", "R@1, backbone", "mAP, backbone"],
                    rows)


def accuracy(run, protocol, features):
    path = ROOT / "results/runs/imagenette" / run / "eval" / f"{protocol}.json"
    with open(path, encoding="utf-8") as file:
        found = next(r for r in json.load(file)["results"] if r["features"] == features)
    return f"{100 * found['accuracy']:.2f}"


def textures_imagenette():
    rows = [[f"`{run}`", accuracy(run, "knn", "backbone"), accuracy(run, "knn", "projector"),
             accuracy(run, "linear", "backbone")] for run in ("mmd-band", "susreg")]
    return markdown(["loss", "k-NN, backbone", "k-NN, projector", "linear probe, backbone"], rows)


# ---- the demo ------------------------------------------------------------------------------------

# Mean and deviation are as zonal eval printed them: of more digits than the seeds' values here.


def demo_lines():
    return [line for line in records("demo.jsonl") if "gain" not in line]


def demo():
    rows = [[f"`{line['method']}`", *(f"{value:.1f}" for value in (*line["r1"], line["mean"], line["std"]))]
            for line in demo_lines()]
    return markdown(["method", "seed 0", "seed 1", "seed 2", "mean", "sample standard deviation"],
                    rows)


def demo_gains():
    line = next(line for line in records("demo.jsonl") if "gain" in line)
    return markdown(["gain", *map(str, line["gain"])],
                    [["R@1", *(f"{value:.1f}" for value in line["r1"])]])


def readme_demo():
    lines = demo_lines()
    best = max(lines, key=lambda line: line["mean"])
    cells = [f"{line['mean']:.1f} ± {line['std']:.1f}" for line in lines]
    cells = [f"**{cell}**" if line is best else cell for line, cell in zip(lines, cells)]
    return markdown(["", "chance", *(f"`{line['method']}`" for line in lines)],
                    [["R@1, percent", "0.5", *cells]])


# ---- times ---------------------------------------------------------------------------------------


def digits(value, count=3):
    """With so many significant digits, and no exponent: 126, 2.96, 0.0155."""
    return f"{value:.0f}" if value >= 10 ** (count - 1) else f"{value:#.{count}g}".rstrip(".")


STEPS = {
    "resnet18@32": "ResNet-18, 32 px",
    "resnet18@64": "ResNet-18, 64 px",
    "resnet18@128/1": "ResNet-18, 128 px, grey",
    "resnet18@224": "ResNet-18, 224 px",
    "resnet50@224": "ResNet-50, 224 px",
    "resnet18@32/small": "ResNet-18, 32 px, CIFAR's stem",
    "resnet18@64/small": "ResNet-18, 64 px, CIFAR's stem",
}


def readme_steps():
    compared = {line["row"]: line for line in records("training-h200.jsonl") if "torch" in line}
    rows = [[name, digits(compared[row]["ms"]), digits(compared[row]["torch"]["ms"]),
             f"{compared[row]['torch']['ms'] / compared[row]['ms']:.2f}"]
            for row, name in STEPS.items()]
    return markdown(["", "zonal", "PyTorch, compiled, in one CUDA graph", "ratio"], rows)


def fold_runs():
    """Ends of runs of ResNet-50 with norms folded and not, by seed."""
    runs = [run for run in records("whole-runs-h200.jsonl") if run["run"] == "fold"]
    rows = []
    for fold, name in ((True, "folded"), (False, "`--no-fold-norms`")):
        of = sample(run for run in runs if run["fold_norms"] == fold)
        rows.append([name, ", ".join(f"{100 * run['eval']['r1']:.1f}" for run in of),
                     ", ".join(f"{run['step']['loss']:.3f}" for run in of),
                     ", ".join(f"{rank(run):.0f}" for run in of)])
    return markdown(["", "R@1, seeds 0, 1", "loss at the end", "effective rank"], rows)


def cpu_times():
    """Ours and PyTorch's by method and batch, from the first output that results/losses-cpu.md shows."""
    text = (ROOT / "results/losses-cpu.md").read_text(encoding="utf-8")
    block = text[text.index("zonal ms   PyTorch ms"):]
    found = {}
    for line in block[:block.index("```")].splitlines()[1:]:
        method, batch, ours, theirs, _ = line.split()
        found[method, int(batch)] = float(ours), float(theirs)
    return found


def torch_times(method, batch):
    """PyTorch's eager and compiled: beside the bare loss, or else beside the module."""
    for line in records("losses-h200.jsonl"):
        if line.get("method") == method and line.get("n") == batch and "torch" in line:
            return line["torch"]["ms"], line["torch"]["compile_ms"]
    line = python_lines()[method, batch]
    return line["torch_ms"], line["torch_compiled_ms"]


def readme_losses():
    lines = records("losses-h200.jsonl")
    cpu, rows = cpu_times(), []
    for method in ("mmd-heat", "mmd-band", "kl-heat", "susreg"):
        own = {line["n"]: line["ms"] for line in lines
               if line.get("method") == method and line.get("precision") == "fp32"}
        eager, compiled = torch_times(method, 16384)
        there = f"{digits(eager)} / {digits(compiled)}" if eager and compiled else "out of memory"
        ours, theirs = cpu[method, 1024]
        rows.append([f"`{method}`", digits(ours, 2),
                     digits(theirs) + (" (float64)" if method == "kl-heat" else ""),
                     digits(own[256]), digits(own[16384]), there])
    return markdown(["", "2 CPU cores, B = 1024", "PyTorch there", "H200, B = 256",
                     "H200, B = 16384", "PyTorch there, eager / compiled"], rows)


# ---- the losses from Python ----------------------------------------------------------------------

MODULES = {"mmd-heat": "MMD()", "mmd-band": 'MMD("band")', "kl-heat": "KL()", "susreg": "SUSReg()"}


def python_calls():
    """Microseconds of one call at B = 256."""
    calls = {line["method"]: line for line in records("python-h200.jsonl") if line["part"] == "overhead"}
    columns = ["bare_us", "module_us", "idle_us", "bare_graph_us", "module_graph_us"]
    rows = [[f"`{name}`", *(digits(calls[method][column]) for column in columns)]
            for method, name in MODULES.items()]
    return markdown(["", "bare", "module", "idle", "bare, in a graph", "module, in a graph"], rows)


def python_lines():
    """By method and batch; of several lines the last that has a form counts."""
    found = {}
    for line in records("python-h200.jsonl"):
        if line["part"] == "table":
            found.setdefault((line["method"], line["B"]), {}).update(line)
    return found


def python_batches():
    """Milliseconds and MiB."""
    found, rows = python_lines(), []
    for method in MODULES:
        for batch in sorted(batch for of, batch in found if of == method):
            line = found[method, batch]
            cells = []
            for form in ("zonal", "torch", "torch_compiled"):
                ms, mib = (line.get(f"{form}_{unit}", "-") for unit in ("ms", "mib"))
                cells += ["-", "-"] if ms == "-" else ["out of memory", ""] if ms is None else [
                    digits(ms), f"{mib:,.0f}"]
            rows.append([f"`{method}`", f"{batch:,}", *cells])
    return markdown(["", "B", "zonal", "MiB", "eager", "MiB", "compiled", "MiB"], rows)


def python_step():
    """A compiled step by the loss that it has."""
    line = next(line for line in records("python-h200.jsonl") if line["part"] == "resnet")
    names = {"zonal": "zonal", "torch": "plain PyTorch", "no_loss": "a mean of squares"}
    rows = [[name, digits(line[form + "_ms"]), digits(line[form + "_graph_ms"], 4)]
            for form, name in names.items()]
    return markdown(["loss", "launched, ms", "from a CUDA graph, ms"], rows)


def python_example():
    lines = records("python-example.jsonl")
    return markdown(["", *(line["method"] for line in lines)],
                    [["k-NN, percent of 2,000", *(f"{line['knn_percent']:.1f}" for line in lines)]])


# ---- many ranks, predicted ------------------------------------------------------------------------


MODELLED = ["mmd-heat", "kl-heat", "mmd-band", "susreg"]


def modelled(*arguments):
    """What zonal bench dist --model makes of one H200's times of losses and of a ResNet-50 step."""
    times = sorted((line["method"], line["n"], line["ms"]) for line in records("losses-h200-ranks.jsonl"))
    step = next(line["ms"] for line in records("training-h200.jsonl") if line["row"] == "resnet50@224")
    return made_by_program([
        "bench", "dist", "--model", *arguments, "--method", ",".join(MODELLED), "--dim", "256",
        "--rows", "64,256,1024", "--step-ms", f"{step}",
        "--times", ",".join(f"{method}:{n}:{ms}" for method, n, ms in times)]).splitlines()


def ranks_model():
    found = {(line["method"], line["rows"], line["ranks"]): line for line in map(json.loads, modelled("--json"))}
    methods = ["mmd-heat", "kl-heat", "mmd-band"]
    rows = []
    for count, ranks in dict.fromkeys((count, ranks) for _, count, ranks in found):
        cells = []
        for method in methods:
            line = found[method, count, ranks]
            cells += [digits(line["model_ms"]) + (" (hidden)" if line["hidden"] else ""),
                      digits(100 * line["share"]) + " %"]
        rows.append([f"{count}", f"{ranks}", f"{count * ranks:,}", *cells])
    return markdown(["rows of a rank", "ranks", "B",
                     *(cell for method in methods for cell in (f"{method}, ms", "of a step"))], rows)


def ranks_limits():
    """From how many rows a rank the exchange is hidden between machines, and the largest batches."""
    text = "\n".join(modelled())
    rows = []
    for method in MODELLED:
        hidden = re.search(rf"^{method} +the ring .*, from (\d+) rows a rank between", text, re.MULTILINE)
        largest = re.findall(rf"^{method} .* (\d+) rows a rank: under 5 % .* B = (\d+), on (\d+) ranks", text,
                             re.MULTILINE)
        batches = {int(count): f"{int(batch):,} ({ranks})" for count, batch, ranks in largest}
        rows.append([f"`{method}`", hidden[1] if hidden else "", batches[256], batches[1024]])
    return markdown(["", "exchange hidden between machines from", "largest B, 256 rows a rank (ranks)",
                     "largest B, 1024 rows a rank (ranks)"], rows)


# ---- temperature ---------------------------------------------------------------------------------


def temperature_rank():
    """The effective rank at the end of each loss at each temperature, over seeds."""
    found = samples(records("table-temperature.jsonl"), lambda run: tuple(run["method"].split(":t=")))
    names, temperatures = (list(dict.fromkeys(part)) for part in zip(*found))
    cell = spread_of(lambda run: run["metrics"]["effective_rank"], 1)
    rows = [[f"`{name}`", *(cell(found[name, t]) for t in temperatures)] for name in names]
    return markdown(["effective rank", *temperatures], rows)


# ---- batch norms in the projector ----------------------------------------------------------------


def projector_norm(data, columns):
    """Rows with and without norms; mean and sample standard deviation over seeds, in percent."""
    found = samples((line for line in records("projector-norm.jsonl") if line["data"] == data),
                    lambda line: (line["method"], line["projector_norm"]))
    rows = [[f"`{method}`", "yes" if norm else "no",
             *(spread([100 * line[part][name] for line in lines]) for part, name, _ in columns)]
            for (method, norm), lines in found.items()]
    return markdown(["loss", "norms", *(title for *_, title in columns)], rows)


AT_THE_END = [("loss", 1, 3, "training loss"), ("effective_rank", 1, 0, "rank")]


def projector_norm_h200(experiment, columns):
    """The runs without norms at full size, each below those of the experiment's table with them."""
    without = [line for line in records("projector-norm-h200.jsonl") if line["experiment"] == experiment]
    rows = []
    for line in without:
        pair = [other for other in records(f"{experiment}.jsonl")
                if all(other[key] == line[key] for key in ("method", "data", "seed", "images"))]
        assert len(pair) == 1 and pair[0]["decided"]["gain"] == line["decided"]["gain"], line["method"]
        for norms, run in (("yes", pair[0]), ("no", line)):
            cells = [f"{factor * run['metrics'][key]:.{places}f}" for key, factor, places, _ in columns]
            rows.append([f"`{run['method']}`", norms, *cells])
    return markdown(["loss", "norms", *(title for *_, title in columns)], rows)


# ---- CIFAR-10 and Imagenette ---------------------------------------------------------------------


def searched(file):
    """A row for each variant and view of the images it was evaluated on."""
    rows = []
    for run in records(file):
        for view in dict.fromkeys(result["view"] for result in run["eval"]):
            found = {(r["protocol"], r.get("k"), r.get("temperature")): f"{100 * r['accuracy']:.1f}"
                     for r in run["eval"] if r["view"] == view}
            many = found.get(("knn", 200, 0.1)) or found.get(("lightly-knn", 200, 0.1), "")
            options = f"`{run['options']}`" if run["options"] else ""
            rows.append([run["run"], options, f"{run.get('wall', run['step']['seconds']):.0f}",
                         f"{rank(run):.0f}", view, found.get(("knn", 20, 0.07), ""),
                         many, next((v for (name, *_), v in found.items() if name == "linear"), "")])
    return markdown(["", "options", "s", "rank", "evaluated at", "k-NN 20", "k-NN 200", "linear"], rows)


PUBLISHED = [  # name, epochs, views, k-NN with k = 200, linear by a probe that is trained along
    # lightly, docs/source/getting_started/benchmarks.rst: the better of two batch sizes, the best epoch
    ("BYOL, lightly", 200, "2", "86.9", ""),
    ("SimCLR, lightly", 200, "2", "84.8", ""),
    ("MoCo, lightly", 200, "2", "84.7", ""),
    ("Barlow Twins, lightly", 200, "2", "84.2", ""),
    ("FastSiam, lightly", 200, "more", "90.6", ""),
    # solo-learn, README.md
    ("SimCLR, solo-learn", 1000, "2", "", "90.7"),
    ("VICReg, solo-learn", 1000, "2", "", "92.1"),
    ("BYOL, solo-learn", 1000, "2", "", "92.6"),
    ("MoCo v3, solo-learn", 1000, "2", "", "93.1"),
]
FAST = {"--method": "mmd-band", "--views": "4"}  # recipes/cifar10-fast.toml, which the options are beside
IN_WORDS = {"--view-saturation": "stronger colours", "--view-hue": "stronger colours",
            "--view-solarise": "solarising"}


def given(run):
    """The options of a command line: "--views 2", "--views=2" and "--fold-norms", whose value is then ""."""
    options, name = {}, None
    for word in shlex.split(run["options"]):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            options[name] = value
        elif name and not options[name]:
            options[name] = word
        else:
            sys.exit(f"{run['where']}: \"{word}\" belongs to no option")
    return options


def cifar10_published():
    """Whole images of the test set, over seeds."""
    runs = []
    for run in records("cifar10-test.jsonl"):
        options = FAST | given(run)
        found = {r["protocol"]: 100 * r["accuracy"] for r in run["eval"] if "whole" in r["view"]}
        if found:
            runs.append({**run, "run": "", "seed": int(options.pop("--seed", run.get("seed", 0))), "options": options,
                         "metrics": found})
    rows = []
    for of in samples(runs, lambda run: tuple(sorted(run["options"].items()))).values():
        options = of[0]["options"]
        more = dict.fromkeys(IN_WORDS.get(name, f"`{name} {value}`".replace(" `", "`")) for name, value in options.items()
                             if name not in (*FAST, "--epochs"))
        knn, linear = (spread([run["metrics"][name] for run in of]) for name in ("lightly-knn", "linear"))
        rows.append([", ".join([f"`{options['--method']}`", *more]), f"{of[0]['step']['epoch']}", options["--views"],
                     f"**{knn}**", f"**{linear}**", ""])
    rows += [[name, f"{epochs}", views, knn, "", linear] for name, epochs, views, knn, linear in PUBLISHED]
    return markdown(["", "epochs", "views", "k-NN, lightly's (k = 200, T = 0.1)", "linear, L-BFGS on frozen features",
                     "linear, trained along with the network"], rows)


# ---- predictions ---------------------------------------------------------------------------------

CELLS = [  # a table's cell, the row of training-h200.jsonl, training images, steps (0: 200 epochs)
    ("ImageNet-100, ResNet-18, 224 px", "resnet18@224", 126689, 0),
    ("Galaxy10 DECaLS, ResNet-50, 224 px", "resnet50@224", 14189, 0),
    ("textures, ResNet-18, 128 px", "resnet18@128/1", 10000, 6400),
]


def reproduction_times():
    """Whole batches of 256 in an epoch; the last, smaller one is left out."""
    steps_of = {line["row"]: line for line in records("training-h200.jsonl") if "with_views_ms" in line}
    rows = []
    for name, row, images, steps in CELLS:
        steps = steps or 200 * (images // 256)
        ms = steps_of[row]["with_views_ms"]
        rows.append([name, f"{images:,}", f"{steps:,}", digits(ms), f"{steps * ms / 60000:.1f}"])
    return markdown(["cell", "training images", "steps", "ms a step", "minutes"], rows)


TABLES = {f"selectivity-{data}-{column}": lambda d=data, c=column: selectivity(d, c)
          for data, columns in (("disk", COLUMNS), ("imagenette", ("score", "rank")),
                                ("cifar10", COLUMNS), ("cifar10-32px", ("score", "rank")))
          for column in columns}
TABLES.update({
    "selectivity-long": selectivity_long,
    "textures-disks": textures_disks,
    "textures-imagenette": textures_imagenette,
    "fold-runs": fold_runs,
    "python-calls": python_calls,
    "python-batches": python_batches,
    "python-step": python_step,
    "python-example": python_example,
    "demo": demo,
    "demo-gains": demo_gains,
    "readme-demo": readme_demo,
    "readme-losses": readme_losses,
    "readme-steps": readme_steps,
    "cifar10-test": lambda: searched("cifar10-test.jsonl"),
    "cifar10-published": cifar10_published,
    "cifar10-search": lambda: searched("cifar10-search.jsonl"),
    "cifar10-fast-search": lambda: searched("cifar10-fast-search.jsonl"),
    "imagenette-test": lambda: searched("imagenette-test.jsonl"),
    "imagenette-search": lambda: searched("imagenette-search.jsonl"),
    "ranks-model": ranks_model,
    "ranks-limits": ranks_limits,
    "temperature-rank": temperature_rank,
    "projector-norm-demo": lambda: projector_norm("demo", [
        ("projector", "r1", "R@1"), ("projector", "map", "mAP"),
        ("backbone", "r1", "R@1, backbone"), ("backbone", "map", "mAP, backbone")]),
    "projector-norm-imagenette": lambda: projector_norm("imagenette-32px", [
        ("backbone", "knn", "k-NN"), ("backbone", "linear", "linear")]),
    "projector-norm-disks-h200": lambda: projector_norm_h200("table-textures", [
        ("retrieval.projector.r1", 100, 1, "R@1"), ("retrieval.projector.map", 100, 1, "mAP"),
        ("retrieval.backbone.r1", 100, 1, "R@1, backbone"),
        ("retrieval.backbone.map", 100, 1, "mAP, backbone"), *AT_THE_END]),
    "projector-norm-imagenette-h200": lambda: projector_norm_h200("table-pretrain", [
        ("knn.backbone.accuracy", 100, 1, "k-NN"), ("linear.backbone.accuracy", 100, 1, "linear"),
        *AT_THE_END]),
    "plateau-degrees": lambda: plateau_degrees(*(([], 5, degrees) for degrees in (
        dict(b1=0), {}, *(dict(b1=b) for b in (.3, 1, 3, 10)), *(dict(b3=b) for b in (.3, 1, 3)),
        *(dict(b4=b) for b in (.3, 1, 3))))),
    "plateau-selectivity": lambda: plateau_degrees(
        *(([f"{value:g}"], value, {}) for value in (2.5, 5, 10)),
        *((["10"], 10, degrees) for degrees in (dict(b1=3), dict(b1=10), dict(b3=1), dict(b3=3), dict(b4=3)))),
    "plateau-kernels": plateau_kernels,
    "plateau-batch": plateau_batch,
    "plateau-slices": plateau_slices,
    "selectivity-falling": lambda: falling(["mmd-band", "mmd-heat", "kl-heat"], [None, 5, 10, 20], [5, 10, 20]),
    "selectivity-falling-kl": lambda: falling(["kl-heat:t=2.5/d", "kl-heat:t=3/d"], [None, 5, 10], [5, 7]),
    "kl-temperature-easy": lambda: kl_temperature("easy", score),
    "kl-temperature-hard": lambda: kl_temperature("demo", score),
    "kl-temperature-knn": lambda: kl_temperature("imagenette-32px", probed("knn")),
    "kl-temperature-linear": lambda: kl_temperature("imagenette-32px", probed("linear")),
    "kl-temperature-wide-knn": lambda: kl_temperature("imagenette-32px", probed("knn"), "256-256-256"),
    "kl-temperature-wide-linear": lambda: kl_temperature("imagenette-32px", probed("linear"), "256-256-256"),
    "kl-temperature-long-knn": lambda: kl_temperature("imagenette-32px", probed("knn"), epochs=100),
    "kl-temperature-long-linear": lambda: kl_temperature("imagenette-32px", probed("linear"), epochs=100),
    "dimension-easy": lambda: dimensions(("easy", "mmd-band"), COLUMNS["score"]),
    "dimension-easy-rank": lambda: dimensions(("easy", "mmd-band"), COLUMNS["rank"]),
    "dimension-easy-heat": lambda: dimensions(("easy", "mmd-heat"), COLUMNS["score"]),
    "dimension-easy-susreg": lambda: dimensions(("easy", "susreg"), COLUMNS["score"]),
    "dimension-hard": lambda: dimensions(("demo", "mmd-band"), COLUMNS["score"]),
    "dimension-hard-escape": lambda: dimensions(("demo", "mmd-band"), COLUMNS["escape"]),
    "dimension-knn": lambda: dimensions(("imagenette-32px", "mmd-band"), spread_of(probed("knn"), 1)),
    "dimension-linear": lambda: dimensions(("imagenette-32px", "mmd-band"), spread_of(probed("linear"), 1)),
    "reproduction-times": reproduction_times,
})


# ---- documents -----------------------------------------------------------------------------------


def made_by_program(arguments):
    done = subprocess.run([PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"zonal {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


FIGURES = {  # drawn by zonal reproduce; those of results/variance.md take too long and are outputs
    "docs/dynamics-imagenette.svg": ["figure-dynamics", "--records", "results/figure-dynamics.jsonl", "--print"],
    "docs/kernels.svg": ["figure-kernels"],
}


def drawn(name):
    with tempfile.TemporaryDirectory() as folder:
        made_by_program(["reproduce", *FIGURES[name], "--out", folder])
        return (pathlib.Path(folder) / pathlib.Path(name).name).read_text(encoding="utf-8")


def renew(text):
    def block(match):
        kind, *words = match[1].split()
        made = TABLES[words[0]]() if kind == "table:" else made_by_program(words)
        return f"<!-- {match[1]} -->\n{made}<!-- end -->"
    return BLOCK.sub(block, text)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for name in [*DOCUMENTS, *FIGURES]:
        path = ROOT / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = drawn(name) if name in FIGURES else renew(old)
        if new == old:
            continue
        stale.append(name)
        if not check:
            path.write_text(new, encoding="utf-8")
    for name in stale:
        print(f"{name}: {'disagrees with results/; run scripts/tables.py' if check else 'renewed'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
