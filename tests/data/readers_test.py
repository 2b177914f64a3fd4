#!/usr/bin/env python3
"""The readers of src/data, packs and resampling against numpy, h5py and Pillow. The files are made
here; data_tool.c says what the library makes of them."""
import gzip
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

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

from harness import finish, report, skip, xxh64

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
        self.pictures, at = [], 0
        for line in answer.get("picture", []):
            width, height, depth = map(int, line.split())
            self.pictures.append(raw[at:at + width * height * depth].reshape(height, width, depth))
            at += width * height * depth
        assert at == len(raw) and len(self.pictures) == self.count


def refused(path, status, text, split=ALL):
    answer = tool("dump", path, split, 0, 0, os.devnull)
    assert answer["failed"], f"{path} was accepted"
    assert answer["status"] == [status], answer
    sentence = answer["sentence"][0]
    assert text in sentence, f"{sentence!r} does not have {text!r}"
    assert os.path.basename(path) in sentence, f"{sentence!r} does not name {path}"


def equal(got, want):
    assert len(got) == len(want), f"{len(got)} pictures, want {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and np.array_equal(g, w), f"picture {i} differs"


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


def philox(seed, stream, sample):
    """The first two of Philox4x32-10's words (Salmon and others, 2011) as one number of 64 bits."""
    key, word = [seed & 0xFFFFFFFF, seed >> 32], 2 ** 32 - 1
    counter = [0, sample & word, 0, stream << 24 | sample >> 32]
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [b >> 32 ^ counter[1] ^ key[0], b & word, a >> 32 ^ counter[3] ^ key[1], a & word]
        key = [key[0] + 0x9E3779B9 & word, key[1] + 0xBB67AE85 & word]
    return counter[1] << 32 | counter[0]


@case
def lots_are_philox_of_xxh64_of_the_names(folder):
    """The division itself, which changes with the hash: every run's images depend on it."""
    n, seed, stream_split = 300, 5, 5
    path = os.path.join(folder, "train-images-idx3-ubyte")
    open(path, "wb").write(struct.pack(">IIII", 0x803, n, 2, 2) + bytes(4 * n))
    open(path.replace("images-idx3", "labels-idx1"), "wb").write(
        struct.pack(">II", 0x801, n) + bytes(n))
    lots = np.array([(philox(seed, stream_split, xxh64(b"index %d" % i) >> 8) >> 11) / 2.0 ** 53
                     for i in range(n)])
    for split, chosen in ((VAL, lots < 0.1), (TEST, (0.1 <= lots) & (lots < 0.2)), (TRAIN, lots >= 0.2)):
        assert np.array_equal(Source(path, split, seed=seed).order, np.flatnonzero(chosen)), split


# ---- Galaxy10 ---------------------------------------------------------------------------------


def galaxy(folder, n=100, side=69, **keywords):
    if h5py is None:
        raise Skip("this Python has no h5py")
    path = os.path.join(folder, "galaxy.h5")
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    labels = np.arange(n) % 10
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, **keywords)
        file["ans"] = labels.astype(np.uint8)
        file["ra"] = np.zeros(n)
    return path, images, labels


@case
def galaxy10_sdss_contiguous(folder):
    path, images, labels = galaxy(folder)
    source = Source(path)
    assert (source.kind, source.count, source.classes) == ("galaxy10", 100, 10)
    assert source.size == (69, 69, 3) and np.array_equal(source.labels, labels)
    assert source.names[0] == "Disk, Face-on, No Spiral" and len(source.names) == 10
    equal(source.pictures, images)
    check_split(path, 100, labels)


@case
def galaxy10_compressed_chunks(folder):
    # What h5py chooses by itself, tiles of many pictures; and chunks that do not divide the set.
    for keywords in ({"compression": "gzip"}, {"chunks": (7, 69, 23, 3), "compression": "gzip"},
                     {"chunks": (1, 69, 69, 3)},
                     {"chunks": (64, 8, 8, 1), "maxshape": (None, 69, 69, 3)},
                     {"chunks": (200, 69, 23, 1), "maxshape": (None, 69, 69, 3)}):
        path, images, labels = galaxy(folder, **keywords)
        equal(Source(path).pictures, images)
        val = Source(path, VAL, seed=2)
        equal(val.pictures, images[val.order])


