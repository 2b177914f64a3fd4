#!/usr/bin/env python3
"""The readers of src/data, packs and resampling against numpy and Pillow. The files are made here;
data_tool.c says what the library makes of them. Galaxy10 has galaxy10_test.py."""
import gzip
import os
import struct
import tempfile

from harness import finish, xxh64
from sources import (ALL, AS_IS, CENTRE, FASHION, Image, STRETCH, Skip, Source, TEST, TRAIN, VAL,
                     allocations, case, check_split, equal, np, peak, refused, tool)


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


# ---- CIFAR ------------------------------------------------------------------------------------


def cifar(folder, hundred, n=60):
    """n images for each file: as written and as numpy reads them."""
    files = ["train", "test"] if hundred else [f"data_batch_{i}" for i in range(1, 6)] + [
        "test_batch"]
    generator = np.random.default_rng(3)
    images, labels = [], []
    for name in files:
        label = generator.integers(0, 100 if hundred else 10, (n, 1), dtype=np.uint8)
        planes = generator.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        head = np.hstack([generator.integers(0, 20, (n, 1), dtype=np.uint8), label])
        np.hstack([head if hundred else label, planes.reshape(n, -1)]).tofile(
            os.path.join(folder, name + ".bin"))
        images.append(planes.transpose(0, 2, 3, 1))
        labels.append(label[:, 0])
    return np.concatenate(images), np.concatenate(labels)


def check_cifar(folder, hundred):
    size = 700 if hundred else 60
    images, labels = cifar(folder, hundred, size)
    n = len(labels) - size
    source = Source(folder)
    assert source.kind == ("cifar100" if hundred else "cifar10")
    assert source.classes == (100 if hundred else 10) and source.size == (32, 32, 3)
    assert source.names is None and np.array_equal(source.labels, labels)
    equal(source.images, images)
    test = Source(folder, TEST)
    equal(test.images, images[n:])
    assert np.array_equal(test.labels, labels[n:])
    train, val = Source(folder, TRAIN, seed=4), Source(folder, VAL, seed=4)
    assert sorted(np.concatenate([train.order, val.order])) == list(range(n))
    equal(train.images, images[train.order])
    equal(val.images, images[val.order])
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


@case
def cifar100_refused(folder):
    cifar(folder, True)
    allocations(folder)
    path = os.path.join(folder, "train.bin")
    good = open(path, "rb").read()
    for content in (good[:-1], good + b"x", b"", good[:3073]):  # the last is a record of CIFAR-10
        open(path, "wb").write(content)
        refused(folder, "FORMAT", "train.bin has")
    changed = bytearray(good)
    changed[3074 * 7] = 255  # coarse labels are not used
    open(path, "wb").write(changed)
    fine = np.frombuffer(good, np.uint8).reshape(-1, 3074)[:, 1]
    assert np.array_equal(Source(folder).labels[:60], fine)
    changed[3074 * 7 + 1] = 100
    open(path, "wb").write(changed)
    refused(folder, "FORMAT", "record 7 of")


# ---- idx --------------------------------------------------------------------------------------


def idx(folder, name, array, packed=False):
    content = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    path = os.path.join(folder, name + (".gz" if packed else ""))
    open(path, "wb").write(gzip.compress(content) if packed else content)
    return path


def mnist(folder, packed=False, n=90, m=30):
    generator = np.random.default_rng(6)
    images = generator.integers(0, 256, (n + m, 11, 7), dtype=np.uint8)
    labels = generator.integers(0, 10, n + m)
    for name, part in (("train", slice(0, n)), ("t10k", slice(n, None))):
        idx(folder, f"{name}-images-idx3-ubyte", images[part], packed)
        idx(folder, f"{name}-labels-idx1-ubyte", labels[part], packed)
    return images[..., None], labels


