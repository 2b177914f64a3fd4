#!/usr/bin/env python3
"""zonal report from the outside: pages of run folders made here, read by html.parser and shown by
headless Chromium. ZONAL_PROGRAM is the program to test."""
import base64
import html
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from html.parser import HTMLParser

from harness import PROGRAM, case, refused, report, run, run_tests, skip

try:
    from PIL import Image
except ImportError:
    Image = None

STEPS = 700
VOID = {"meta", "img", "br", "line", "rect", "path", "circle", "input", "link"}


# ---- run folders ---------------------------------------------------------------------------------


def loss_of(step, seed):
    """With one spike up and one down that only a careful thinning keeps."""
    if step == 333:
        return 7.5
    if step == 444:
        return 0.015625
    return 1 / (1 + step / 50) + 0.01 * math.sin(step * (seed + 1.7)) + 0.05


def make_run(folder, method="mmd-heat", seed=0, r1=0.8, extra=(), lines=STEPS):
    os.makedirs(folder + "/eval")
    settings = {"data": '"textures:disk"', "projector": '"2048-2048-256"',
                "method": json.dumps(method), "lr": "0.001", "seed": str(seed), **dict(extra)}
    with open(folder + "/config.toml", "w") as file:
        for key, value in settings.items():
            file.write(f"{key} = {value:<30} # default\n")
    with open(folder + "/metrics.jsonl", "w") as file:
        for step in range(1, lines + 1):
            record = {"kind": "step", "step": step, "epoch": step / 39, "loss": loss_of(step, seed),
                      "invariance": 0.5, "discrepancy": 0.1, "rate": 1e-3, "gradient_norm": 1.0,
                      "images_per_second": 1000.0 + seed, "seconds": 0.3 * step}
            file.write(json.dumps(record) + "\n")
            if step % 50 == 0:
                file.write(json.dumps({"kind": "meter", "step": step, "mean_cosine": 0.1,
                                       "effective_rank": 100.0, "p_uniform": 0.5}) + "\n")
                file.write(json.dumps({"kind": "eval", "step": step, "protocol": "retrieval",
                                       "features": "projector", "r1": None if r1 is None else
                                       r1 * step / lines, "map": 0.5}) + "\n")
    with open(folder + "/eval/retrieval.json", "w") as file:
        json.dump({"results": [{"protocol": "retrieval", "features": "projector", "seed": 0,
                                "test": 1000, "r1": r1, "r3": 0.9, "map": 0.85}]}, file)
    energy = [{"degree": l, "excess": 0.1 * l, "sd": 0.05} for l in range(1, 7)]
    with open(folder + "/eval/test.json", "w") as file:
        json.dump({"energy": energy}, file)
    return folder


# ---- reading pages -------------------------------------------------------------------------------


class Page(HTMLParser):
    """A tree of the page; complains of tags that do not nest and ids that are there twice."""

    def __init__(self, text):
        super().__init__()
        self.root = self.at = {"tag": "", "of": {}, "in": [], "up": None}
        self.all, self.faults, self.ids = [], [], set()
        self.feed(text)
        self.close()
        if self.at is not self.root:
            self.faults.append(f"<{self.at['tag']}> stays open")

    def handle_starttag(self, tag, attributes):
        node = {"tag": tag, "of": dict(attributes), "in": [], "up": self.at}
        self.at["in"].append(node)
        self.all.append(node)
        if "id" in node["of"]:
            if node["of"]["id"] in self.ids:
                self.faults.append("two of " + node["of"]["id"])
            self.ids.add(node["of"]["id"])
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.at = self.at["up"]

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if self.at["tag"] != tag:
            self.faults.append(f"</{tag}> closes <{self.at['tag']}>")
        if self.at["up"]:
            self.at = self.at["up"]

    def handle_data(self, data):
        self.at["in"].append(data)

    def find(self, tag, within=None, **attributes):
        found = []
        for node in self.all:
            up = node
            while within is not None and up is not None and up is not within:
                up = up["up"]
            if node["tag"] == tag and (within is None or up is not None) and all(
                    value in node["of"].get(key.rstrip("_"), "").split() for key, value in
                    attributes.items()):
                found.append(node)
        return found


