"""What the tests of zonal report share: run folders made here, and pages as trees."""
import json
import math
import os
import shutil
from html.parser import HTMLParser

from harness import run

STEPS = 700
VOID = {"meta", "img", "br", "line", "rect", "circle", "input", "link"}


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
                "method": json.dumps(method), "gain": "256", "lr": "0.001", "seed": str(seed),
                **dict(extra)}
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
                file.write(json.dumps({"kind": "monitor", "step": step, "mean_cosine": 0.1,
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


def make_page(*folders, options=("--no-examples",)):
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


def heads_of(page, table):
    return [text_of(node) for node in page.find("th", page.find("thead", table)[0])]


def section(page, name):
    return page.find("section", id=name)[0]


def clean(*names):
    for name in names:
        shutil.rmtree(name, ignore_errors=True)
