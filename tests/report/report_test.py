#!/usr/bin/env python3
"""zonal report from the outside: pages of run folders made here, read by html.parser and shown by
headless Chromium. ZONAL_PROGRAM is the program to test."""
import base64
import html
import io
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile

from harness import case, kept, refused, report, run, run_json, run_tests, skip, write_mnist
from report_pages import (STEPS, clean, heads_of, loss_of, make_page, make_run, rows_of, section,
                          text_of)

try:
    import numpy as np
except ImportError:
    np = None
try:
    from PIL import Image
except ImportError:
    Image = None

# ---- what the page holds -------------------------------------------------------------------------


def test_parts():
    make_run("a", seed=0, r1=0.80)
    make_run("b", seed=1, r1=0.76)
    make_run("c", method="kl-heat", r1=0.9, extra={"lambda": "0.5"})

    @case("every part is there, and nothing comes from elsewhere")
    def _():
        page, text, done = make_page("a", "b", "c")
        assert done.stdout == "page.html\n" and not done.stderr
        names = [node["of"]["id"] for node in page.find("section")]
        assert names == ["comparison", "curves", "embeddings", "retrieval", "views", "degrees",
                         "kernels", "configuration"], names
        for node in page.all:
            for key in ("src", "href", "xlink:href", "action", "data"):
                value = node["of"].get(key, "data:")
                assert value.startswith(("data:", "#")), (node["tag"], value)
        # Addresses stand there as names alone: of the SVG name space.
        assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
        policy = [node["of"]["content"] for node in page.find("meta")
                  if node["of"].get("http-equiv") == "Content-Security-Policy"]
        assert policy and policy[0].startswith("default-src 'none'"), policy
        assert "@import" not in text and not re.search(r"url\((?!#)", text)

    @case("the tables: numbers, the best in bold, seeds as mean and sample standard deviation")
    def _():
        page, _, _ = make_page("a", "b", "c")
        training, retrieval = page.find("table", section(page, "comparison"))
        assert heads_of(page, training) == ["Run", "Method", "", "Online R@1, %", "", "Steps",
                                            "last", "best", "Effective rank", "Selectivity S",
                                            "Images/s", "Minutes"]
        rows = rows_of(page, training)
        # S = (1 - lambda) K d/(2 lambda gain q), q = b_2 d/(d - 1), b_2 = a_2/(1 - a_0); lambda =
        # 0.05, K = 1/2, gain = 256 (zonal/loss.h).
        a = [each["a"] for each in run_json("kernel", "--kernel", "heat", "--t", "5/d", "--dim",
                                            256)["spectrum"]]
        s = .95 * .5 * 256 / (2 * .05 * 256 * a[2] / (1 - a[0]) * 256 / 255)
        assert rows[0][1:] == ["mmd-heat", "700", "80.0", "80.0", "100.0", f"{s:.1f}", "1000",
                               "3.5"], rows[0]
        assert heads_of(page, retrieval) == ["Run", "Method", "", "Projector, %", "Test images",
                                             "R@1", "R@3", "mAP"]
        rows = rows_of(page, retrieval)
        assert rows[0][1:] == ["mmd-heat", "1000", "80.0", "90.0", "85.0"], rows[0]
        assert rows[2][1:4] == ["kl-heat", "1000", "90.0"], rows[2]
        mean, std = statistics.mean([80, 76]), statistics.stdev([80, 76])
        assert rows[3][0].startswith("Mean of 2 seeds") and len(rows) == 4
        assert rows[3][3] == f"{mean:.1f} ±\xa0{std:.1f}", rows[3][3]
        # R@1 of c; R@3 and mAP are the same for all three.
        bold = [text_of(node) for node in page.find("b", retrieval)]
        assert bold == ["90.0", "85.0"] * 2 + ["90.0", "90.0", "85.0"], bold
        assert [text_of(node) for node in page.find("b", training)] == ["90.0", "90.0"]
        # Where the page is narrow each number has its heading beside it.
        labels = [node["of"]["data-label"] for node in page.find("td", page.find("tbody",
                                                                                 retrieval)[0])]
        assert labels[:5] == ["Method", "Test images", "Projector R@1, %", "Projector R@3, %",
                              "Projector mAP, %"], labels

    @case("settings: those that differ, a column for each run")
    def _():
        page, _, _ = make_page("a", "b", "c")
        table = page.find("table", section(page, "configuration"))[0]
        assert rows_of(page, table) == [["method", "mmd-heat", "mmd-heat", "kl-heat"],
                                        ["seed", "0", "1", "0"],
                                        ["lambda", "–", "–", "0.5"]], rows_of(page, table)
        page, _, _ = make_page("a")
        table = page.find("table", page.find("details", section(page, "configuration"))[0])[0]
        assert ["method", "mmd-heat", "default"] in rows_of(page, table)
        assert len(rows_of(page, table)) == 6

    @case("curves: all runs, at most 500 points, with the extremes")
    def _():
        page, _, _ = make_page("a", "b", "c")
        charts = page.find("svg", section(page, "curves"), class_="chart")
        titles = [node["of"]["aria-label"] for node in charts]
        # Losses of other families, and their discrepancies, have panels of their own.
        assert titles == ["Loss", "Loss", "Invariance", "Discrepancy",
                          "Distance of KL from uniform", "R@1, %", "mAP, %", "Mean cosine",
                          "Effective rank", "log₁₀ p of uniformity", "Learning rate",
                          "Gradient norm", "Images per second"], titles
        lines = [page.find("g", chart, class_="line") for chart in charts]
        names = [[node["of"]["data-name"] for node in each] for each in lines]
        assert names[:5] == [["a", "b"], ["c"], ["a", "b", "c"], ["a", "b"], ["c"]], names
        for node, seed in zip(lines[0] + lines[1], (0, 1, 0)):
            x = [float(word) for word in node["of"]["data-x"].split()]
            y = [float(word) for word in node["of"]["data-y"].split()]
            assert 300 < len(x) == len(y) <= 500 and x == sorted(x) and x[-1] == STEPS
            assert max(y) == 7.5 and min(y) == 0.015625
            for step, value in zip(x, y):
                assert math.isclose(value, loss_of(int(step), seed), rel_tol=1e-5)
            assert "highest 7.5" in text_of(page.find("title", node)[0])
        dashes = [page.find("path", node)[0]["of"].get("stroke-dasharray") for node in lines[2]]
        assert len(set(dashes)) == 3, dashes
        # p = 0.5 was logged; its logarithm is what is drawn.
        assert {float(word) for word in lines[9][0]["of"]["data-y"].split()} == {-0.30103}
        # D = 0.1 of a batch of 256; uniform points have 1/256.
        level = page.find("g", charts[3], class_="reference")
        assert [text_of(node).strip() for node in level] == ["uniform"]

    @case("KL is drawn as its distance from uniform points")
    def _():
        assert run("sample", "uniform", "--n", 256, "--dim", 256, "--seed", 7, "--out",
                   "u.npy").returncode == 0
        uniform = run_json("loss", "u.npy", "--method", "kl-heat")["value"]
        os.remove("u.npy")
        page, _, _ = make_page("c")
        chart = [node for node in page.find("svg", class_="chart")
                 if node["of"]["aria-label"].startswith("Distance of KL")][0]
        shown = float(page.find("g", chart, class_="line")[0]["of"]["data-y"].split()[0])
        # Another draw of uniform points: D of 256 rows scatters by about 1e-3.
        assert math.isclose(shown, (0.1 - uniform) / (1 - uniform), rel_tol=0.02), (shown, uniform)

    @case("kernels once each, by their own names; energy by degree in standard deviations")
    def _():
        page, _, _ = make_page("a", "b", "c")
        lines = page.find("g", section(page, "kernels"), class_="line")
        assert [node["of"]["data-name"] for node in lines] == [
            "heat, t = 5/d = 0.01953125, d = 256", "heat, t = 2/d = 0.0078125, d = 256"]
        for node in lines:
            assert float(node["of"]["data-y"].split()[-1]) == 1
        lines = page.find("g", section(page, "degrees"), class_="line")
        assert [node["of"]["data-y"] for node in lines] == ["2 4 6 8 10 12"] * 3

    @case("the same runs give the same page")
    def _():
        assert make_page("a", "c")[1] == make_page("a", "c")[1]

    @case("one run: no best, its name as the heading")
    def _():
        page, _, _ = make_page("a")
        assert not page.find("b", section(page, "comparison"))
        assert text_of(page.find("h1")[0]) == "a"

    @case("runs of the same name are told apart by their folders")
    def _():
        os.makedirs("x/y")
        shutil.move("b", "x/y/a")
        page, _, _ = make_page("a/", "x/y/a")
        assert {node["of"]["data-name"] for node in page.find("g", class_="line")} >= {"a", "x/y/a"}
        shutil.move("x/y/a", "b")

    clean("a", "b", "c", "x")