@case
def galaxy10_decals_and_grey(folder):
    path, images, labels = galaxy(folder, n=10, side=256)
    source = Source(path, channels=1)
    assert source.names[0] == "Disturbed Galaxies" and source.size == (256, 256, 1)
    weights = np.array([299, 587, 114])
    equal(source.pictures, ((images.astype(int) @ weights + 500) // 1000)[..., None])
    path, _, _ = galaxy(folder, n=10, side=32)
    assert Source(path).names is None


@case
def galaxy10_label_types(folder):
    for kind in ("u1", "<i8", ">i4", "<u2"):
        path, images, labels = galaxy(folder)
        with h5py.File(path, "a") as file:
            del file["ans"]
            file["ans"] = labels.astype(kind)
        assert np.array_equal(Source(path).labels, labels), kind


@case
def galaxy10_refused(folder):
    def changed(change):
        path, images, labels = galaxy(folder)
        with h5py.File(path, "a") as file:
            change(file, images, labels)
        return path

    def without(*names):
        def change(file, images, labels):
            for name in names:
                del file[name]
        return change

    def instead(name, make):
        def change(file, images, labels):
            del file[name]
            file[name] = make(images, labels)
        return change

    refused(changed(without("images")), "FORMAT",
            'has no dataset "images"; what it has is: ans, ra')
    refused(changed(without("ans")), "FORMAT", 'has no dataset "ans"')
    refused(changed(without("images", "ans", "ra")), "FORMAT", "what it has is: nothing")
    refused(changed(instead("images", lambda i, l: i[..., 0])), "FORMAT",
            "has 3 dimensions, but 4 are expected; store it as [n][height][width][3]")
    for kind in ("f4", "u2", "i1", "S1"):
        refused(changed(instead("images", lambda i, l: i.astype(kind))), "FORMAT",
                "of another type than uint8, which Galaxy10 files have; convert it")
    refused(changed(instead("images", lambda i, l: i[..., :2])), "FORMAT",
            "has the shape [100][69][69][2]")
    refused(changed(instead("images", lambda i, l: i[:0])), "FORMAT",
            "has the shape [0][69][69][3], but [n][height][width][3] is expected; store at most")
    refused(changed(instead("images", lambda i, l: i[:7])), "FORMAT",
            'has 7 pictures in "images", but 100 labels in "ans"')
    refused(changed(instead("ans", lambda i, l: l * 2)), "FORMAT", "has label 10")
    refused(changed(instead("ans", lambda i, l: l - 1)), "FORMAT",
            'has label -1, but Galaxy10 has classes 0 to 9; correct it in "ans"')
    refused(changed(instead("ans", lambda i, l: l + 2 ** 40)), "FORMAT", "has label 1099511627776")
    refused(changed(instead("ans", lambda i, l: l.astype("f8"))), "FORMAT", "not whole numbers")
    refused(changed(instead("ans", lambda i, l: l[:, None])), "FORMAT",
            "has 2 dimensions, but 1 are expected; store it as [n], a label")

    def group(file, images, labels):
        del file["images"]
        file.create_group("images")

    refused(changed(group), "FORMAT", "is damaged or no dataset")

    def bomb(file, images, labels):
        for name, shape in (("images", (2 ** 40, 69, 69, 3)), ("ans", (2 ** 40,))):
            del file[name]
            file.create_dataset(name, shape, "u1", chunks=True)

    refused(changed(bomb), "FORMAT", "its shape is too large")

    def large_but_empty(file, images, labels):
        del file["images"]
        file.create_dataset("images", (0, 2 ** 63 - 1, 1, 3), "u1", chunks=(1, 2, 1, 3),
                            maxshape=(None, None, 1, 3))

    refused(changed(large_but_empty), "FORMAT", "its shape is too large")


@case
def galaxy10_packed_floats(folder):
    path, images, _ = galaxy(folder)
    with h5py.File(path, "a") as file:
        del file["images"]
        file.create_dataset("images", data=images.astype("f4"), compression="gzip", shuffle=True)
    refused(path, "FORMAT", "of another type than uint8, which Galaxy10 files have; convert it")


@case
def galaxy10_damaged(folder):
    path, _, _ = galaxy(folder, n=12, compression="gzip", chunks=(4, 69, 69, 3))
    content = open(path, "rb").read()
    for size in [0, 7]:
        open(path, "wb").write(content[:size])
        refused(path, "FORMAT", "cannot be opened as an HDF5 file")
    for size in [8, 100, 1000, len(content) // 2, len(content) - 1]:
        open(path, "wb").write(content[:size])
        refused(path, "FORMAT", "it is cut short")
    generator = np.random.default_rng(7)
    for _ in range(60):
        damaged = bytearray(content)
        for at in generator.integers(0, 4096, 8):
            damaged[at] = generator.integers(0, 256)
        open(path, "wb").write(damaged)
        tool("dump", path, ALL, 0, 0, os.devnull)  # any answer but a crash
    open(path, "wb").write(b"\x89HDF\r\n\x1a\n" + b"x" * 5000)
    refused(path, "FORMAT", "cannot be opened as an HDF5 file")


@case
def galaxy10_storage(folder):
    # All ways to store that are read, filters in every combination.
    path, images, labels = galaxy(folder)
    for n, keywords in ((100, {"compression": "gzip", "shuffle": True, "fletcher32": True}),
                        (100, {"chunks": (7, 10, 69, 2), "fletcher32": True}),
                        (100, {"chunks": (7, 10, 69, 2), "compression": 9, "fletcher32": True}),
                        (5, {"chunks": (5, 69, 69, 3), "compression": "gzip"}), (5, {})):
        for libver in ("earliest", "latest"):
            with h5py.File(path, "w", libver=libver) as file:
                file.create_dataset("images", data=images[:n], **keywords)
                kept = {k: v for k, v in keywords.items() if k != "chunks"}
                file.create_dataset("ans", data=labels[:n].astype(">i8"),
                                    **({**kept, "chunks": (n,)} if kept else {}))
            if libver == "latest" and n == 100:  # more than one chunk
                refused(path, "FORMAT", "chunks with an index of the latest kind")
                continue
            source = Source(path)
            assert np.array_equal(source.labels, labels[:n]), keywords
            equal(source.pictures, images[:n])
    with h5py.File(path, "w") as file:
        file["images"] = images[:4]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"ans", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((4,)),
                        properties).write(h5py.h5s.ALL, h5py.h5s.ALL, labels[:4].astype("u1"))
    assert np.array_equal(Source(path).labels, labels[:4])
    for keywords, text in (({"compression": "lzf"}, "a filter other than gzip"),
                           ({"chunks": (100, 69, 69, 3), "scaleoffset": 4}, "a filter other")):
        path, _, _ = galaxy(folder, **keywords)
        refused(path, "FORMAT", text)
    with h5py.File(path, "w", userblock_size=512) as file:
        file["images"], file["ans"] = images, labels
    refused(path, "FORMAT", "cannot be opened as an HDF5 file")


@case
def galaxy10_chunks_without_index(folder):
    # Such chunks lie in the order that they have in the largest shape, not in the present one.
    path, images, labels = galaxy(folder, n=4, side=6)
    for most in ((4, 6, 6, 3), (9, 6, 6, 3), (4, 6, 12, 3), (4, 9, 6, 3)):
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((2, 3, 3, 3))
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        with h5py.File(path, "w", libver="latest") as file:
            space = h5py.h5s.create_simple(images.shape, most)
            h5py.h5d.create(file.id, b"images", h5py.h5t.STD_U8LE, space, properties)
            file["images"][...], file["ans"] = images, labels
        if most[1:] == images.shape[1:]:
            equal(Source(path).pictures, images)
        else:
            refused(path, "FORMAT", "chunks without an index that may still grow")


@case
def galaxy10_leads_out(folder):
    # A file must not pull in another one of the machine.
    path, images, labels = galaxy(folder)
    other = os.path.join(folder, "other")
    images.tofile(other)
    with h5py.File(os.path.join(folder, "other.h5"), "w") as file:
        file["images"] = images

    def instead(make):
        with h5py.File(path, "a") as file:
            del file["images"]
            make(file)

    def virtual(file):
        layout = h5py.VirtualLayout(images.shape, "u1")
        layout[:] = h5py.VirtualSource(os.path.join(folder, "other.h5"), "images", images.shape)
        file.create_virtual_dataset("images", layout)

    instead(lambda file: file.create_dataset("images", images.shape, "u1",
                                             external=[(other, 0, images.size)]))
    refused(path, "FORMAT", "external storage")
    instead(virtual)
    refused(path, "FORMAT", "virtual dataset")
    instead(lambda file: file.__setitem__("images", h5py.ExternalLink("other.h5", "/images")))
    refused(path, "FORMAT", "a link in its place")
    instead(lambda file: file.__setitem__("images", h5py.SoftLink("/elsewhere")))
    refused(path, "FORMAT", "a link in its place")


@case
def galaxy10_damage_that_libhdf5_reads(folder):
    path, images, _ = galaxy(folder, n=12, compression="gzip", chunks=(4, 69, 69, 3))
    content = bytearray(open(path, "rb").read())
    at = content.index(b"HEAP")
    open(path, "wb").write(content[:at + 4] + b"\xff" * 8 + content[at + 12:])
    refused(path, "FORMAT", "the heap of names is invalid")
    open(path, "wb").write(content)
    # A chunk that unpacks to less, or more, than it claims.
    for pixels in (images[:4].tobytes()[:1000], bytes(5 * 69 * 69 * 3)):
        with h5py.File(path, "a") as file:
            file["images"].id.write_direct_chunk((4, 0, 0, 0), zlib.compress(pixels))
        answer = tool("dump", path, ALL, 0, 0, os.devnull)
        assert answer["failed"] and answer["status"] == ["FORMAT"], answer
        assert "a chunk of" in answer["sentence"][0], answer["sentence"]
        assert len(answer["picture"]) == 4  # those before it


@case
def galaxy10_bombs(folder):
    # 300 MB of zeros in chunks of many pictures, and a label for each of 2^24 pictures that are
    # not there: little memory, little time.
    path = os.path.join(folder, "bomb.h5")
    if h5py is None:
        raise Skip("this Python has no h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (1500, 256, 256, 3), "u1", chunks=(1500, 64, 64, 3),
                            compression="gzip")
        file["ans"] = np.zeros(1500, "u1")
        zeros = zlib.compress(bytes(1500 * 64 * 64 * 3))
        for y in range(0, 256, 64):
            for x in range(0, 256, 64):
                file["images"].id.write_direct_chunk((0, y, x, 0), zeros)
    code, megabytes = peak("dump", path, ALL, 0, 0, os.devnull)
    if code != 0:  # skips where there is no zlib
        tool("dump", path, ALL, 0, 0, os.devnull)
    assert code == 0 and megabytes < 400, (code, megabytes)
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (2 ** 24, 1, 1, 3), "u1", chunks=(2 ** 10, 1, 1, 3),
                            compression="gzip")
        file.create_dataset("ans", (2 ** 24,), "u1", chunks=(2 ** 20,), compression="gzip")
        file["images"][:1] = 0
        file["ans"][:1] = 0
    refused(path, "FORMAT", "its chunks are not all there")


@case
def galaxy10_index_bomb(folder):
    # 256 nodes of an index, each within the one above it and with 65535 entries: less than 4 MB.
    path, n = os.path.join(folder, "bomb.h5"), 100000
    if h5py is None:
        raise Skip("this Python has no h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (n, 1, 1, 3), "u1", chunks=(1, 1, 1, 3))
        file["ans"] = np.zeros(n, "u1")
        file["images"][:1] = 0
    content = bytearray(open(path, "rb").read())
    at, size = content.index(b"TREE\1"), len(content)  # the one of chunks, not of names
    old, first = struct.pack("<Q", at), size + -size % 8
    assert content.count(old) == 1
    content = content.replace(old, struct.pack("<Q", first)).ljust(first, b"\0")
    for level in range(255, -1, -1):  # a head, then the key of the first child and its address
        head = b"TREE" + struct.pack("<BBHQQ", 1, level, 65535, 2 ** 64 - 1, 2 ** 64 - 1)
        content += head + bytes(48) + struct.pack("<Q", len(content) + 80)
    content += bytes(65535 * 56)
    content[40:48] = struct.pack("<Q", len(content))  # where the file ends, in its first block
    open(path, "wb").write(content)
    refused(path, "FORMAT", "its index has more chunks than it")
    assert len(content) < 4e6 and peak("dump", path, ALL, 0, 0, os.devnull)[1] < 200


@case
def galaxy10_chunks_too_large(folder):
    # A layout message says class 2 (chunked), rank + 1, where the index lies, then the sides.
    for name, sides in (("images", (4, 69, 69, 3, 1)), ("ans", (4, 1))):
        path, images, labels = galaxy(folder, n=12)
        with h5py.File(path, "a") as file:
            del file[name]
            file.create_dataset(name, data=images if name == "images" else labels.astype(np.uint8),
                                chunks=sides[:-1], compression="gzip")
        content = open(path, "rb").read()
        found = list(re.finditer(b"\x03\x02" + bytes([len(sides)]) + b".{8}" + re.escape(
            struct.pack(f"<{len(sides)}I", *sides)), content, re.DOTALL))
        assert len(found) == 1, found
        at = found[0].start() + 11
        open(path, "wb").write(content[:at] + struct.pack("<I", 4000) + content[at + 4:])
        refused(path, "FORMAT", f'"{name}" in')
        refused(path, "FORMAT", "chunks are larger than all of it")


@case
def galaxy10_allocations(folder):
    path, _, _ = galaxy(folder)
    Source(path)  # skips where there is no HDF5
    allocations(path)


# ---- CIFAR ------------------------------------------------------------------------------------


def cifar(folder, hundred, n=60):
    """n pictures for each file: as written and as numpy reads them."""
    files = ["train", "test"] if hundred else [f"data_batch_{i}" for i in range(1, 6)] + [
        "test_batch"]
    generator = np.random.default_rng(3)
    pictures, labels = [], []
    for name in files:
        label = generator.integers(0, 100 if hundred else 10, (n, 1), dtype=np.uint8)
        planes = generator.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        head = np.hstack([generator.integers(0, 20, (n, 1), dtype=np.uint8), label])
        np.hstack([head if hundred else label, planes.reshape(n, -1)]).tofile(
            os.path.join(folder, name + ".bin"))
        pictures.append(planes.transpose(0, 2, 3, 1))
        labels.append(label[:, 0])
    return np.concatenate(pictures), np.concatenate(labels)


def check_cifar(folder, hundred):
    size = 700 if hundred else 60
    pictures, labels = cifar(folder, hundred, size)
    n = len(labels) - size
    source = Source(folder)
    assert source.kind == ("cifar100" if hundred else "cifar10")
    assert source.classes == (100 if hundred else 10) and source.size == (32, 32, 3)
    assert source.names is None and np.array_equal(source.labels, labels)
    equal(source.pictures, pictures)
    test = Source(folder, TEST)
    equal(test.pictures, pictures[n:])
    assert np.array_equal(test.labels, labels[n:])
    train, val = Source(folder, TRAIN, seed=4), Source(folder, VAL, seed=4)
    assert sorted(np.concatenate([train.order, val.order])) == list(range(n))
    equal(train.pictures, pictures[train.order])
    equal(val.pictures, pictures[val.order])
    assert abs(val.count - 0.1 * n) < 5 * (0.09 * n) ** 0.5 + source.classes
    for c in range(source.classes):
        assert np.sum(val.labels == c) >= (np.sum(labels[:n] == c) > 1)
    assert not np.array_equal(val.order, Source(folder, VAL, seed=5).order)


@case
def cifar10(folder):
    check_cifar(folder, False)


@case
def cifar100(folder):
    check_cifar(folder, True)


@case
def cifar_names(folder):
    cifar(folder, False)
    path = os.path.join(folder, "batches.meta.txt")
    names = [f"kind {i}" for i in range(10)]
    for text in ("\n".join(names), "\n".join(names) + "\n\n", "\r\n".join(names) + "\r\n"):
        open(path, "w", newline="").write(text)
        assert Source(folder).names == names
    for text in ("", "\n".join(names[:9]), "\n".join(names + ["more"]), "x" * 300):
        open(path, "w").write(text)
        refused(folder, "FORMAT", "must have the names of 10 classes")


@case
def cifar_refused(folder):
    cifar(folder, False)
    allocations(folder)
    path = os.path.join(folder, "data_batch_3.bin")
    good = open(path, "rb").read()
    for content in (good[:-1], good + b"x", b"", good[:3072]):
        open(path, "wb").write(content)
        refused(folder, "FORMAT", "data_batch_3.bin has")
    open(path, "wb").write(good[:3073 * 5] + b"\x0a" + good[3073 * 5 + 1:])
    refused(folder, "FORMAT", "record 5 of")
    os.remove(path)
    refused(folder, "IO", "data_batch_3.bin: No such file")
    assert Source(folder, TEST).count == 60  # does not need the others


# ---- idx --------------------------------------------------------------------------------------


def idx(folder, name, array, packed=False):
    content = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    path = os.path.join(folder, name + (".gz" if packed else ""))
    open(path, "wb").write(gzip.compress(content) if packed else content)
    return path


def mnist(folder, packed=False, n=90, m=30):
    generator = np.random.default_rng(6)
    pictures = generator.integers(0, 256, (n + m, 11, 7), dtype=np.uint8)
    labels = generator.integers(0, 10, n + m)
    for name, part in (("train", slice(0, n)), ("t10k", slice(n, None))):
        idx(folder, f"{name}-images-idx3-ubyte", pictures[part], packed)
        idx(folder, f"{name}-labels-idx1-ubyte", labels[part], packed)
    return pictures[..., None], labels


@case
def idx_plain_and_packed(folder):
    for packed in (False, True):
        with tempfile.TemporaryDirectory() as sub:
            pictures, labels = mnist(sub, packed)
            source = Source(sub)
            assert (source.kind, source.classes, source.size) == ("idx", 10, (7, 11, 1))
            equal(source.pictures, pictures)
            assert np.array_equal(source.labels, labels)
            equal(Source(sub, TEST).pictures, pictures[90:])
            train, val = Source(sub, TRAIN), Source(sub, VAL)
            assert sorted(np.concatenate([train.order, val.order])) == list(range(90))
            equal(val.pictures, pictures[val.order])
            colour = Source(sub, channels=3)
            equal(colour.pictures, np.repeat(pictures, 3, axis=3))
            suffix = ".gz" if packed else ""
            path = os.path.join(sub, "t10k-images-idx3-ubyte" + suffix)
            equal(Source(path).pictures, pictures[90:])
            check_split(os.path.join(sub, "train-images-idx3-ubyte" + suffix), 90, labels[:90])


@case
def idx_named_otherwise(folder):
    # As some mirrors have them. One file alone is known by its first bytes, whatever its name.
    pictures, labels = mnist(folder)
    for part in ("images-idx3", "labels-idx1"):
        os.rename(os.path.join(folder, f"train-{part}-ubyte"),
                  os.path.join(folder, f"train-{part.replace('-', '.')}-ubyte"))
    source = Source(os.path.join(folder, "train-images.idx3-ubyte"))
    equal(source.pictures, pictures[:90])
    assert np.array_equal(source.labels, labels[:90])


@case
def idx_labels_packed_otherwise(folder):
    pictures, labels = mnist(folder)
    os.remove(os.path.join(folder, "train-labels-idx1-ubyte"))
    idx(folder, "train-labels-idx1-ubyte", labels[:90], packed=True)
    assert np.array_equal(Source(folder).labels, labels)


@case
def idx_more_classes(folder):
    mnist(folder)
    idx(folder, "train-labels-idx1-ubyte", np.arange(90) * 2)
    assert Source(folder).classes == 179


@case
def idx_refused(folder):
    pictures, labels = mnist(folder)
    allocations(folder)
    path = os.path.join(folder, "train-images-idx3-ubyte")
    good = open(path, "rb").read()
    packed = gzip.compress(good)

    def changed(content, status, text):
        open(path, "wb").write(content)
        refused(path, status, text)

    def head(*sizes):
        return b"\0\0\x08\x03" + struct.pack(">3I", *sizes) + good[16:]

    for content in (b"", b"\0\0\x08", b"\1" + good[1:], b"text file" * 10):
        changed(content, "FORMAT", "is not an idx file")
    changed(b"\0\0\x0d\x03" + good[4:], "FORMAT", "type 13 with 3 dimensions")
    changed(b"\0\0\x08\x01" + good[4:], "FORMAT",
            "type 8 with 1 dimensions, but type 8 (bytes) with 3 is expected; give one of images")
    changed(good[:10], "FORMAT", "it ends within its header")
    changed(good[:-1], "FORMAT", "shorter than its header says")
    changed(good[:16], "FORMAT", "shorter than its header says")
    changed(good + b"x", "FORMAT", "longer than its header says")
    changed(head(0, 11, 7), "FORMAT", "claims 0 pictures")
    changed(head(90, 0, 7), "FORMAT", "claims 90 pictures of 7 x 0")
    changed(head(90, 40000, 7), "FORMAT", "of 7 x 40000")
    changed(head(2 ** 32 - 1, 16384, 16384), "FORMAT", "shorter than its header says")
    changed(gzip.compress(head(2 ** 32 - 1, 16384, 16384)), "FORMAT", "claims to unpack to")
    for size in (3, 20, len(packed) // 2, len(packed) - 9, len(packed) - 1):
        open(path, "wb").write(packed[:size])
        answer = tool("dump", path, ALL, 0, 0, os.devnull)
        assert answer["failed"] and answer["status"] == ["FORMAT"], (size, answer)
    wrong_sum = bytearray(packed)
    wrong_sum[-6] ^= 1
    changed(bytes(wrong_sum), "FORMAT", "it cannot be unpacked")
    open(path, "wb").write(good)
    idx(folder, "train-labels-idx1-ubyte", labels[:89])
    answer = tool("dump", path, ALL, 0, 0, os.devnull)
    assert answer["status"] == ["FORMAT"]
    assert "has 89 labels, but there are 90 images" in answer["sentence"][0]
    os.remove(os.path.join(folder, "train-labels-idx1-ubyte"))
    answer = tool("dump", folder, TRAIN, 0, 0, os.devnull)
    assert answer["status"] == ["IO"] and "train-labels-idx1-ubyte" in answer["sentence"][0]
    assert Source(folder, TEST).count == 30


@case
def idx_bomb(folder):
    # 400 MB of zeros in 400 KB; and labels that are a pipe, which nobody writes to.
    pictures, labels = mnist(folder)
    path = os.path.join(folder, "train-images-idx3-ubyte.gz")
    head = gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 4000, 316, 316))
    open(path, "wb").write(head + 400 * gzip.compress(bytes(998560)))
    os.remove(os.path.join(folder, "train-images-idx3-ubyte"))
    refused(path, "FORMAT", "claims to unpack to 399424000 bytes")
    code, megabytes = peak("dump", path, ALL, 0, 0, os.devnull)
    assert code == 1 and megabytes < 100, (code, megabytes)
    path = os.path.join(folder, "t10k-images-idx3-ubyte")
    os.remove(os.path.join(folder, "t10k-labels-idx1-ubyte"))
    os.mkfifo(os.path.join(folder, "t10k-labels-idx1-ubyte"))
    answer = tool("dump", path, ALL, 0, 0, os.devnull)
    assert answer["status"] == ["IO"] and "is not a file" in answer["sentence"][0], answer


@case
def idx_fashion_mnist(folder):
    if not os.path.isdir(FASHION):
        raise Skip("dataset-fashion-mnist is not installed")
    with gzip.open(os.path.join(FASHION, "t10k-images-idx3-ubyte.gz")) as file:
        pictures = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(os.path.join(FASHION, "t10k-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    test = Source(FASHION, TEST)
    equal(test.pictures, pictures)
    assert np.array_equal(test.labels, labels) and test.classes == 10
    answer = tool("describe", os.path.join(FASHION, "t10k-images-idx3-ubyte.gz"), 2)
    mean, deviation = map(float, answer["channel"][0].split())
    # numpy's own sums of 7.8 million doubles are good to about 1e-12
    assert abs(mean - np.mean(pictures / 255)) < 1e-11
    assert abs(deviation - np.std(pictures / 255)) < 1e-11


# ---- packs ------------------------------------------------------------------------------------

def read_pack(path):
    """Pictures, labels and names of a pack, by its documented format alone."""
    content = open(path, "rb").read()
    assert content[:8] == b"ZONALPK2" and content[-8:] == b"ZONALEND"
    table, count, names, classes, version, index_sum, zero, foot_sum = struct.unpack(
        "<QQQIIQQQ", content[-64:-8])
    assert version == 2 and zero == 0 and table % 64 == 0
    assert table + 32 * count + names + 64 == len(content)
    assert xxh64(content[-64:-16]) == foot_sum
    assert xxh64(content[table:-64]) == index_sum
    pictures, labels = [], []
    for i in range(count):
        offset, pixel_sum, width, height, label, channels, split = struct.unpack(
            "<QQIIIHH", content[table + 32 * i:table + 32 * i + 32])
        pixels = content[offset:offset + width * height * channels]
        assert offset % 64 == 0 and xxh64(pixels) == pixel_sum
        pictures.append(np.frombuffer(pixels, np.uint8).reshape(height, width, channels))
        labels.append(label)
    text = content[table + 32 * count:-64]
    return pictures, labels, text.decode().split("\0")[:-1], classes


@case
def pack_by_its_documented_format(folder):
    pictures, labels = cifar(folder, True, n=20)
    names = [f"class {i}" for i in range(100)]
    open(os.path.join(folder, "fine_label_names.txt"), "w").write("\n".join(names))
    path = os.path.join(folder, "set.zpk")
    assert not tool("pack", folder, AS_IS, 0, path)["failed"]
    packed, packed_labels, packed_names, classes = read_pack(path)
    equal(packed, pictures)
    assert packed_labels == list(labels) and packed_names == names and classes == 100
    source = Source(path)
    assert source.kind == "pack" and source.names == names
    equal(source.pictures, pictures)


@case
def pack_written_by_python(folder):
    generator = np.random.default_rng(8)
    content, table, pictures = bytearray(b"ZONALPK2" + bytes(56)), b"", []
    for i in range(5):
        picture = generator.integers(0, 256, (3 + i, 4, 1 if i % 2 else 3), dtype=np.uint8)
        raw = picture.tobytes()
        table += struct.pack("<QQIIIHH", len(content), xxh64(raw), 4, 3 + i, 0xFFFFFFFF,
                             picture.shape[2], 0)
        content += raw + bytes(-len(raw) % 64)
        pictures.append(picture)
    foot = struct.pack("<QQQIIQQ", len(content), 5, 0, 0, 2, xxh64(table), 0)
    path = os.path.join(folder, "by python")
    foot += struct.pack("<Q", xxh64(foot)) + b"ZONALEND"
    open(path, "wb").write(content + table + foot)
    source = Source(path)
    assert source.classes == 0 and len(source.labels) == 0
    equal(source.pictures, pictures)


def pillow():
    if Image is None:
        raise Skip("this Python has no Pillow")


def as_pillow(picture):
    return Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)


def off_by(got, want):
    return int(np.max(np.abs(got.astype(int) - want.reshape(got.shape).astype(int))))


@case
def pack_resized_as_pillow(folder):
    pillow()
    generator = np.random.default_rng(9)
    pictures = generator.integers(0, 256, (6, 40, 23), dtype=np.uint8)
    idx(folder, "train-images-idx3-ubyte", pictures)
    idx(folder, "train-labels-idx1-ubyte", np.zeros(6))
    whole = os.path.join(folder, "train-images-idx3-ubyte")
    for fit, box in ((STRETCH, (0, 0, 23, 40)), (CENTRE, (0, 8, 23, 31))):
        path = os.path.join(folder, "small.zpk")
        assert not tool("pack", whole, fit, 12, path)["failed"]
        for got, picture in zip(Source(path).pictures, pictures):
            want = Image.fromarray(picture).crop(box).resize((12, 12), Image.BILINEAR)
            assert off_by(got, np.asarray(want)) <= 1  # see resampling


@case
def describing(folder):
    pictures, labels = cifar(folder, False)
    alone, together = tool("describe", folder, 1), tool("describe", folder, 5)
    assert alone == together
    assert alone["count"] == ["360"] and alone["bad"] == ["0"] and alone["grey"] == ["0"]
    assert alone["typical"] == alone["smallest"] == alone["largest"] == ["32 32"]
    assert [int(c) for c in alone["class"]] == list(np.bincount(labels, minlength=10))
    for c, line in enumerate(alone["channel"]):
        mean, deviation = map(float, line.split())
        assert abs(mean - np.mean(pictures[..., c] / 255)) < 1e-12
        assert abs(deviation - np.std(pictures[..., c] / 255)) < 1e-12


# ---- resampling -------------------------------------------------------------------------------


@case
def resampling(folder):
    """Pillow rounds to 8 bits between rows and columns, and its weights to 22 bits; one level."""
    pillow()
    generator = np.random.default_rng(10)
    sizes = [(1, 1, 5, 3), (2, 2, 7, 7), (64, 48, 64, 48), (64, 48, 32, 24), (64, 48, 31, 25),
             (64, 48, 7, 48), (64, 48, 1, 1), (37, 5, 224, 9), (300, 2, 10, 40), (9, 400, 9, 13)]
    raw, out = os.path.join(folder, "in"), os.path.join(folder, "out")
    exact = total = 0
    for width, height, to_width, to_height in sizes:
        for channels in (1, 3):
            picture = generator.integers(0, 256, (height, width, channels), dtype=np.uint8)
            picture.tofile(raw)
            assert not tool("resample", raw, width, height, channels, to_width, to_height,
                            out)["failed"]
            got = np.fromfile(out, np.uint8).reshape(to_height, to_width, channels)
            want = np.asarray(as_pillow(picture).resize((to_width, to_height), Image.BILINEAR))
            assert off_by(got, want) <= 1, (width, height, to_width, to_height)
            exact += np.sum(got == want.reshape(got.shape))
            total += got.size
    assert exact > 0.75 * total, f"only {exact} of {total} elements are the same"


finish()