def text_of(node):
    return node if isinstance(node, str) else "".join(map(text_of, node["in"]))


def make_page(*folders, options=("--no-pictures",)):
    done = run("report", *folders, "--out", "page.html", *options)
    assert done.returncode == 0, done.stderr
    with open("page.html", encoding="utf-8") as file:
        text = file.read()
    os.remove("page.html")
    page = Page(text)
    assert not page.faults, page.faults
    return page, text, done


def rows_of(page, table):
    return [[text_of(cell).strip() for cell in row["in"] if not isinstance(cell, str)]
            for row in page.find("tr", page.find("tbody", table)[0])]


def section(page, name):
    return page.find("section", id=name)[0]


def clean(*names):
    for name in names:
        shutil.rmtree(name, ignore_errors=True)


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
        assert names == ["comparison", "curves", "kernels", "degrees", "retrieval", "views",
                         "configuration"], names
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

    @case("the table: numbers, the best in bold, seeds as mean and sample deviation")
    def _():
        page, _, _ = make_page("a", "b", "c")
        table = page.find("table", section(page, "comparison"))[0]
        heads = [text_of(node) for node in page.find("th", page.find("thead", table)[0])]
        assert heads == ["Run", "Method", "Online R@1, %", "Retrieval, projector, %", "", "last",
                         "best", "R@1", "R@3", "mAP", "Steps", "Images/s", "Minutes"], heads
        rows = rows_of(page, table)
        assert rows[0][1:] == ["mmd-heat", "80.0", "80.0", "80.0", "90.0", "85.0", "700", "1000",
                               "3.5"], rows[0]
        assert rows[2][1:6] == ["kl-heat", "90.0", "90.0", "90.0", "90.0"], rows[2]
        mean, deviation = statistics.mean([80, 76]), statistics.stdev([80, 76])
        assert rows[3][0].startswith("Mean of 2 seeds") and len(rows) == 4
        assert rows[3][4] == f"{mean:.1f} ±\xa0{deviation:.1f}", rows[3][4]
        bold = [text_of(node) for node in page.find("b", table)]
        # R@1 of c, three times; R@3 and mAP are the same for all three.
        assert bold == ["90.0", "85.0"] * 2 + ["90.0"] * 4 + ["85.0"], bold

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
        assert len(rows_of(page, table)) == 5

    @case("curves: all runs, at most 500 points, with the extremes")
    def _():
        page, _, _ = make_page("a", "b", "c")
        charts = page.find("svg", section(page, "curves"), class_="chart")
        titles = [node["of"]["aria-label"] for node in charts]
        assert titles == ["Loss", "Invariance", "Discrepancy", "R@1, %", "mAP, %", "Mean cosine",
                          "Effective rank", "p of uniformity", "Learning rate", "Gradient norm",
                          "Images per second"], titles
        lines = page.find("g", charts[0], class_="line")
        assert [node["of"]["data-name"] for node in lines] == ["a", "b", "c"]
        for node, seed in zip(lines, (0, 1, 0)):
            x = [float(word) for word in node["of"]["data-x"].split()]
            y = [float(word) for word in node["of"]["data-y"].split()]
            assert 300 < len(x) == len(y) <= 500 and x == sorted(x) and x[-1] == STEPS
            assert max(y) == 7.5 and min(y) == 0.015625
            for step, value in zip(x, y):
                assert math.isclose(value, loss_of(int(step), seed), rel_tol=1e-5)
            assert "highest 7.5" in text_of(page.find("title", node)[0])
        dashes = [page.find("path", node)[0]["of"].get("stroke-dasharray") for node in lines]
        assert len(set(dashes)) == 3, dashes

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