def test_states():
    @case("an unfinished run says how far it came, a collapsed one that it has")
    def _():
        make_run("a", extra={"steps": "1000", "collapse-cosine": "0.95"}, lines=60)
        make_run("b", extra={"steps": "60", "collapse-cosine": "0.05"}, lines=60)
        make_run("c", extra={"steps": "0", "epochs": "4"}, lines=60)  # of 39 steps
        page, _, _ = make_page("a", "b", "c")
        rows = rows_of(page, page.find("table", section(page, "comparison"))[0])
        assert rows[0][0].startswith("a unfinished") and rows[0][2] == "60 of 1000", rows[0]
        assert rows[1][0].startswith("b collapsed") and rows[1][2] == "60", rows[1]
        assert rows[2][0].startswith("c unfinished") and rows[2][2] == "60 of 156", rows[2]
        clean("a", "b", "c")

    @case("a mean only where nothing but the seed differs, and the run is finished")
    def _():
        make_run("a", seed=0, lines=60)
        make_run("b", seed=1, extra={"threads": "2"}, lines=60)
        make_run("c", seed=2, extra={"lr": "0.002"}, lines=60)
        make_run("d", seed=3, lines=50)
        page, _, _ = make_page("a", "b", "c", "d")
        for table in page.find("table", section(page, "comparison")):
            means = [row[0] for row in rows_of(page, table) if row[0].startswith("Mean")]
            assert means == ["Mean of 2 seedsa, b"], means
        clean("a", "b", "c", "d")

    @case("test images and rules stand beside results; a partial one is marked")
    def _():
        for name, seed, result in (("a", 0, {"test": 10000, "accuracy": 0.9}),
                                   ("b", 1, {"test": 500, "limit": 500, "accuracy": 0.95})):
            make_run(name, seed=seed, lines=60)
            os.remove(name + "/eval/retrieval.json")
            folder = name + ("/eval/partial" if "limit" in result else "/eval")
            os.makedirs(folder, exist_ok=True)
            with open(folder + "/knn.json", "w") as file:
                json.dump({"results": [{"protocol": "knn", "features": "backbone", "train": 60000,
                                        "k": 20, "temperature": 0.07, **result}]}, file)
        page, _, _ = make_page("a", "b")
        table = page.find("table", section(page, "comparison"))[1]
        rows = rows_of(page, table)
        assert rows[0][2] == "10000" and rows[1][2] == "500 partial" and len(rows) == 2, rows
        assert not page.find("b", table)  # not comparable, and no mean
        title = text_of(page.find("h3", section(page, "comparison"))[0])
        assert title == "k-NN 60000 training images, k = 20, T = 0.07", title
        # The whole counts before a part of it.
        with open("b/eval/knn.json", "w") as file:
            json.dump({"results": [{"protocol": "knn", "features": "backbone", "test": 10000,
                                    "accuracy": 0.8, "train": 60000, "k": 20,
                                    "temperature": 0.07}]}, file)
        page, _, _ = make_page("a", "b")
        rows = rows_of(page, page.find("table", section(page, "comparison"))[1])
        assert rows[1][2:4] == ["10000", "80.0"] and rows[2][0].startswith("Mean of 2"), rows
        clean("a", "b")

    @case("results of a later checkpoint of the run count")
    def _():
        make_run("a", lines=60)
        with open("a/eval/retrieval.json", "w") as file:
            json.dump({"results": [{"protocol": "retrieval", "features": "backbone", "test": 10,
                                    "step": step, "r1": r1} for step, r1 in
                                   ((20, 0.2), (60, 0.6), (40, 0.4))]}, file)
        page, _, _ = make_page("a")
        rows = rows_of(page, page.find("table", section(page, "comparison"))[1])
        assert rows[0][3] == "60.0", rows
        clean("a")

    @case("only seeds are averaged; a later step on other images does not count")
    def _():
        make_run("a", lines=60)
        rest = "test part of /data/images; checkpoint last; {} px, center, mean 0.5; fp32"
        found = (("L-BFGS, seed 0", 8, 1.0), ("L-BFGS, seed 1", 8, 0.9),
                 ("SGD, 1 epochs, rate 0.0001, seed 0", 8, 0.5), ("L-BFGS, seed 0", 6, 0.2))
        results = [{"protocol": "linear", "features": "backbone", "test": 10, "step": 60,
                    "accuracy": accuracy, "data": "/data/images", "part": "test",
                    "conditions": f"linear of the backbone, {how}; {rest.format(side)}"}
                   for how, side, accuracy in found]
        other = {**results[0], "step": 90, "data": "/data/other", "accuracy": 0.1,
                 "conditions": results[0]["conditions"].replace("images", "other")}
        for conditions in (True, False):
            with open("a/eval/linear.json", "w") as file:
                kept = results + [other] if conditions else [
                    {**results[0], "epochs": 1}, {**results[0], "epochs": 9, "accuracy": 0}, other]
                if not conditions:  # as an earlier version wrote them
                    kept = [{key: r[key] for key in r if key != "conditions"} for r in kept]
                json.dump({"results": kept}, file)
            page, _, _ = make_page("a")
            rows = rows_of(page, page.find("table", section(page, "comparison"))[1])
            want = "95.0" if conditions else "100.0"
            assert want in rows[0], rows
        clean("a")

    @case("results by other settings than the run's are not shown as the run's")
    def _():
        make_run("a", lines=60)
        os.remove("a/eval/retrieval.json")
        own = {"protocol": "knn", "features": "backbone", "test": 10, "accuracy": 0.5,
               "conditions": "knn of the backbone, k 20; test part of x; checkpoint last; v; fp32"}
        other = {**own, "accuracy": 0.9, "test": 11, "overrides": "--data-seed 3",
                 "conditions": own["conditions"] + "; with --data-seed 3"}
        for results in ((other, own), (own, other), (other,)):
            with open("a/eval/knn.json", "w") as file:
                json.dump({"results": results}, file)
            page, _, _ = make_page("a")
            cells = [text_of(node) for node in page.find("td")]
            assert "90.0" not in cells and ("50.0" in cells) == (own in results), (results, cells)
        clean("a")

    @case("monitors: log10_p and rho where they are logged, else the logarithm of p")
    def _():
        make_run("a", lines=60)
        make_run("b", lines=60)
        with open("b/metrics.jsonl", "a") as file:
            for step in (61, 62, 63):
                file.write(json.dumps({"kind": "monitor", "step": step, "log10_p": -40.5 * step,
                                       "rho": 0.25, "p_uniform": 0}) + "\n")
            file.write(json.dumps({"kind": "start", "step": 0, "selectivity": 3.5}) + "\n")
        page, _, _ = make_page("a", "b")
        lines = {chart["of"]["aria-label"]: {
            node["of"]["data-name"]: node["of"]["data-y"] for node in
            page.find("g", chart, class_="line")} for chart in page.find("svg", class_="chart")}
        assert lines["log₁₀ p of uniformity"] == {"a": "-0.30103", "b": "-2470.5 -2511 -2551.5"}
        assert lines["Signal share ρ"] == {"b": "0.25 0.25 0.25"}
        table = page.find("table", section(page, "comparison"))[0]
        heads = heads_of(page, table)
        column = heads.index("Selectivity S") - len(heads)
        assert rows_of(page, table)[1][column] == "3.5"
        clean("a", "b")


