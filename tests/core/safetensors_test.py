#!/usr/bin/env python3
"""Safetensors files against a reader and a writer made here from the published format, numpy and
torch; configuration files against Python's tomllib. file_tool.c says what the library makes
of them."""
import json
import os
import random
import struct
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
    import torch
except ImportError:
    torch = None
try:
    import tomllib
except ImportError:
    tomllib = None

from harness import xxh64

TOOL = os.path.join(os.environ.get("ZONAL_BUILD_DIR", "build"), "tests", "file_tool")
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
         "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
passed = failed = skipped = 0


def report(good, name, why=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good and why:
        print("# " + str(why).replace("\n", "\n# "))
    print(f"{'ok' if good else 'not ok'} {passed + failed + skipped} - {name}", flush=True)


class Skip(Exception):
    pass


def case(function):
    """Runs a function as one test in a folder of its own; an exception is a failure."""
    global skipped
    name = function.__name__
    try:
        with tempfile.TemporaryDirectory() as folder:
            function(folder)
        report(True, name)
    except Skip as reason:
        skipped += 1
        print(f"ok {passed + failed + skipped} - {name} # SKIP {reason}")
    except Exception as error:  # the remaining tests are still worth running
        report(False, name, f"{type(error).__name__}: {error}")
    return function


def tool(*arguments):
    """(whether it went well, what it printed)"""
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100)
    assert done.returncode in (0, 1), f"{arguments}: status {done.returncode}\n{done.stderr}"
    assert not done.stderr, f"{arguments} printed: {done.stderr}"
    return done.returncode == 0, done.stdout.decode("utf-8")


def need(outcome):
    assert outcome[0], outcome[1]
    return outcome[1]


# ---- the format, once more ----------------------------------------------------------------------


def write(path, tensors, metadata=None, shuffle=None):
    """tensors: name -> (type, array). The header may list them in another order than the data."""
    entries, data = [], b""
    for name, (kind, array) in tensors.items():
        raw = np.ascontiguousarray(array, dtype=TYPES[kind]).tobytes()
        entries.append((name, {"dtype": kind, "shape": list(array.shape),
                               "data_offsets": [len(data), len(data) + len(raw)]}))
        data += raw
    if shuffle is not None:
        random.Random(shuffle).shuffle(entries)
    header = dict(entries)
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header, ensure_ascii=shuffle is not None).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0 and content[8:9] == b"{", "the data is not aligned to 8 bytes"

    def pairs(items):
        assert len({key for key, _ in items}) == len(items), "a key is there twice"
        return dict(items)

    header = json.loads(content[8:8 + length].decode("utf-8"), object_pairs_hook=pairs)
    metadata = header.pop("__metadata__", None)
    data, tensors, covered = content[8 + length:], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == covered, f"{name} does not follow the tensor before"
        covered = end
        kind = np.dtype(TYPES[entry["dtype"]])
        assert begin % kind.itemsize == 0, f"{name} is not aligned to its elements"
        tensors[name] = (entry["dtype"],
                         np.frombuffer(data[begin:end], kind).reshape(entry["shape"]))
    assert covered == len(data), "bytes that belong to no tensor"
    return tensors, metadata


def make(seed):
    """Tensors of every type in random shapes, some of them empty or scalars, all bits random."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for i, kind in enumerate(list(TYPES) * 2):
        shape = tuple(generator.integers(0 if i % 7 == 3 else 1, 5, generator.integers(0, 5)))
        size = np.dtype(TYPES[kind]).itemsize
        count = int(np.prod(shape))
        raw = generator.integers(0, 2 if kind == "BOOL" else 256, count * size, dtype=np.uint8)
        tensors[f"layer{i}.\u00e9\U0001f600\"\\\n{kind}"] = (
            kind, raw.view(TYPES[kind]).reshape(shape))
    return tensors


def as_float(kind, array):
    if kind == "BF16":
        return (array.reshape(-1).astype("<u4") << 16).view("<f4")
    with np.errstate(over="ignore", invalid="ignore"):
        return array.reshape(-1).astype("<f4")


def same(got, want):
    assert got.keys() == want.keys(), f"{got.keys()} are not {want.keys()}"
    for name, (kind, array) in want.items():
        assert got[name][0] == kind and got[name][1].shape == array.shape, name
        assert got[name][1].tobytes() == array.tobytes(), f"{name} differs"


@case
def copies_are_equal(folder):
    here, there = os.path.join(folder, "a"), os.path.join(folder, "b")
    notes = {"format": "pt", "text": "line\n\"\u00e9\"", "": "no key"}
    for seed in range(8):
        tensors, metadata = make(seed), {} if seed % 2 else {k: v for k, v in notes.items() if k}
        write(here, tensors, metadata, seed if seed > 1 else None)
        need(tool("copy", here, there, 0))
        got, got_notes = read(there)
        same(got, tensors)
        assert (got_notes or {}) == metadata, got_notes
        need(tool("copy", here, there, 1))
        got, got_notes = read(there)
        same(got, tensors)
        assert len(got_notes.pop("zonal.xxh64")) == 16 and got_notes == metadata


@case
def floats_are_numpys(folder):
    path, out = os.path.join(folder, "a"), os.path.join(folder, "b")
    for seed in range(8):
        tensors = make(seed)
        write(path, tensors)
        need(tool("floats", path, out))
        # NaN may change its payload on the way, and only that.
        want = np.concatenate([as_float(*tensor) for tensor in tensors.values()])
        got = np.fromfile(out, "<f4")
        assert np.array_equal(got, want, equal_nan=True), f"seed {seed}"
        signs = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[signs]), np.signbit(want[signs]))


@case
def checksum_is_xxh64(folder):
    here, there = os.path.join(folder, "a"), os.path.join(folder, "b")
    for seed in range(4):
        write(here, make(seed))
        need(tool("copy", here, there, 1))
        digits = read(there)[1]["zonal.xxh64"].encode()
        content = open(there, "rb").read()
        assert content.count(digits) == 1
        assert digits == b"%016x" % xxh64(content.replace(digits, b"0" * 16))


@case
def bfloat16_is_torchs(folder):
    if torch is None:
        raise Skip("this Python has no torch")
    path, out = os.path.join(folder, "a"), os.path.join(folder, "b")
    bits = np.arange(65536, dtype=np.uint16)
    write(path, {"x": ("BF16", bits)})
    need(tool("floats", path, out))
    want = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert np.array_equal(np.fromfile(out, "<f4"), want, equal_nan=True)


@case
def a_network_comes_back(folder):
    try:
        import torchvision
    except ImportError:
        raise Skip("this Python has no torchvision")
    torch.manual_seed(1)
    names = {torch.float32: "F32", torch.int64: "I64"}
    state = torchvision.models.resnet18().state_dict()
    here, there = os.path.join(folder, "a"), os.path.join(folder, "b")
    write(here, {name: (names[t.dtype], t.numpy()) for name, t in state.items()}, {"format": "pt"})
    need(tool("copy", here, there, 1))
    got = {name: torch.from_numpy(array.copy()) for name, (_, array) in read(there)[0].items()}
    network = torchvision.models.resnet18()
    network.load_state_dict(got, strict=True)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


# ---- configuration files ------------------------------------------------------------------------


def flat(table, prefix=""):
    """What the option table makes of a document: section.key is section-key."""
    out = {}
    for key, value in table.items():
        out.update(flat(value, f"{prefix}{key}-") if isinstance(value, dict)
                   else {prefix + key: value})
    return out


def custom(value):
    """The elements that an option of the type CUSTOM is handed, numbers as numbers."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, str):
        value = value.split(",") if value else []

    def number(text):
        try:
            return float(text)
        except ValueError:
            return text

    return [number(v) for v in value] if isinstance(value, list) else [float(value)]