@case
def idx_plain_and_packed(folder):
    for packed in (False, True):
        with tempfile.TemporaryDirectory() as sub:
            images, labels = mnist(sub, packed)
            source = Source(sub)
            assert (source.kind, source.classes, source.size) == ("idx", 10, (7, 11, 1))
            equal(source.images, images)
            assert np.array_equal(source.labels, labels)
            equal(Source(sub, TEST).images, images[90:])
            train, val = Source(sub, TRAIN), Source(sub, VAL)
            assert sorted(np.concatenate([train.order, val.order])) == list(range(90))
            equal(val.images, images[val.order])
            colour = Source(sub, channels=3)
            equal(colour.images, np.repeat(images, 3, axis=3))
            suffix = ".gz" if packed else ""
            path = os.path.join(sub, "t10k-images-idx3-ubyte" + suffix)
            equal(Source(path).images, images[90:])
            check_split(os.path.join(sub, "train-images-idx3-ubyte" + suffix), 90, labels[:90])


@case
def idx_parts_have_the_same_classes(folder):
    images, labels = mnist(folder)
    labels[:90] %= 10
    labels[95] = 15
    idx(folder, "t10k-labels-idx1-ubyte", labels[90:])
    assert [Source(folder, split).classes for split in (TRAIN, VAL, TEST)] == [16] * 3
    os.remove(os.path.join(folder, "t10k-images-idx3-ubyte"))
    assert Source(folder, TRAIN).classes == 10  # labels of no images


@case
def idx_named_otherwise(folder):
    # As some mirrors have them. One file alone is known by its first bytes, whatever its name.
    images, labels = mnist(folder)
    for part in ("images-idx3", "labels-idx1"):
        os.rename(os.path.join(folder, f"train-{part}-ubyte"),
                  os.path.join(folder, f"train-{part.replace('-', '.')}-ubyte"))
    source = Source(os.path.join(folder, "train-images.idx3-ubyte"))
    equal(source.images, images[:90])
    assert np.array_equal(source.labels, labels[:90])