def test_odd_input():
    @case("names that turn the text around are shown as they are")
    def _():
        name = "a\u202egnp.b\u2066\x1b[31m\u200b"
        make_run(name, lines=60)
        _, text, _ = make_page(name)
        assert "a\ufffdgnp.b\ufffd\ufffd[31m\ufffd" in text
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x1b]", text)
        clean(name)

    @case("names and values are shown, not obeyed")
    def _():
        name = "<img src=x onerror=alert(1)>&\"'"
        make_run(name, extra={"note": json.dumps("</script><script>alert(2)</script>")}, lines=60)
        make_run("plain", lines=60)
        page, _, _ = make_page(name, "plain")
        assert not page.find("img") and len(page.find("script")) == 1
        assert name in text_of(page.find("title", page.find("head")[0])[0])
        assert name in [node["of"].get("data-name") for node in page.find("g", class_="line")]
        code = text_of(page.find("code")[0])
        words = subprocess.run(["sh", "-c", "printf '%s\\n' " + code], text=True,
                               capture_output=True).stdout.splitlines()
        assert words[-1] == name + "/config.toml", words
        clean(name, "plain")

    @case("what is no number is never the best")
    def _():
        make_run("a", r1=None, lines=60)
        make_run("b", r1=0.1, lines=60)
        page, _, _ = make_page("a", "b")
        training, retrieval = [rows_of(page, table) for table in page.find("table")[:2]]
        assert training[0][3:5] == ["–"] * 2 and training[1][3:5] == ["8.3", "8.3"], training
        assert retrieval[0][3] == "–" and retrieval[1][3] == "10.0", retrieval
        bold = [text_of(node) for node in page.find("b", section(page, "comparison"))]
        assert "–" not in bold, bold
        clean("a", "b")

    @case("a damaged line and a damaged evaluation are named and left out")
    def _():
        make_run("a", lines=60)
        with open("a/metrics.jsonl", "a") as file:
            file.write('{"kind":"step","step":61,"loss":1e9\n{"kind":"step","step":62,"los')
        with open("a/eval/retrieval.json", "w") as file:
            file.write("[]")
        page, _, done = make_page("a")
        assert "a: line 63 of metrics.jsonl" in done.stderr, done.stderr
        assert "line 64" in done.stderr and "eval/retrieval.json" in done.stderr
        notes = [text_of(node) for node in page.find("p", class_="note")]
        assert len(notes) == 3 and "line 63" in notes[0], notes
        line = page.find("g", class_="line")[0]
        assert line["of"]["data-x"].split()[-1] == "60"
        clean("a")

    @case("a step that can be none is a damaged line")
    def _():
        make_run("a", lines=60)
        make_run("b", seed=1, lines=60)
        with open("a/metrics.jsonl", "a") as file:
            for step in ("1e300", "-1", "1e999"):
                file.write(f'{{"kind":"step","step":{step},"loss":1}}\n')
        page, _, done = make_page("a", "b")
        for number, step in ((63, "1e+300"), (64, "-1"), (65, "inf")):
            assert f"line {number} of metrics.jsonl is left out: {step} is no step" in done.stderr
        rows = rows_of(page, page.find("table", section(page, "comparison"))[0])
        assert rows[0][2] == "60" and rows[2][0].startswith("Mean of 2 seeds"), rows
        clean("a", "b")

    @case("a run that has only begun: its settings alone")
    def _():
        os.makedirs("a")
        with open("a/config.toml", "w") as file:
            file.write("batch = 8 # default\n")
        page, _, done = make_page("a")
        assert "nothing has been logged" in done.stderr
        assert [node["of"]["id"] for node in page.find("section")] == [
            "comparison", "embeddings", "retrieval", "views", "kernels", "configuration"]
        clean("a")

    make_run("a", lines=60)
    os.makedirs("empty")
    refused("no run", 2, "RUN is missing", "report")
    refused("a folder that is not there", 1, "is not a run folder", "report", "nowhere")
    refused("a folder that is no run", 1, "empty is not a run folder: it has no config.toml", "report",
            "a", "empty")
    refused("too many runs", 2, "RUN", "report", *["a"] * 21)
    refused("a place that is not there", 1, "nowhere/page.html", "report", "a", "--no-examples",
            "--out", "nowhere/page.html")
    kept("the page", "a/metrics.jsonl", "report", "a", "--no-examples", "--out", "a/metrics.jsonl")
    refused("a folder in the page's place", 1, "empty", "report", "a", "--no-examples", "--out",
            "empty")

    @case("a page that is there stays as it was when the new one fails")
    def _():
        with open("page.html", "w") as file:
            file.write("old")
        assert run("report", "empty", "--out", "page.html").returncode == 1
        with open("page.html") as file:
            assert file.read() == "old"
        os.remove("page.html")

    @case("a full disk is an error, and leaves no page")
    def _():
        done = run("report", "a", "--no-examples", "--out", "/dev/full")
        assert done.returncode == 1 and "/dev/full" in done.stderr, done.stderr

    clean("a", "empty")


