#!/usr/bin/env python3
"""Galaxy10: files that h5py writes here, sound, damaged and hostile."""
import os
import re
import struct
import zlib

from harness import finish
from sources import (ALL, Skip, Source, VAL, allocations, case, check_split, equal, h5py, np,
                     peak, refused, tool)


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
    equal(source.images, images)
    check_split(path, 100, labels)


@case
def galaxy10_compressed_chunks(folder):
    # What h5py chooses by itself, tiles of many images; and chunks that do not divide the set.
    for keywords in ({"compression": "gzip"}, {"chunks": (7, 69, 23, 3), "compression": "gzip"},
                     {"chunks": (1, 69, 69, 3)},
                     {"chunks": (64, 8, 8, 1), "maxshape": (None, 69, 69, 3)},
                     {"chunks": (200, 69, 23, 1), "maxshape": (None, 69, 69, 3)}):
        path, images, labels = galaxy(folder, **keywords)
        equal(Source(path).images, images)
        val = Source(path, VAL, seed=2)
        equal(val.images, images[val.order])


@case
def galaxy10_decals_and_grey(folder):
    path, images, labels = galaxy(folder, n=10, side=256)
    source = Source(path, channels=1)
    assert source.names[0] == "Disturbed Galaxies" and source.size == (256, 256, 1)
    weights = np.array([299, 587, 114])
    equal(source.images, ((images.astype(int) @ weights + 500) // 1000)[..., None])
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
            'has no dataset "images"; it has: ans, ra')
    refused(changed(without("ans")), "FORMAT", 'has no dataset "ans"')
    refused(changed(without("images", "ans", "ra")), "FORMAT", "it has: nothing")
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
            'has 7 images in "images", but 100 labels in "ans"')
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
            equal(source.images, images[:n])
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
            equal(Source(path).images, images)
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
        assert len(answer["image"]) == 4  # those before it


@case
def galaxy10_bombs(folder):
    # 300 MB of zeros in chunks of many images, and a label for each of 2^24 images that are
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


finish()
