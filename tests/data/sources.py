"""What the tests of readers share: data_tool.c says what the library makes of a file."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)
try:
    import h5py
except ImportError:
    h5py = None
try:
    from PIL import Image
except ImportError:
    Image = None

from harness import report, skip

TOOL = os.path.join(os.environ.get("ZONAL_BUILD_DIR", "build"), "tests", "data_tool")
FASHION = "/usr/share/datasets/fashion-mnist"
SANITIZED = b"__asan_init" in open(TOOL, "rb").read()
ALL, TRAIN, VAL, TEST = range(4)
AS_IS, CENTRE, STRETCH = range(3)


class Skip(Exception):
    pass


def case(function):
    """Runs a function as one test in a folder of its own; an exception is a failure."""
    name = function.__name__
    try:
        with tempfile.TemporaryDirectory() as folder:
            function(folder)
        report(True, name)
    except Skip as reason:
        skip(name, reason)
    except Exception as error:  # the remaining tests are still worth running
        report(False, name, f"{type(error).__name__}: {error}")
    return function


def tool(*arguments, **environment):
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=100,
                          env={**os.environ, **environment})
    assert done.returncode in (0, 1), f"{arguments}: status {done.returncode}\n{done.stderr}"
    assert not done.stderr, f"{arguments} printed: {done.stderr}"
    answer = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        answer.setdefault(key, []).append(value)
    answer["failed"] = done.returncode != 0
    if answer["failed"] and answer.get("status") == ["UNSUPPORTED"]:
        raise Skip(answer["sentence"][0])
    return answer


def peak(*arguments):
    """Exit status, and the most memory in MB that it took (0 under the sanitizers, whose own is
    many times that)."""
    running = subprocess.Popen([TOOL, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    return running.returncode, 0 if SANITIZED else used.ru_maxrss / 1024


def numbers(answer, key):
    return np.array(answer[key][0].split(), dtype=np.int64)


class Source:
    """What the library reads at a path."""

    def __init__(self, path, split=ALL, channels=0, seed=0):
        with tempfile.NamedTemporaryFile() as out:
            answer = tool("dump", path, split, channels, seed, out.name)
            assert not answer["failed"], answer["sentence"][0]
            raw = np.fromfile(out.name, dtype=np.uint8)
        self.kind = answer["kind"][0]
        self.count = int(answer["count"][0])
        self.classes = int(answer["classes"][0])
        self.size = tuple(numbers(answer, "size"))
        self.names = answer.get("name")
        self.labels = numbers(answer, "labels")
        self.order = numbers(answer, "order")
        self.images, at = [], 0
        for line in answer.get("image", []):
            width, height, depth = map(int, line.split())
            self.images.append(raw[at:at + width * height * depth].reshape(height, width, depth))
            at += width * height * depth
        assert at == len(raw) and len(self.images) == self.count


def refused(path, status, text, split=ALL):
    answer = tool("dump", path, split, 0, 0, os.devnull)
    assert answer["failed"], f"{path} was accepted"
    assert answer["status"] == [status], answer
    sentence = answer["sentence"][0]
    assert text in sentence, f"{sentence!r} does not have {text!r}"
    assert os.path.basename(path) in sentence, f"{sentence!r} does not name {path}"


def equal(got, want):
    assert len(got) == len(want), f"{len(got)} images, want {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and np.array_equal(g, w), f"image {i} differs"


def allocations(path):
    done = subprocess.run([TOOL, "allocations", path], stdout=subprocess.PIPE, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stdout


def check_split(path, n, labels):
    """Train, val and test of a source without splits: disjoint, exhaustive, a tenth each within 5
    standard deviations of a binomial count, and some of each class."""
    parts = [Source(path, split, seed=5) for split in (TRAIN, VAL, TEST)]
    together = np.concatenate([p.order for p in parts])
    assert sorted(together) == list(range(n))
    for part, share in zip(parts, (None, 0.1, 0.1)):
        assert np.array_equal(part.labels, labels[part.order])
        if share:
            assert abs(part.count - share * n) < 5 * (n * share * (1 - share)) ** 0.5 + 1
        for c in np.unique(labels):
            assert np.sum(part.labels == c) >= (np.sum(labels == c) > 2)
    return parts