@case
def idx_labels_packed_otherwise(folder):
    images, labels = mnist(folder)
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
    images, labels = mnist(folder)
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
    changed(head(0, 11, 7), "FORMAT", "claims 0 images")
    changed(head(90, 0, 7), "FORMAT", "claims 90 images of 7 x 0")
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
    images, labels = mnist(folder)
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
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(os.path.join(FASHION, "t10k-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    test = Source(FASHION, TEST)
    equal(test.images, images)
    assert np.array_equal(test.labels, labels) and test.classes == 10
    answer = tool("describe", os.path.join(FASHION, "t10k-images-idx3-ubyte.gz"), 2)
    mean, std = map(float, answer["channel"][0].split())
    # numpy's own sums of 7.8 million doubles are good to about 1e-12
    assert abs(mean - np.mean(images / 255)) < 1e-11
    assert abs(std - np.std(images / 255)) < 1e-11


# ---- packs ------------------------------------------------------------------------------------

def read_pack(path):
    """Images, labels and names of a pack, by its documented format alone."""
    content = open(path, "rb").read()
    assert content[:8] == b"ZONALPK2" and content[-8:] == b"ZONALEND"
    table, count, names, classes, version, index_sum, zero, foot_sum = struct.unpack(
        "<QQQIIQQQ", content[-64:-8])
    assert version == 2 and zero == 0 and table % 64 == 0
    assert table + 32 * count + names + 64 == len(content)
    assert xxh64(content[-64:-16]) == foot_sum
    assert xxh64(content[table:-64]) == index_sum
    images, labels = [], []
    for i in range(count):
        offset, pixel_sum, width, height, label, channels, split = struct.unpack(
            "<QQIIIHH", content[table + 32 * i:table + 32 * i + 32])
        pixels = content[offset:offset + width * height * channels]
        assert offset % 64 == 0 and xxh64(pixels) == pixel_sum
        images.append(np.frombuffer(pixels, np.uint8).reshape(height, width, channels))
        labels.append(label)
    text = content[table + 32 * count:-64]
    return images, labels, text.decode().split("\0")[:-1], classes


@case
def pack_by_its_documented_format(folder):
    images, labels = cifar(folder, True, n=20)
    names = [f"class {i}" for i in range(100)]
    open(os.path.join(folder, "fine_label_names.txt"), "w").write("\n".join(names))
    path = os.path.join(folder, "set.zpk")
    assert not tool("pack", folder, AS_IS, 0, path)["failed"]
    packed, packed_labels, packed_names, classes = read_pack(path)
    equal(packed, images)
    assert packed_labels == list(labels) and packed_names == names and classes == 100
    source = Source(path)
    assert source.kind == "pack" and source.names == names
    equal(source.images, images)


@case
def pack_written_by_python(folder):
    generator = np.random.default_rng(8)
    content, table, images = bytearray(b"ZONALPK2" + bytes(56)), b"", []
    for i in range(5):
        image = generator.integers(0, 256, (3 + i, 4, 1 if i % 2 else 3), dtype=np.uint8)
        raw = image.tobytes()
        table += struct.pack("<QQIIIHH", len(content), xxh64(raw), 4, 3 + i, 0xFFFFFFFF,
                             image.shape[2], 0)
        content += raw + bytes(-len(raw) % 64)
        images.append(image)
    foot = struct.pack("<QQQIIQQ", len(content), 5, 0, 0, 2, xxh64(table), 0)
    path = os.path.join(folder, "by python")
    foot += struct.pack("<Q", xxh64(foot)) + b"ZONALEND"
    open(path, "wb").write(content + table + foot)
    source = Source(path)
    assert source.classes == 0 and len(source.labels) == 0
    equal(source.images, images)


def pillow():
    if Image is None:
        raise Skip("this Python has no Pillow")


def as_pillow(image):
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def off_by(got, want):
    return int(np.max(np.abs(got.astype(int) - want.reshape(got.shape).astype(int))))


@case
def pack_resized_as_pillow(folder):
    pillow()
    generator = np.random.default_rng(9)
    images = generator.integers(0, 256, (6, 40, 23), dtype=np.uint8)
    idx(folder, "train-images-idx3-ubyte", images)
    idx(folder, "train-labels-idx1-ubyte", np.zeros(6))
    whole = os.path.join(folder, "train-images-idx3-ubyte")
    for fit, box in ((STRETCH, (0, 0, 23, 40)), (CENTRE, (0, 8, 23, 31))):
        path = os.path.join(folder, "small.zpk")
        assert not tool("pack", whole, fit, 12, path)["failed"]
        for got, image in zip(Source(path).images, images):
            want = Image.fromarray(image).crop(box).resize((12, 12), Image.BILINEAR)
            assert off_by(got, np.asarray(want)) <= 1  # see resampling


@case
def describing(folder):
    images, labels = cifar(folder, False)
    alone, together = tool("describe", folder, 1), tool("describe", folder, 5)
    assert alone == together
    assert alone["count"] == ["360"] and alone["bad"] == ["0"] and alone["grey"] == ["0"]
    assert alone["typical"] == alone["smallest"] == alone["largest"] == ["32 32"]
    assert [int(c) for c in alone["class"]] == list(np.bincount(labels, minlength=10))
    for c, line in enumerate(alone["channel"]):
        mean, std = map(float, line.split())
        assert abs(mean - np.mean(images[..., c] / 255)) < 1e-12
        assert abs(std - np.std(images[..., c] / 255)) < 1e-12


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
            image = generator.integers(0, 256, (height, width, channels), dtype=np.uint8)
            image.tofile(raw)
            assert not tool("resample", raw, width, height, channels, to_width, to_height,
                            out)["failed"]
            got = np.fromfile(out, np.uint8).reshape(to_height, to_width, channels)
            want = np.asarray(as_pillow(image).resize((to_width, to_height), Image.BILINEAR))
            assert off_by(got, want) <= 1, (width, height, to_width, to_height)
            exact += np.sum(got == want.reshape(got.shape))
            total += got.size
    assert exact > 0.75 * total, f"only {exact} of {total} elements are the same"


finish()
