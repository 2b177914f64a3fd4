#!/usr/bin/env python3
"""zonal eval of several runs: which have a mean, what is stored in a run's folder and what is not,
and that a result is printed whatever becomes of the file it should go to. The oracle for means is
Python's statistics on the results of each run alone."""
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import time

from harness import PROGRAM, case, refused, run, run_json, run_tests, skip

SIDE, CLASSES, TRAIN, TEST = 8, 10, 100, 24


def write_idx(folder, part, count, shift):
    """Noise whose level tells the class."""
    os.makedirs(folder, exist_ok=True)
    state, pixels = 12345 + shift, bytearray()
    for i in range(count * SIDE * SIDE):
        state = (1103515245 * state + 12345) % 2**31
        pixels.append((state >> 16) % 90 + 16 * (i // (SIDE * SIDE) % CLASSES))
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + pixels)
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(i % CLASSES for i in range(count)))


def make_images(folder, shift=0):
    write_idx(folder, "train", TRAIN, shift)
    write_idx(folder, "t10k", TEST, shift)


def write_bmp(path, level):
    """Eight rows of eight pixels, which no library is needed to read."""
    head = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + 3 * SIDE * SIDE, 0, 54, 40, SIDE, SIDE, 1, 24,
                       0, 0, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(head + bytes((level + 3 * i) % 256 for i in range(3 * SIDE * SIDE)))


def make_classes(folder, names, count):
    for part in ("train", "test"):
        for c, name in enumerate(names):
            os.makedirs(f"{folder}/{part}/{name}")
            for i in range(count):
                write_bmp(f"{folder}/{part}/{name}/{i}.bmp", 60 * c + 5 * i + (part == "test"))


