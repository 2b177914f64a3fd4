#!/usr/bin/env python3
"""zonal eval by the protocols of other projects: lightly's k-NN against a restatement in numpy on the
features that zonal embed writes; what is stored, printed and refused. ZONAL_PROGRAM is the program to
test."""
import os
import shutil

from eval_runs_test import done_well, stored, train, write_idx
from harness import case, refused, run_json, run_tests, skip

QUIET = ("--quiet",)


def make_run():
    write_idx("images", "train", 300, 0)
    write_idx("images", "t10k", 60, 7)
    train("run", "--val-share", 0)


def features(numpy, split):
    done_well("embed", "run", "--split", split, "--out", "e.npy", "--labels", "l.npy", "--quiet")
    x = numpy.load("e.npy").astype(numpy.float64)
    return x / numpy.linalg.norm(x, axis=1, keepdims=True), numpy.load("l.npy")


def lightly_accuracy(numpy):
    """200 neighbours by cosine vote with exp(cosine / 0.1)."""
    bank, bank_labels = features(numpy, "train")
    queries, labels = features(numpy, "test")
    cosine = queries @ bank.T
    right = 0
    for row, label in zip(cosine, labels):
        nearest = numpy.argsort(-row, kind="stable")[:200]
        votes = numpy.bincount(bank_labels[nearest], numpy.exp(row[nearest] / 0.1), minlength=10)
        right += int(numpy.argmax(votes)) == label
    return right / len(labels), len(bank)


def test_lightly():
    try:
        import numpy
    except ImportError:
        skip("lightly-knn", "no numpy")
        return
    make_run()

    @case("lightly-knn is what numpy makes of the features")
    def _():
        want, count = lightly_accuracy(numpy)
        (found,) = run_json("eval", "run", "--protocol", "lightly-knn", *QUIET)["results"]
        assert count == 300 and 0.1 < want < 1, (count, want)  # the case tells right from wrong
        assert abs(found["accuracy"] - want) < 1e-12, (found["accuracy"], want)
        assert found["protocol"] == "lightly-knn" and found["features"] == "backbone", found
        assert (found["k"], found["temperature"], found["train"]) == (200, 0.1, 300), found

    @case("lightly-knn is knn with its numbers, and has a name and a file of its own")
    def _():
        other = run_json("eval", "run", "--protocol", "knn", "--k", 200, "--temperature", 0.1,
                         "--features", "backbone", *QUIET)["results"][0]  # fmt: skip
        (own,) = stored("run/eval/lightly-knn.json")
        assert own["accuracy"] == other["accuracy"] and own["protocol"] != other["protocol"]
        assert "lightly-knn: 60 test images" in done_well("eval", "run", "--protocol", "lightly-knn")

    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)


def test_solo():
    make_run()

    @case("solo-linear: 100 epochs of SGD at rate 0.3, or another rate")
    def _():
        (found,) = run_json("eval", "run", "--protocol", "solo-linear", *QUIET)["results"]
        assert found["protocol"] == "solo-linear" and found["features"] == "backbone", found
        assert (found["epochs"], found["rate"]) == (100, 0.3), found
        assert found["accuracy"] > 0.15, found  # of ten classes, by two steps of training
        (other,) = run_json("eval", "run", "--protocol", "solo-linear", "--lr", 1, *QUIET)["results"]
        assert other["rate"] == 1 and len(stored("run/eval/solo-linear.json")) == 2

    @case("the report and the card name both protocols")
    def _():
        done_well("eval", "run", "--protocol", "lightly-knn", *QUIET)
        done_well("report", "run", "--no-examples", "--out", "r.html")
        with open("r.html", encoding="utf-8") as file:
            page = file.read()
        assert "k-NN (lightly)" in page and "Linear probe (solo-learn)" in page
        done_well("export", "run", "--out", "b.safetensors", "--card")
        card = next(name for name in os.listdir() if name.endswith(".md"))
        with open(card, encoding="utf-8") as file:
            text = file.read()
        assert "k-NN as lightly's benchmark" in text and "linear probe as solo-learn's" in text, text

    for option, value in (("--k", 20), ("--temperature", 1), ("--features", "projector"), ("--sgd", 3)):
        refused(f"{option} beside a protocol that settles it", 2, option, "eval", "run", "--protocol",
                "lightly-knn", option, value)  # fmt: skip
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)


if __name__ == "__main__":
    run_tests(test_lightly, test_solo)
