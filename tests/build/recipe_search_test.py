#!/usr/bin/env python3
"""scripts/recipe_search.sh: a line for each variant, none twice, and none for one that failed.
ZONAL_PROGRAM is the program to test."""
import json
import os
import re
import shutil
import subprocess

from harness import PROGRAM, SOURCE, case, run_tests, write_mnist

LIST = """
# a comment
two views | --views 2 --lr 2e-3 | --side 8; --side 12 --crop whole | a note
wrong     | --views two |
larger    | --eval-side 12
"""


def write_images(part, count):
    """Noise, lighter where the class is higher."""
    labels = [i % 10 for i in range(count)]
    pixels = [noise // 2 + 12 * label for label in labels for noise in os.urandom(64)]
    write_mnist("images", part, 8, labels, pixels)


def search(variants=LIST, status=1, folder="runs", **environment):
    done = subprocess.run([f"{SOURCE}/scripts/recipe_search.sh", PROGRAM, "recipe.toml", "images", folder],
                          input=variants, env={**os.environ, "DEVICE": "cpu", **environment},
                          capture_output=True, text=True)
    assert done.returncode == status, done.stderr  # 1 by the wrong one
    with open(f"{folder}/records.jsonl", encoding="utf-8") as file:
        return done, [json.loads(line) for line in file]


def test_search():
    os.mkdir("images")
    write_images("train", 400)
    write_images("t10k", 20)
    with open("recipe.toml", "w", encoding="utf-8") as recipe:
        recipe.write('side = 8\nwidth = 0.125\nprojector = "8-4"\nbatch = 16\nsteps = 2\nval-share = 0.25\n')

    @case("a record for each variant that was trained, with every evaluation that was asked for")
    def _():
        done, lines = search()
        assert "--views" in done.stderr, done.stderr
        assert [(line["run"], line["options"]) for line in lines] == \
            [("two views", "--views 2 --lr 2e-3"), ("larger", "--eval-side 12")]
        views = [[result["view"] for result in line["eval"]] for line in lines]
        assert views == [["8 px, whole"] * 5 + ["12 px, whole"] * 5, ["12 px, whole"] * 5], views
        assert all(line["step"]["step"] == 2 for line in lines)
        for result in (result for line in lines for result in line["eval"]):
            assert result["part"] == "val" and result["train"] + result["test"] == 400, result
        assert not os.path.exists("runs/larger/checkpoints")

    @case("a record says what made it, and how it was asked for")
    def _():
        with open("runs/records.jsonl", encoding="utf-8") as file:
            two, larger = map(json.loads, file)
        said = subprocess.check_output([PROGRAM, "--version"], text=True).strip()
        for line in (two, larger):
            made = f"zonal {line['version']}" + (f", commit {line['commit']}" if line["commit"] else "")
            assert made == said and line["device"], line
            assert (line["steps"], line["batch"], line["seed"]) == (2, 16, 0), line
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["date"]), line["date"]
        assert two["images"] == larger["images"]
        assert [(key, two["configuration"].get(key), larger["configuration"].get(key))
                for key in sorted(two["configuration"] | larger["configuration"])
                if two["configuration"].get(key) != larger["configuration"].get(key)] == \
            [("eval-side", None, "12"), ("lr", "0.002", None), ("views", "2", None)], (two, larger)

    @case("PROTOCOLS: those of other projects are as good")
    def _():
        _, lines = search("all | --val-share 0", 0, "others", SPLIT="test", PROTOCOLS="knn lightly-knn linear")
        assert [(result["protocol"], result.get("k")) for result in lines[0]["eval"]] == \
            [("knn", k) for k in (20, 20, 200, 200)] + [("lightly-knn", 200), ("linear", None)], lines[0]["eval"]
        assert all((result["train"], result["test"]) == (400, 20) for result in lines[0]["eval"])
        shutil.rmtree("others")

    @case("what has a record is not made again, be it of before there was more in it than results")
    def _():
        with open("runs/records.jsonl", encoding="utf-8") as file:
            kept = [{key: line[key] for key in ("run", "options", "step", "monitor", "eval")}
                    for line in map(json.loads, file)]
        with open("runs/records.jsonl", "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in kept))
        before = os.path.getmtime("runs/larger")
        assert len(search()[1]) == 2
        assert os.path.getmtime("runs/larger") == before

    shutil.rmtree("images")
    shutil.rmtree("runs")
    os.remove("recipe.toml")


run_tests(test_search)