def check_config(folder, text):
    """True when the library reads the text; tomllib must then agree on every value."""
    path = os.path.join(folder, "x.toml")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    good, printed = tool("config", path)
    if not good:
        assert printed.startswith(("status FORMAT", "status ARGUMENT")), printed
        assert "x.toml:" in printed, printed
        return False
    want, got = flat(tomllib.loads(text)), flat(tomllib.loads(printed))
    assert want.keys() == got.keys(), f"{want} read as {got}"
    for key, value in want.items():
        if key == "a-list":
            assert custom(got[key]) == custom(value), f"{key}: {value} read as {got[key]}"
        else:
            assert got[key] == value and isinstance(got[key], bool) == isinstance(value, bool), \
                f"{key}: {value!r} read as {got[key]!r}"
    return True


@case
def configurations_are_tomls(folder):
    if tomllib is None:
        raise Skip("this Python has no tomllib")
    good = [
        "", "# nothing\n", "whole = 1_000_000\n", "whole = -0\n", "whole=+7", "flag = true\r\n",
        "a.b.c = 5\n", "[a.b]\nc = 5 # five\n", "[a]\nb.c = 5\nnumber = -1.5e-07\n",
        "[a]\nnumber = 1_0.2_5E+1_0\n", "a.number = 3\n", "a.scale = 0.1\n", "a.scale = 7\n",
        'text = "\\b\\t\\n\\f\\r\\"\\\\\\u00e9\\U0001F600 # \u00e9"\n', 'text = "\\u0001\\u007f"',
        "a.list = [1, 2.5, 3e2]\n", "a.list = [\n  1, # one\n\n  2,\n]\n",
        'a.list = ["x", "y z"]\n', "\t whole\t=\t1\t\n\n[ a ]\nnumber=1.0\n[a.b]\nc=1\n",
    ]
    for text in good:
        assert check_config(folder, text), f"{text!r} was refused"


@case
def random_configurations_are_tomls(folder):
    if tomllib is None:
        raise Skip("this Python has no tomllib")
    generator = random.Random(5)
    values = ["1", "-2", "1.5", "1e3", "0.1_5", "01", "1__0", "1.", "true", "false", "tru", '"x"',
              '"\\t\\u0041"', '"\\x"', "'x'", "[1, 2]", "[1,\n2,]", '["a"]', "[]", "[1 2]", "",
              "1 #c", "1 2", "inf", "0x1", '"""a"""', "1_", "+5", "--5", '"a" # "b"', "1979-05-27"]
    keys = ["whole", "a.b.c", "a.number", "a.scale", "flag", "text", "a.list", "b.c", "number"]
    accepted = 0
    for _ in range(600):
        lines = []
        for _ in range(generator.randint(1, 3)):
            if generator.random() < 0.15:
                lines.append(generator.choice(["[a]", "[a.b]", "[ a ]", "[a", "[[a]]", "[]"]))
            lines.append(f"{generator.choice(keys)} = {generator.choice(values)}")
        accepted += check_config(folder, "\n".join(lines) + generator.choice(["", "\n", "\r\n"]))
    assert 30 < accepted < 500, accepted


print(f"1..{passed + failed + skipped}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed else 77 if passed == 0 else 0)