def test_odd_input():
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
        rows = rows_of(page, page.find("table")[0])
        assert rows[0][2:5] == ["–"] * 3 and rows[1][2:5] == ["8.3", "8.3", "10.0"], rows
        bold = [text_of(node) for node in page.find("b", page.find("table")[0])]
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

    @case("a run that has only begun: its settings alone")
    def _():
        os.makedirs("a")
        with open("a/config.toml", "w") as file:
            file.write("batch = 8 # default\n")
        page, _, done = make_page("a")
        assert "nothing has been logged" in done.stderr
        assert [node["of"]["id"] for node in page.find("section")] == [
            "comparison", "kernels", "retrieval", "views", "configuration"]
        clean("a")

    make_run("a", lines=60)
    os.makedirs("empty")
    refused("no run", 2, "RUN is missing", "report")
    refused("a folder that is not there", 1, "is no run folder", "report", "nowhere")
    refused("a folder that is no run", 1, "empty is no run folder: it has no config.toml", "report",
            "a", "empty")
    refused("too many runs", 2, "RUN", "report", *["a"] * 21)
    refused("a place that is not there", 1, "nowhere/page.html", "report", "a", "--no-pictures",
            "--out", "nowhere/page.html")
    refused("a folder in the page's place", 1, "empty", "report", "a", "--no-pictures", "--out",
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
        done = run("report", "a", "--no-pictures", "--out", "/dev/full")
        assert done.returncode == 1 and "/dev/full" in done.stderr, done.stderr

    clean("a", "empty")


# ---- pictures of a trained network ---------------------------------------------------------------

TINY = ("train", "textures:disk", "--texture-count", 40, "--texture-size", 24, "--side", 16,
        "--batch", 8, "--steps", 2, "--width", 0.0625, "--projector", "16-8", "--eval", "none",
        "--method", "mmd-band", "--quiet")


def test_pictures():
    if Image is None:
        skip("pictures", "this Python has no PIL")
        return
    done = run(*TINY, "--out", "run")
    if done.returncode != 0:
        report(False, "a small run to look at", done.stderr)
        clean("run")
        return

    def pictures(page, name):
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
        found = pictures(page, "retrieval")
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

    @case("views: the picture and two views of each of three")
    def _():
        page, _, _ = make_page("run", options=("--quiet",))
        found = pictures(page, "views")
        sizes = [image.size for _, image in found]
        assert sizes == [(24, 24), (16, 16), (16, 16)] * 3, sizes
        assert len({image.tobytes() for _, image in found}) == 9

    @case("without its weights a run is still reported, with the reason")
    def _():
        shutil.rmtree("run/checkpoints")
        page, text, _ = make_page("run", options=("--quiet",))
        assert "Left out" in text_of(section(page, "retrieval"))
        assert not pictures(page, "retrieval") and pictures(page, "views")
        page, text, _ = make_page("run")
        assert "--no-pictures" in text_of(section(page, "views")) and not page.find("img")

    clean("run")


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


def test_browser():
    if not CHROMIUM or Image is None:
        skip("in a browser", "there is no chromium" if not CHROMIUM else "this Python has no PIL")
        return
    make_run("a", lines=120)
    make_run("b-with-a-rather-long-name-that-goes-on-and-on", method="kl-heat", r1=0.9, lines=120)
    assert run("report", "a", "b-with-a-rather-long-name-that-goes-on-and-on", "--no-pictures",
               "--out", "page.html").returncode == 0
    with open("page.html", encoding="utf-8") as file:
        text = file.read()
    with open("probe.html", "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", PROBE))

    @case("a fault of a script would be seen")
    def _():
        with open("fault.html", "w") as file:
            file.write("<!DOCTYPE html><title>x</title><script>nothing.at.all()</script>")
        assert browse("fault.html", "--dump-dom")[1]
        os.remove("fault.html")

    for width, dark in ((1280, False), (390, False), (1280, True), (390, True)):
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

    for width in (1280, 390):
        @case(f"{width} pixels wide: no sideways scrolling, values under the pointer")
        def _():
            with open("frame.html", "w") as file:
                file.write(FRAME % width)
            done, console = browse("frame.html", "--window-size=1400,1100", "--dump-dom")
            os.remove("frame.html")
            assert not console, console
            probe = json.loads(html.unescape(
                re.search(r'data-probe="([^"]*)"', done.stdout).group(1)))
            assert probe["window"] == width and probe["wide"] <= width, probe
            assert not probe["hidden"] and probe["dots"] == 2, probe
            lines = probe["shown"].split("\n")
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
    os.remove("probe.html")
    clean("a", "b-with-a-rather-long-name-that-goes-on-and-on")


run_tests(test_parts, test_odd_input, test_pictures, test_browser)
