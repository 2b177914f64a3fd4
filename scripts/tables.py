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


TABLES = {f"selectivity-{data}-{column}": lambda d=data, c=column: selectivity(d, c)
          for data in ("disk", "imagenette") for column in COLUMNS}


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