def done_well(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done.stdout


def train(out, *arguments, data="images", steps=2):
    done_well("train", data, "--out", out, "--steps", steps, "--batch", 8, "--width", "0.015625",
              "--projector", "8", "--device", "cpu", "--precision", "fp32", "--eval", "none",
              "--quiet", *arguments)


def change(path, old, new):
    with open(path) as file:
        text = file.read()
    assert old in text, f"{path} has no {old}"
    with open(path, "w") as file:
        file.write(text.replace(old, new))


def stored(path):
    with open(path) as file:
        return json.load(file)["results"]


RETRIEVAL = ("--protocol", "retrieval", "--features", "backbone", "--quiet")
KNN = ("--protocol", "knn", "--features", "backbone", "--quiet")


# ---- which runs have a mean ----------------------------------------------------------------------


def test_means():
    make_images("images")
    for seed in range(3):
        train(f"run-{seed}", "--seed", seed, "--threads", 1 + seed % 2)
    train("rate", "--seed", 3, "--lr", "0.01")

    @case("runs that differ in the seed have a mean, others of the method have none")
    def _():
        found = run_json("eval", "run-0", "run-1", "rate", "run-2", *RETRIEVAL)
        assert len(found["results"]) == 4
        (mean,) = found["means"]
        assert mean["subjects"] == ["run-0", "run-1", "run-2"] and mean["over"] == "runs"
        values = [result["map"] for result in found["results"] if result["subject"] != "rate"]
        assert abs(mean["map"]["mean"] - statistics.mean(values)) < 1e-12
        assert abs(mean["map"]["std"] - statistics.stdev(values)) < 1e-12

    @case("the table says by what runs of one method differ, within 80 columns")
    def _():
        text = done_well("eval", "run-0", "run-1", "rate", "--quiet")
        assert "mean of 2 runs" in text and "differ in lr (0.001 and 0.01)" in text, text
        assert "k 20, T 0.07" in text and "24 test images" in text, text
        assert all(len(line) <= 80 for line in text.splitlines()), text
        # Both methods and features: one heading for each protocol.
        assert len(re.findall("^(knn|linear|retrieval|diagnostics): ", text, re.M)) == 4, text

    @case("among fewer images than the usual k all of them vote; a k that was asked for is refused")
    def _():
        (found,) = run_json("eval", "run-0", *KNN, "--limit", 5)["results"]
        assert found["k"] == 5, found
        done = run("eval", "run-0", *KNN, "--limit", 5, "--k", 20)
        assert done.returncode == 2 and "choose k from 1 to 5" in done.stderr, done.stderr

    @case("a run is one sample, however many seeds the evaluation has")
    def _():
        found = run_json("eval", "run-0", "run-1", *RETRIEVAL, "--seeds", 3)
        (mean,) = found["means"]
        of = {name: [r["map"] for r in found["results"] if r["subject"] == name]
              for name in ("run-0", "run-1")}
        each = [statistics.mean(values) for values in of.values()]
        assert mean["count"] == 2 and len(of["run-0"]) == 3
        assert abs(mean["map"]["std"] - statistics.stdev(each)) < 1e-12
        (mean,) = run_json("eval", "run-0", *RETRIEVAL, "--seeds", 3)["means"]
        assert mean["count"] == 3 and mean["over"] == "seeds"
        assert abs(mean["map"]["std"] - statistics.stdev(of["run-0"])) < 1e-12

    @case("a copy of a run is no second sample; nor is a run on other data or of fewer steps")
    def _():
        shutil.copytree("run-0", "copy")
        assert run_json("eval", "run-0", "copy", *RETRIEVAL)["means"] == []
        make_images("others", 7)
        train("on-others", "--seed", 9, data="others")
        assert run_json("eval", "run-0", "on-others", *RETRIEVAL)["means"] == []
        shutil.copytree("images", "moved")  # the same images elsewhere are the same data
        train("on-moved", "--seed", 9, data="moved")
        assert len(run_json("eval", "run-0", "on-moved", *RETRIEVAL)["means"]) == 1
        for seed in range(2):
            train(f"long-{seed}", "--seed", seed, "--checkpoint-every", 2, "--keep", 3, steps=4)
        assert len(run_json("eval", "long-0", "long-1", *RETRIEVAL)["means"]) == 1
        os.remove("long-1/checkpoints/step-00000004.safetensors")
        done = run("eval", "long-0", "long-1", *RETRIEVAL[:-1])
        assert "long-1 is not finished: the weights are of step 2 of 4" in done.stderr, done.stderr
        assert "mean of" not in done.stdout and "steps done (4 and 2)" in done.stdout, done.stdout

    @case("a run that was made longer is no sample of those of that length")
    def _():
        train("longer", "--seed", 5)
        done_well("train", "--resume", "longer", "--steps", 4, "--quiet")
        train("whole", "--seed", 6, steps=4)
        assert run_json("eval", "longer", "whole", *RETRIEVAL)["means"] == []
        text = " ".join(done_well("eval", "longer", "whole", *RETRIEVAL).split())
        assert "steps (4 by --resume at step 2; 2 steps before and 4)" in text, text

    @case("the steps of best checkpoints are no reason against a mean")
    def _():
        train("long-rate", "--lr", "0.01", "--checkpoint-every", 2, "--keep", 3, steps=4)
        for name, step in (("long-0", 4), ("long-rate", 2)):
            shutil.copy(f"{name}/checkpoints/step-{step:08}.safetensors",
                        f"{name}/checkpoints/best.safetensors")
        text = done_well("eval", "long-0", "long-rate", *RETRIEVAL, "--checkpoint", "best")
        assert "differ in lr (0.001 and 0.01)." in " ".join(text.split()), text

    for name in os.listdir():
        shutil.rmtree(name)


# ---- what is stored ------------------------------------------------------------------------------


def test_stored():
    make_images("images")
    train("run")

    @case("a result carries its counts and conditions; --limit does not replace a whole one")
    def _():
        (whole,) = run_json("eval", "run", *KNN)["results"]
        assert (whole["test"], whole["k"], whole["temperature"]) == (TEST, 20, 0.07)
        assert "limit" not in whole and whole["part"] == "test" and whole["step"] == 2
        for part in ("k 20", "T 0.07", "test part of", "images", "checkpoint last"):
            assert part in whole["conditions"], whole["conditions"]
        before = open("run/eval/knn.json").read()
        (partial,) = run_json("eval", "run", *KNN, "--limit", 20)["results"]
        assert (partial["test"], partial["train"], partial["limit"]) == (20, 20, 20)
        assert open("run/eval/knn.json").read() == before
        (kept,) = stored("run/eval/partial/knn.json")
        assert kept["test"] == 20 and kept["conditions"] != whole["conditions"]
        run_json("eval", "run", *KNN, "--limit", 1000)  # that is all of them
        assert open("run/eval/knn.json").read() == before
        text = done_well("eval", "run", *KNN, "--limit", 20)
        assert "20 test images, 20 to learn from (--limit)" in text, text

    @case("a limit that leaves out nothing is none, also where it is the number of images")
    def _():
        (whole,) = run_json("eval", "run", *RETRIEVAL)["results"]
        for limit, partial in ((TEST, False), (TEST - 1, True)):
            (found,) = run_json("eval", "run", *RETRIEVAL, "--limit", limit)["results"]
            assert ("limit" in found) == partial and found["test"] == limit
            assert (found["conditions"] == whole["conditions"]) == (not partial)
            assert os.path.exists("run/eval/partial/retrieval.json") == partial

    @case("other conditions stand beside, the same replace")
    def _():
        run_json("eval", "run", *KNN, "--k", 5)
        run_json("eval", "run", *KNN, "--split", "val")
        run_json("eval", "run", *KNN, "--checkpoint", "best")
        run_json("eval", "run", *KNN, "--mean", "0.4")
        run_json("eval", "run", *KNN, "--k", 5)
        found = [(r["k"], r["part"]) for r in stored("run/eval/knn.json")]
        want = [(5, "test"), (20, "test"), (20, "test"), (20, "val"), (20, "test")]
        assert found == want, found
        assert len({r["conditions"] for r in stored("run/eval/knn.json")}) == 5

    @case("overridden settings stand beside the run's own results, and after them")
    def _():
        before = stored("run/eval/knn.json")
        assert not any("overrides" in r for r in before)
        for override in (("--data-seed", 3), ("--val-share", "0.3"), ("--augmentation", "texture")):
            (found,) = run_json("eval", "run", *KNN, "--k", 5, *override)["results"]
            said = " ".join(map(str, override))
            assert found["overrides"] == said, found["overrides"]
            assert found["conditions"] == before[0]["conditions"] + "; with " + said
        after = stored("run/eval/knn.json")
        assert after[:len(before)] == before and len(after) == len(before) + 3
        run_json("eval", "run", *KNN, "--k", 5, "--data-seed", 3)  # the same replace each other
        assert len(stored("run/eval/knn.json")) == len(after)
        # What the run's own settings are is no override, however the number is written.
        (same,) = run_json("eval", "run", *KNN, "--k", 5, "--data-seed", "00", "--val-share",
                           "0.10", "--augmentation", "byol")["results"]
        assert "overrides" not in same and same["conditions"] == before[0]["conditions"], same

    @case("other classes are not the run's; a copy of its own list is")
    def _():
        make_classes("classes", "abc", 6)
        with open("own.txt", "w") as file:
            file.write("a\nb\nc\n")
        with open("two.txt", "w") as file:
            file.write("a\nb\n")
        train("of-classes", "--class-list", "own.txt", data="classes")
        (own,) = run_json("eval", "of-classes", *KNN)["results"]
        (two,) = run_json("eval", "of-classes", *KNN, "--class-list", "two.txt")["results"]
        assert own["test"] == 18 and two["test"] == 12
        assert two["overrides"] == "--class-list " + os.path.realpath("two.txt"), two
        assert stored("of-classes/eval/knn.json")[0]["test"] == 18
        shutil.move("own.txt", "moved.txt")
        (same,) = run_json("eval", "of-classes", *KNN, "--class-list", "moved.txt")["results"]
        assert same["conditions"] == own["conditions"] and "overrides" not in same, same
        assert [r["test"] for r in stored("of-classes/eval/knn.json")] == [18, 12]

    for name in ("own.txt", "two.txt", "moved.txt"):
        if os.path.exists(name):
            os.remove(name)

    @case("the size and the number of textures are settings of the images")
    def _():
        train("of-textures", "--texture-count", 40, "--texture-size", 20, "--side", 16,
              data="textures:disk")
        (own,) = run_json("eval", "of-textures", *RETRIEVAL)["results"]
        for override in (("--texture-count", 60), ("--texture-size", 24)):
            (found,) = run_json("eval", "of-textures", *RETRIEVAL, *override)["results"]
            assert found["overrides"] == " ".join(map(str, override))
        kept = [r.get("overrides", "") for r in stored("of-textures/eval/retrieval.json")]
        assert kept == ["", "--texture-count 60", "--texture-size 24"], kept
        assert stored("of-textures/eval/retrieval.json")[0]["conditions"] == own["conditions"]

    @case("results on other data do not stand before those on the run's own")
    def _():
        make_images("others", 3)
        before = stored("run/eval/knn.json")
        run_json("eval", "run", *KNN, "--data", "others")
        after = stored("run/eval/knn.json")
        assert after[:-1] == before and after[-1]["data"].endswith("others")
        run_json("eval", "run", "--protocol", "diagnostics", "--quiet")
        energy = json.load(open("run/eval/diagnostics.json"))["energy"]
        run_json("eval", "run", "--protocol", "diagnostics", "--quiet", "--data", "others")
        assert json.load(open("run/eval/diagnostics.json"))["energy"] == energy

    @case("evaluations at the same time keep all their results")
    def _():
        before = stored("run/eval/knn.json")
        processes = [subprocess.Popen([PROGRAM, "eval", "run", *KNN, "--k", str(k), "--threads", "1"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                     for k in range(31, 43)]
        for process in processes:
            _, error = process.communicate(timeout=100)
            assert process.returncode == 0 and not error, error
        after = stored("run/eval/knn.json")
        assert sorted(r["k"] for r in after[:12]) == list(range(31, 43)), [r["k"] for r in after]
        assert after[12:] == before

    @case("whoever writes the results is waited for")
    def _():
        text, held = open("run/eval/knn.json").read(), os.open("run/eval", os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        process = subprocess.Popen([PROGRAM, "eval", "run", *KNN, "--k", "43"],
                                   stdout=subprocess.DEVNULL)
        try:
            process.wait(1)
            assert False, "it did not wait"
        except subprocess.TimeoutExpired:
            assert open("run/eval/knn.json").read() == text
        os.close(held)
        assert process.wait(60) == 0 and stored("run/eval/knn.json")[0]["k"] == 43

    @case("a damaged file is put aside, and that is said")
    def _():
        with open("run/eval/knn.json", "w") as file:
            file.write('{"results": [{"protocol": "kn')
        done = run("eval", "run", "--protocol", "knn")
        assert done.returncode == 0 and "knn.json.damaged" in done.stderr, done.stderr
        assert len(stored("run/eval/knn.json")) == 2
        assert open("run/eval/knn.json.damaged").read().endswith('"kn')
        with open("run/eval/knn.json", "w") as file:
            file.write("another")
        done_well("eval", "run", *KNN)
        assert open("run/eval/knn.json.damaged").read().endswith('"kn')
        assert open("run/eval/knn.json.damaged-2").read() == "another"

    @case("results of an earlier version, without conditions, are replaced")
    def _():
        with open("run/eval/knn.json", "w") as file:
            json.dump({"weights": "w", "results": [{"protocol": "knn", "accuracy": 1}]}, file)
        run_json("eval", "run", *KNN, "--data-seed", 3)
        assert len(stored("run/eval/knn.json")) == 2
        os.remove("run/eval/knn.json")
        with open("run/eval/knn.json", "w") as file:
            json.dump({"weights": "w", "results": [{"protocol": "knn", "accuracy": 1}]}, file)
        run_json("eval", "run", *KNN)
        (result,) = stored("run/eval/knn.json")
        assert result["accuracy"] < 1 or "conditions" in result

    for name in os.listdir():
        shutil.rmtree(name)


# ---- what cannot be stored -----------------------------------------------------------------------


def no_room():
    """Files longer than 100 bytes cannot be written; the signal that says so is ignored."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def case_without_room(name):
    """A case that runs the program under no_room. LLVM's OpenMP ends a program that cannot make a
    file of 1 KiB in /dev/shm, before it comes to main."""
    needs = subprocess.run(["ldd", PROGRAM], stdout=subprocess.PIPE, text=True).stdout
    if "libomp" not in needs:
        return case(name)
    return lambda function: skip(name, "LLVM's OpenMP does not start where files cannot be written")


def test_not_stored():
    make_images("images")
    train("run")

    @case("where RUN/eval cannot be made the result is printed, with a warning and status 0")
    def _():
        open("run/eval", "w").close()  # root may write anywhere, but not below a file
        done = run("eval", "run", *KNN)
        assert done.returncode == 0, done.stderr
        assert "top 1" in done.stdout and "24 test images" in done.stdout, done.stdout
        assert done.stderr.startswith("zonal: warning: ") and "run/eval" in done.stderr
        assert done.stderr.count("\n") == 1
        os.remove("run/eval")

    @case("no link in a run folder is followed: the result is printed, with a warning")
    def _():
        os.makedirs("elsewhere")
        for link, target in (("run/eval", "elsewhere"), ("run/eval/partial", "elsewhere"),
                             ("run/eval/knn.json", "precious.json")):
            if link != "run/eval":
                os.makedirs("run/eval", exist_ok=True)
            with open("precious.json", "w") as file:
                file.write('{"results": [], "mine": 1}')
            os.symlink(os.path.abspath(target), link)
            done = run("eval", "run", *KNN, *(("--limit", 20) if "partial" in link else ()))
            assert done.returncode == 0 and "top 1" in done.stdout, done.stderr
            assert done.stderr.startswith("zonal: warning: ") and link in done.stderr, done.stderr
            assert os.listdir("elsewhere") == [] and os.path.islink(link)
            assert open("precious.json").read() == '{"results": [], "mine": 1}'
            os.remove(link)
        shutil.rmtree("run/eval")
        os.remove("precious.json")
        os.rmdir("elsewhere")

    @case_without_room("a full disk: printed, a warning, the old file whole, nothing half-written")
    def _():
        before = run_json("eval", "run", *KNN)
        text = open("run/eval/knn.json").read()
        done = run("eval", "run", *KNN, "--json", preexec_fn=no_room)
        assert done.returncode == 0 and "warning" in done.stderr, done.stderr
        assert json.loads(done.stdout) == before
        assert open("run/eval/knn.json").read() == text
        assert os.listdir("run/eval") == ["knn.json"], os.listdir("run/eval")

    @case_without_room("--out: the same as JSON; that it cannot be written is a failure")
    def _():
        before = run_json("eval", "run", *KNN, "--detail", "--out", "found.json")
        assert json.load(open("found.json")) == before
        done = run("eval", "run", *KNN, "--out", "found.json", preexec_fn=no_room)
        assert done.returncode == 1 and "found.json" in done.stderr and "top 1" in done.stdout
        assert json.load(open("found.json")) == before
        os.remove("found.json")

    refused("--out nowhere", 1, "nowhere/found.json", "eval", "run", *KNN, "--out",
            "nowhere/found.json")

    @case("what was found before a failure is printed and stored")
    def _():
        shutil.copytree("run", "second")
        change("second/config.toml", os.path.realpath("images"), "/nowhere/images")
        shutil.rmtree("run/eval", ignore_errors=True)
        done = run("eval", "run", "second", *KNN)
        assert done.returncode == 1 and "top 1" in done.stdout, done.stdout
        assert "second" in done.stderr and "/nowhere/images" in done.stderr, done.stderr
        assert "--data" in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert len(stored("run/eval/knn.json")) == 1

    @case("what one protocol has found is stored before the next, and kept if that fails")
    def _():
        shutil.rmtree("run/eval")
        write_idx("one", "train", TRAIN, 0)
        write_idx("one", "t10k", 1, 0)
        done = run("eval", "run", "--features", "backbone", "--quiet", "--data", "one")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "2 images or more" in done.stderr and "is 1 in the test part" in done.stderr
        assert sorted(os.listdir("run/eval")) == ["knn.json", "linear.json"]
        assert [r["test"] for r in stored("run/eval/linear.json")] == [1]
        shutil.rmtree("run/eval")
        process = subprocess.Popen(
            [PROGRAM, "eval", "run", "--quiet", "--features", "backbone", "--protocol", "all",
             "--sgd", "10000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2000):
            if os.path.exists("run/eval/knn.json") or process.poll() is not None:
                break
            time.sleep(0.01)
        assert process.poll() is None, "10000 epochs took no time"
        process.terminate()
        process.wait(60)
        assert os.listdir("run/eval") == ["knn.json"] and len(stored("run/eval/knn.json")) == 1
        shutil.rmtree("run/eval")

    @case("seeds and features are stored in their order, however often the file is written")
    def _():
        found = run_json("eval", "run", "--protocol", "linear", "--seeds", 3, "--quiet")["results"]
        assert [(r["features"], r["seed"]) for r in stored("run/eval/linear.json")] == [
            (r["features"], r["seed"]) for r in found]
        shutil.rmtree("run/eval")
        run_json("eval", "run", *KNN)

    @case("moved data: --data says where it is, and the result is the same")
    def _():
        (there,) = run_json("eval", "run", *KNN)["results"]
        (moved,) = run_json("eval", "second", *KNN, "--data", "images")["results"]
        assert moved["accuracy"] == there["accuracy"]
        run_json("eval", "second", *KNN, "--data", "images", "--k", 3)  # still its own: comes first
        assert [r["k"] for r in stored("second/eval/knn.json")] == [3, 20]

    @case("a run that is not finished says so")
    def _():
        change("second/config.toml", "/nowhere/images", os.path.realpath("images"))
        change("second/config.toml", "steps = 2 ", "steps = 5 ")
        done = run("eval", "second", *KNN[:-1])
        assert done.returncode == 0 and "step 2 of 5" in done.stderr, done.stderr

    shutil.copytree("run", "broken")
    with open("broken/config.toml", "a") as file:
        file.write("temperature-of-the-moon = 3\n")
    refused("a run of another version", 1, "another version", "eval", "broken", *KNN)
    shutil.rmtree("broken/checkpoints")
    refused("a run without a checkpoint", 1, "no checkpoint", "eval", "broken", *KNN)
    os.remove("broken/config.toml")
    refused("a folder that is no run", 1, "not a run folder", "eval", "broken", *KNN)
    refused("seeds beyond the largest", 2, "--seed", "eval", "run", *RETRIEVAL, "--seed",
            2**63 - 1, "--seeds", 2)

    @case("the largest seed is a seed")
    def _():
        for protocol in ("retrieval", "linear"):
            (result,) = run_json("eval", "run", "--protocol", protocol, "--features", "backbone",
                                 "--quiet", "--seed", 2**63 - 1)["results"]
            assert result["seed"] == 2**63 - 1

    for name in os.listdir():
        shutil.rmtree(name)


run_tests(test_means, test_stored, test_not_stored)