# ---- images of a trained network -----------------------------------------------------------------

TINY = ("train", "textures:disk", "--texture-count", 40, "--texture-size", 24, "--side", 16,
        "--batch", 8, "--steps", 2, "--width", 0.0625, "--projector", "16-8", "--eval", "none",
        "--method", "mmd-band", "--device", "cpu", "--quiet")


def test_images():
    if Image is None:
        skip("images", "this Python has no PIL")
        return
    done = run(*TINY, "--out", "run")
    if done.returncode != 0:
        report(False, "a small run to look at", done.stderr)
        clean("run")
        return

    def images(page, name):
        found = []
        for node in page.find("img", section(page, name)):
            head, data = node["of"]["src"].split(",", 1)
            assert head == "data:image/png;base64"
            image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
            image.load()
            found.append((node, image))
        return found

    @case("retrieval: four queries with their five nearest, views as the network saw them")
    def _():
        page, _, done = make_page("run", options=("--quiet",))
        assert not done.stderr and not done.stdout, done.stderr
        found = images(page, "retrieval")
        assert len(found) == 24 and len(page.find("div", section(page, "retrieval"),
                                                  class_="row")) == 4
        assert all(image.size == (16, 16) and image.mode == "L" for _, image in found)
        captions = [text_of(node) for node in page.find("figcaption", section(page, "retrieval"))]
        for row in range(4):
            assert captions[6 * row] == "query"
            cosines = [float(word) for word in captions[6 * row + 1:6 * row + 6]]
            assert cosines == sorted(cosines, reverse=True) and cosines[0] <= 1.0005
            views = [image.tobytes() for _, image in found[6 * row:6 * row + 6]]
            assert len(set(views)) == 6  # the query is not among its own hits
        assert len(page.find("g", section(page, "degrees"), class_="line")) == 1

    @case("views: the image and two views of each of three")
    def _():
        page, _, _ = make_page("run", options=("--quiet",))
        found = images(page, "views")
        sizes = [image.size for _, image in found]
        assert sizes == [(24, 24), (16, 16), (16, 16)] * 3, sizes
        assert len({image.tobytes() for _, image in found}) == 9

    @case("the views of a run that was trained on CUDA are shown on any machine")
    def _():
        page, _, _ = make_page("run", options=("--quiet",))
        before = [image.tobytes() for _, image in images(page, "views")]
        with open("run/config.toml") as file:
            config = file.read()
        changed = re.sub('^device = "cpu" ', 'device = "cuda"', config, flags=re.M)
        assert changed != config
        with open("run/config.toml", "w") as file:
            file.write(changed)
        page, _, _ = make_page("run", options=("--quiet",))
        assert [image.tobytes() for _, image in images(page, "views")] == before
        with open("run/config.toml", "w") as file:
            file.write(config)

    @case("without its weights a run is still reported, with the reason")
    def _():
        shutil.rmtree("run/checkpoints")
        page, text, _ = make_page("run", options=("--quiet",))
        assert "Left out" in text_of(section(page, "retrieval"))
        assert not images(page, "retrieval") and images(page, "views")
        page, text, _ = make_page("run")
        assert "--no-examples" in text_of(section(page, "views")) and not page.find("img")

    clean("run")


