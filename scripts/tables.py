#!/usr/bin/env python3
"""The tables of the documents, made anew from the records in results/.

    scripts/tables.py            rewrites every block between <!-- table: NAME --> and <!-- end -->
    scripts/tables.py --check    changes nothing; status 1 where a document and the records disagree
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", *sorted(p.relative_to(ROOT).as_posix()
                                  for folder in ("docs", "results")
                                  for p in (ROOT / folder).glob("*.md"))]
BLOCK = re.compile(r"<!-- table: ([^ ]+) -->\n(.*?)<!-- end -->", re.DOTALL)


def records(name):
    with open(ROOT / "results" / name, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# ---- selectivity ---------------------------------------------------------------------------------


def score(run):
    """R@1 or k-NN accuracy, in percent."""
    result = run["eval"]
    return 100 * (result["r1"] if result["protocol"] == "retrieval" else result["accuracy"])


def escape(run):
    return "never" if run["escape"] is None else str(run["escape"])


COLUMNS = {
    "score": lambda run: f"{score(run):.1f}",
    "escape": escape,
    "rank": lambda run: f"{run['monitor']['effective_rank']:.0f}",
}


def selectivity(data, column):
    """One row a method, one column a value of S, from the short runs."""
    runs = [run for run in records("selectivity-short.jsonl") if run["data"] == data]
    methods = list(dict.fromkeys(run["method"] for run in runs))
    values = sorted({run["selectivity"] for run in runs})
    methods.sort(key=lambda m: max(score(run) for run in runs if run["method"] == m), reverse=True)
    rows = []
    for method in methods:
        of = {run["selectivity"]: run for run in runs if run["method"] == method}
        best = max(of.values(), key=score)
        cells = [COLUMNS[column](of[value]) for value in values]
        if column == "score":
            cells = [f"**{cell}**" if of[value] is best else cell
                     for cell, value in zip(cells, values)]
        rows.append([f"`{method}`", *cells])
    return markdown(["S", *(f"{value:g}" for value in values)], rows)


LONG = {  # a row, and its runs in results/runs/disks
    "`kl-heat`, 3/d, S = 10": ["kl-heat-3d-S10-0"],
    "`kl-heat`, 2/d, margin 1.15 (S = 5.3)": ["kl-heat-0", "kl-heat-1"],
    "`mmd-heat`, S = 10": ["mmd-heat-S10-0"],
    "`mmd-heat`, gain 256 (S = 14)": ["mmd-heat-0", "mmd-heat-1"],
    "`mmd-band`, S = 10": ["mmd-band-S10-0"],
    "`ksd-band`, gain 256 (S = 4.7)": ["ksd-band-0"],
}


def retrieved(run, features):
    with open(ROOT / "results/runs/disks" / run / "eval/retrieval.json", encoding="utf-8") as file:
        return next(result for result in json.load(file)["results"]
                    if result["features"] == features)


def spread(values):
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.1f}"
    std = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.1f} ± {std:.1f}"


def selectivity_long():
    """R@1 and mAP of projector and backbone, mean and sample standard deviation over seeds."""
    columns = [("projector", "r1"), ("projector", "map"), ("backbone", "r1"), ("backbone", "map")]
    rows = [[name, *(spread([100 * retrieved(run, features)[member] for run in runs])
                     for features, member in columns)] for name, runs in LONG.items()]
    return markdown(["loss", "R@1", "mAP", "R@1, backbone", "mAP, backbone"], rows)


TABLES = {f"selectivity-{data}-{column}": lambda d=data, c=column: selectivity(d, c)
          for data in ("disk", "imagenette", "cifar10") for column in COLUMNS}
TABLES["selectivity-long"] = selectivity_long


# ---- documents -----------------------------------------------------------------------------------


def renew(text):
    return BLOCK.sub(lambda m: f"<!-- table: {m[1]} -->\n{TABLES[m[1]]()}<!-- end -->", text)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = renew(old)
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