# ---- what a network makes of labelled images -----------------------------------------------------

CLASSES, TRAINED, TESTED = 3, 60, 90


def write_idx(folder):
    """Images of three kinds, bright in a third of their own, as files of MNIST."""
    os.makedirs(folder)
    draw = random.Random(5)
    for part, count in (("train", TRAINED), ("t10k", TESTED)):
        labels = bytes(i * 7 % CLASSES for i in range(count))
        pixels = bytes(min(255, draw.randrange(120) + (110 if x // 6 == label else 0))
                       for label in labels for y in range(18) for x in range(18))
        write_mnist(folder, part, 18, labels, pixels)


def leave_one_out(features, labels, k):
    """The confusion matrix of weighted votes, T = 0.07."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    matrix = np.zeros((CLASSES, CLASSES), int)
    for i, row in enumerate(cosine):
        nearest = np.argsort(-row, kind="stable")[:k]
        votes = np.bincount(labels[nearest], np.exp(row[nearest] / 0.07), CLASSES)
        matrix[labels[i], votes.argmax()] += 1
    return matrix


def points_of(page, chart):
    """The dots of a map: place, by the number of the image, and class."""
    found = {}
    for path in page.find("path", chart):
        places = re.findall(r"M(\S+) (\S+?)h0", path["of"]["d"])
        for i, (x, y) in zip(path["of"]["data-i"].split(), places):
            found[int(i)] = (float(x), -float(y), text_of(path))
    return [found[i] for i in range(len(found))]


def test_embeddings():
    if np is None:
        skip("embeddings", "this Python has no numpy")
        return
    write_idx("data")
    done = run("train", "data", "--side", 16, "--batch", 16, "--steps", 6, "--width", 0.0625,
               "--projector", "16-8", "--eval", "none", "--method", "mmd-band", "--stem", "small",
               "--quiet", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert run("embed", "run", "--split", "test", "--out", "f.npy", "--projections", "p.npy",
               "--labels", "l.npy", "--index", "none", "--quiet").returncode == 0
    features, labels = np.load("f.npy").astype(float), np.load("l.npy")
    projections = np.load("p.npy").astype(float)
    page, text, _ = make_page("run", options=("--quiet",))

    @case("PCA: numpy finds the same coordinates, up to the axes' signs")
    def _():
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        u, s, _ = np.linalg.svd(unit - unit.mean(0), full_matrices=False)
        chart = page.find("svg", section(page, "embeddings"), class_="map")[0]
        points = points_of(page, chart)
        assert [name for _, _, name in points] == [str(label) for label in labels]
        for axis in range(2):
            shown = np.array([point[axis] for point in points])
            truth = u[:, axis] * s[axis]
            likeness = np.corrcoef(shown, truth)[0, 1]
            assert abs(likeness) > 0.9999, likeness  # the page has a tenth of a unit in 300
        share = (s ** 2 / (s ** 2).sum())[:2]
        words = [text_of(node) for node in page.find("text", chart)]
        assert words == [f"component {i + 1}, {100 * share[i]:.0f} % of the variance"
                         for i in range(2)], words

    @case("singular values: numpy's, and a level for uniform points")
    def _():
        charts = page.find("svg", section(page, "embeddings"), class_="chart")
        for chart, rows in zip(charts, (projections, features)):
            unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            truth = np.linalg.svd(unit, compute_uv=False) / np.sqrt(len(rows))
            line = page.find("g", chart, class_="line")[0]
            shown = np.array([float(word) for word in line["of"]["data-y"].split()])
            large = truth > 1e-4 * truth[0]  # they come from squares
            assert np.allclose(shown[large[:len(shown)]], truth[large][:len(shown)], rtol=1e-4)
        assert [text_of(node).strip() for node in page.find("g", charts[0], class_="reference")
                ] == ["1/√d", "uniform points"]
        assert charts[0]["of"]["data-log"] == "0 1"

    @case("k-NN: the confusion matrix is numpy's, and the bars are its rows")
    def _():
        truth = leave_one_out(features, labels, 20)
        table = page.find("table", section(page, "classes"), class_="confusion")[0]
        shown = [[int(cell) for cell in row[1:]] for row in rows_of(page, table)]
        assert shown == truth.tolist(), (shown, truth)
        bars = [text_of(node) for node in page.find("span", section(page, "classes"), class_="sum")]
        assert bars == [f"{100 * row[c] / row.sum():.0f}\u2009% {row[c]} of {row.sum()}"
                        for c, row in enumerate(truth)], bars

    @case("thumbnails: one sheet, a tile for each image")
    def _():
        sheets = page.find("img", section(page, "embeddings"))
        assert len(sheets) == 1 and sheets[0]["of"]["width"] == str(25 * 32)
        assert sheets[0]["of"]["height"] == str((TESTED + 24) // 25 * 32)

    @case("fewer images where --images says so, evenly spread; the same page twice")
    def _():
        less, again, _ = make_page("run", options=("--quiet", "--images", "30"))
        points = points_of(less, less.find("svg", class_="map")[0])
        assert [name for _, _, name in points] == [str(labels[i * TESTED // 30]) for i in range(30)]
        assert "30 of 90 test images" in text_of(section(less, "embeddings"))
        assert again == make_page("run", options=("--quiet", "--images", "30"))[1]

    for name in [name for name in os.listdir() if re.match(r"[fpl]\.", name)]:
        os.remove(name)  # and what embed writes beside them
    test_layout("run")
    clean("run", "data")


# ---- in a browser --------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Put into a copy of the page: points at the first chart, and notes what can be seen then.
PROBE = """<script>
addEventListener("load", () => {
  const chart = document.querySelector("svg.chart"), area = chart.getBoundingClientRect();
  chart.dispatchEvent(new PointerEvent("pointermove", {
    clientX: area.left + area.width * .6, clientY: area.top + 20, bubbles: true }));
  const box = document.getElementById("values");
  parent.postMessage(JSON.stringify({
    wide: document.documentElement.scrollWidth, window: innerWidth, hidden: box.hidden,
    shown: box.innerText, dots: chart.querySelectorAll("circle.dot").length }), "*");
});
</script></body>"""
# The same for what must not be cut off: texts of charts, tables, the row of neighbours, maps.
LAYOUT = """<script>
addEventListener("load", () => {
  const inside = (inner, outer) => inner.left >= outer.left - .5 && inner.top >= outer.top - .5 &&
    inner.right <= outer.right + .5 && inner.bottom <= outer.bottom + .5;
  const clipped = [];
  for (const chart of document.querySelectorAll("svg.chart, svg.map"))
    for (const text of chart.querySelectorAll("text"))
      if (!inside(text.getBoundingClientRect(), chart.getBoundingClientRect()))
        clipped.push(chart.getAttribute("aria-label") + ": " + text.textContent);
  const scrolled = [...document.querySelectorAll(".scroll")]
    .filter(each => each.scrollWidth > each.clientWidth).map(each => each.firstChild.className);
  const row = document.querySelector("#retrieval .row");
  const seen = [...row.querySelectorAll("img")].filter(image => {
    const area = image.getBoundingClientRect();
    return area.left >= 0 && area.right <= innerWidth && area.width > 20;
  }).length;
  const map = document.querySelector("svg.map"), box = document.getElementById("values");
  map.focus();
  map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  const thumb = box.querySelector("canvas.thumb");
  const colours = thumb && new Set(thumb.getContext("2d").getImageData(0, 0, 32, 32).data).size;
  const named = [...document.querySelectorAll("svg[role=img], img:not(.sheet)")].every(each =>
    (each.getAttribute("aria-label") || each.getAttribute("alt") || "").length > 0);
  parent.postMessage(JSON.stringify({
    wide: document.documentElement.scrollWidth, window: innerWidth, clipped, scrolled, seen, named,
    focus: document.activeElement === map, colours, shown: box.innerText,
    links: document.querySelectorAll("nav a").length }), "*");
});
</script></body>"""
# Chromium's window is never narrower than 500 pixels; a frame can be.
FRAME = """<!DOCTYPE html><title>frame</title><body><script>
addEventListener("message", event => { document.body.dataset.probe = event.data; });
</script><iframe src="probe.html" style="width: %dpx; height: 1000px; border: 0"></iframe></body>"""


def browse(page, *options):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--enable-logging=stderr", "--user-data-dir=" + profile, *options,
             "file://" + os.path.abspath(page)],
            capture_output=True, text=True, timeout=100)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done, console


def probe(text, script, width):
    """What the script finds in a frame of that width, and what the console says."""
    with open("probe.html", "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", script))
    with open("frame.html", "w") as file:
        file.write(FRAME % width)
    done, console = browse("frame.html", "--window-size=1400,1100", "--dump-dom")
    os.remove("frame.html")
    os.remove("probe.html")
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    return json.loads(html.unescape(found.group(1))), console


def test_layout(folder):
    """Of a page with everything on it."""
    if not CHROMIUM:
        skip("layout", "there is no chromium")
        return
    steps = dict(extra={"steps": "100000", "lr": "1e-7"}, lines=120)
    make_run("a-run-with-quite-a-long-name-so-that-columns-are-short-of-room", **steps)
    _, text, _ = make_page(folder, "a-run-with-quite-a-long-name-so-that-columns-are-short-of-room",
                           options=("--quiet",))
    for width in (1200, 800, 400):
        @case(f"{width} pixels wide: no label clipped, no table cut, five neighbours, keys work")
        def _():
            found, console = probe(text, LAYOUT, width)
            assert not console, console
            assert found["window"] == width and found["wide"] <= width, found
            assert not found["clipped"] and not found["scrolled"], found
            assert found["seen"] == 6 and found["named"], found  # the query too
            assert found["focus"] and found["colours"] > 10 and "image" in found["shown"], found
            assert found["links"] == 9, found
    clean("a-run-with-quite-a-long-name-so-that-columns-are-short-of-room")


def test_browser():
    if not CHROMIUM or Image is None:
        skip("in a browser", "there is no chromium" if not CHROMIUM else "this Python has no PIL")
        return
    make_run("a", lines=120)
    make_run("b-with-a-rather-long-name-that-goes-on-and-on", method="kl-heat", r1=0.9, lines=120)
    assert run("report", "a", "b-with-a-rather-long-name-that-goes-on-and-on", "--no-examples",
               "--out", "page.html").returncode == 0
    with open("page.html", encoding="utf-8") as file:
        text = file.read()

    @case("a fault of a script would be seen")
    def _():
        with open("fault.html", "w") as file:
            file.write("<!DOCTYPE html><title>x</title><script>nothing.at.all()</script>")
        assert browse("fault.html", "--dump-dom")[1]
        os.remove("fault.html")

    for width, dark in ((1280, False), (390, True)):
        mode = ("--force-dark-mode",) if dark else ()
        words = f"{width} pixels wide, {'dark' if dark else 'light'}"

        @case(words + ": loads without complaint, is not blank, has its ground")
        def _():
            done, console = browse("page.html", f"--window-size={width},1000",
                                   "--screenshot=shot.png", *mode)
            assert not console, console
            image = Image.open("shot.png").convert("RGB")
            assert image.width == width, image.size
            colours = image.getcolors(1 << 24)
            os.remove("shot.png")
            assert len(colours) > 100, len(colours)
            most = max(colours)[1]
            assert sum(most) < 150 if dark else sum(most) > 700, most

    for width in (390,):
        @case(f"{width} pixels wide: no sideways scrolling, values under the pointer")
        def _():
            found, console = probe(text, PROBE, width)
            assert not console, console
            assert found["window"] == width and found["wide"] <= width, found
            assert not found["hidden"] and found["dots"] == 1, found
            lines = found["shown"].split("\n")
            step = int(lines[0].removeprefix("step "))
            assert 1 <= step <= 120 and lines[1] == "a", lines
            assert math.isclose(float(lines[2]), loss_of(step, 0), rel_tol=1e-4), lines

    @case("it prints")
    def _():
        browse("page.html", "--print-to-pdf=page.pdf")
        with open("page.pdf", "rb") as file:
            assert file.read(5) == b"%PDF-"
        os.remove("page.pdf")

    os.remove("page.html")
    clean("a", "b-with-a-rather-long-name-that-goes-on-and-on")


run_tests(test_parts, test_states, test_odd_input, test_images, test_embeddings, test_browser)
