#!/usr/bin/env python3
"""docs/formats.md against the files themselves: readers written from that page, and its tables, each
of which must list the members of a real file, no more and no less. ZONAL_PROGRAM is the program to
test."""
import glob
import json
import os
import re
import shutil
import struct

from harness import SOURCE, case, run, run_tests, xxh64

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side
with open(os.path.join(SOURCE, "docs/formats.md")) as page:
    PAGE = page.read()

# A network of some thousand weights on small images: a step takes a few milliseconds.
TINY = (
    "--side 16 --width 0.015625 --projector 16-8 --batch 16 --threads 1 --workers 1 --precision fp32 "
    "--device cpu --log-every 1 --eval-every 2 --eval-count 8 --steps 4 --quiet"
).split()


# ---- the page ------------------------------------------------------------------------------------


def rows(table):
    """The rows of a table of the page, as lists of cells."""
    found = re.search(rf"<!-- members: {re.escape(table)} -->\n((?:\|.*\n)+)", PAGE)
    assert found, f"docs/formats.md has no table {table}"
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in found.group(1).split("\n")]
    return [row for row in cells[2:] if len(row) > 1]


def members(*tables):
    """The names that tables list, and those of them that may be missing."""
    every, optional = [], set()
    for row in (row for table in tables for row in rows(table)):
        names = re.findall(r"`([^`]+)`", row[0])
        every += names
        if row[-1].startswith("Optional"):
            optional |= set(names)
    assert len(set(every)) == len(every) > 0, every
    return set(every), optional


def compare(found, *tables):
    """Every member is listed, and every one listed is there unless it is optional."""
    listed, optional = members(*tables)
    unknown, missing = set(found) - listed, listed - optional - set(found)
    assert not unknown and not missing, f"{tables}: not listed {unknown}, not found {missing}"


def tables(begin):
    return [t for t in re.findall(r"<!-- members: (.*?) -->", PAGE) if t.startswith(begin)]


# ---- files ---------------------------------------------------------------------------------------


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write_bmp(path, width, height, pixel):
    """An image in 24 bits, which every build reads."""
    lines = [b"".join(bytes(pixel(x, y)[::-1]) for x in range(width)) for y in range(height)]
    body = b"".join(line + bytes(-len(line) % 4) for line in reversed(lines))
    head = struct.pack("<2sIHHI", b"BM", 54 + len(body), 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 2835, 2835, 0, 0)
    with open(path, "wb") as file:
        file.write(head + info + body)


def pixel_of(number):
    return lambda x, y: ((7 * x * number + y) % 256, (x * y + 31 * number) % 256, (number * y) % 256)


def make_images(folder, classes=("cat", "dog"), each=24):
    for c, name in enumerate(classes):
        os.makedirs(f"{folder}/{name}")
        for i in range(each):
            write_bmp(f"{folder}/{name}/{i:02}.bmp", 20 + i % 3, 18, pixel_of(c * each + i))


def done(*arguments):
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def safetensors(path):
    """Header, metadata and the whole file, with the layout checked."""
    content = read(path)
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    notes = header.pop("__metadata__")
    end = 0
    size = {"F32": 4, "I64": 8}
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = tensor["data_offsets"]
        count = 1
        for n in tensor["shape"]:
            count *= n
        assert begin == end and after - begin == count * size[tensor["dtype"]], name
        end = after
    assert 8 + length + end == len(content), path
    digits = notes.get("zonal.xxh64")
    if digits is None:
        return header, notes
    assert content.count(digits.encode()) == 1
    assert f"{xxh64(content.replace(digits.encode(), b'0' * 16)):016x}" == digits, "the checksum"
    return header, notes


# ---- tests ---------------------------------------------------------------------------------------


def test_pack():
    make_images("photos", each=5)
    done("data", "pack", "photos", "--out", "set.zpk", "--split", "train,val,test", "--quiet")
    done("data", "pack", "photos", "--out", "all.zpk", "--split", "all", "--quiet")

    def entries(path):
        content = read(path)
        foot = struct.unpack("<QQQIIQQQ8s", content[-64:])
        table, count, names, classes, version, index_sum, zero, foot_sum, end = foot
        assert content[:64] == b"ZONALPK2" + bytes(56) and end == b"ZONALEND" and version == 2
        assert table % 64 == 0 and zero == 0 and table + 32 * count + names + 64 == len(content)
        assert xxh64(content[table:-64]) == index_sum and xxh64(content[-64:-16]) == foot_sum
        labels = content[table + 32 * count:-64].split(b"\0")[:-1]
        assert len(labels) == classes
        at = 64
        for i in range(count):
            entry = struct.unpack_from("<QQIIIHH", content, table + 32 * i)
            offset, checksum, width, height, label, channels, split = entry
            pixels = content[offset:offset + width * height * channels]
            assert offset == at and xxh64(pixels) == checksum
            at += (len(pixels) + 63) // 64 * 64
            yield labels[label], width, height, channels, split, pixels
        assert at == table

    def expected(number, width):
        pixel = pixel_of(number)
        return bytes(v for y in range(18) for x in range(width) for v in pixel(x, y))

    @case("pack: a reader by the page finds every image")
    def _():
        found = list(entries("all.zpk"))
        assert len(found) == 10
        for i, (label, width, height, channels, split, pixels) in enumerate(found):
            assert (label, height, channels, split) == ((b"cat", b"dog")[i // 5], 18, 3, 0)
            assert width == 20 + i % 5 % 3 and pixels == expected(i, width)

    @case("pack: divided, the same images, each in one split")
    def _():
        found = list(entries("set.zpk"))
        assert {split for *_, split, _ in found} == {1, 2, 3}
        assert sorted(p for *_, p in found) == sorted(p for *_, p in entries("all.zpk"))

    shutil.rmtree("photos")
    os.remove("set.zpk")
    os.remove("all.zpk")


def test_run():
    make_images("photos")
    done("train", "photos", *TINY, "--eval", "knn", "--probe", "--out", "classes")
    textures = ["textures:disk", "--texture-count", "32", "--texture-size", "24"]
    done("train", *textures, *TINY, "--eval", "retrieval", "--optimiser", "sgd", "--out", "views")
    done("eval", "classes", "--quiet")
    done("eval", "classes", "--quiet", "--limit", "4", "--protocol", "knn", "--k", "2")
    done("eval", "classes", "--quiet", "--protocol", "linear", "--sgd", "1")
    check_folder()
    check_metrics()
    check_checkpoints()
    check_data()
    check_results()
    check_events()
    check_config()
    for name in ("photos", "classes", "views"):
        shutil.rmtree(name)


def check_folder():
    @case("run folder: every file is listed, and every one listed is there")
    def _():
        listed, _ = members("run")
        patterns = {
            name: re.escape(name).replace("N", "[0-9]{6,}").replace("PROTOCOL", "[a-z-]+")
            for name in listed
        }
        files = [os.path.join(at, f)[len("classes/"):]
                 for at, _, names in os.walk("classes") for f in names]
        unknown = [f for f in files if not any(re.fullmatch(p, f) for p in patterns.values())]
        sometimes = {re.escape(row[0].strip("`")) for row in rows("run")
                     if row[1].startswith(("CUDA only", "`--retries` only"))}
        missing = [
            p for p in patterns.values()
            if p not in sometimes and not any(re.fullmatch(p, f) for f in files)
        ]
        assert len(files) > 8 and len(sometimes) == 2, (files, sometimes)
        assert not unknown and not missing, (unknown, missing)


def check_metrics():
    @case("metrics.jsonl: the members of every kind")
    def _():
        seen = set()
        for folder in ("classes", "views"):
            steps = []
            for line in read_text(folder + "/metrics.jsonl").splitlines():
                record = json.loads(line)
                table = "metrics " + record["kind"]
                if record["kind"] == "eval":
                    table += " " + record["protocol"]
                compare(record, table)
                seen.add(table)
                steps.append(record["step"])
            assert steps == sorted(steps) and steps[-1] == 4, steps
        assert seen == set(tables("metrics ")), (seen, tables("metrics "))


def check_checkpoints():
    patterns = [
        "(.*)".join(map(re.escape, name.split("X"))) for name in members("checkpoint tensors")[0]
    ]

    @case("checkpoint: tensors, metadata and checksum")
    def _():
        used = set()
        for folder in ("classes", "views"):
            path = sorted(glob.glob(folder + "/checkpoints/step-*.safetensors"))[-1]
            header, notes = safetensors(path)
            compare(notes, "checkpoint metadata")
            assert notes["zonal.step"] == "4"
            for name, tensor in header.items():
                # The longest pattern is the one that is meant: optimiser.exp_avg.X before X.weight.
                fit = max((p for p in patterns if re.fullmatch(p, name)), key=len, default=None)
                assert fit, f"{name} is not listed"
                used.add(fit)
                of = re.fullmatch(r"optimiser\.[a-z_]+\.(.*)", name)
                assert not of or header[of.group(1)]["shape"] == tensor["shape"], name
            for line in notes["zonal.configuration"].splitlines():
                assert line + " " in read_text(folder + "/config.toml"), line
        assert used == set(patterns), f"listed and not there: {set(patterns) - used}"

    @case("exported weights: tensors and metadata")
    def _():
        done("export", "classes", "--out", "classes/backbone.safetensors", "--quiet")
        header, notes = safetensors("classes/backbone.safetensors")
        os.remove("classes/backbone.safetensors")
        compare(notes, "export metadata")
        listed, optional = members("export metadata")
        assert set(notes) >= listed - {"zonal.commit"}, "of a run all is known"
        assert not any(name.startswith(("projector", "optimiser", "fc")) for name in header)


def unescaped(name):
    return re.sub(r"%([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), name)


def check_data():
    @case("data.txt: names, checksums and fingerprints by the page")
    def _():
        lines = read_text("classes/data.txt").splitlines()
        head = re.search(r"```\n(zonal-data \d) ONE_IN\n", PAGE).group(1)
        assert lines[0] == head + " 1", lines[0]
        parts = [line.split(" ") for line in lines[1:] if line.startswith("part ")]
        images = [line.split(" ", 3) for line in lines[1:] if line.startswith("image ")]
        assert len(parts) + len(images) + 1 == len(lines) and len(images) == 48
        names = [unescaped(name) for *_, name in images]
        assert names == sorted(names), "in the order of their names"
        for (_, _, fingerprint, _), name in zip(images, names):
            content = read("photos/" + name)
            blocks = content if len(content) <= 8192 else content[:4096] + content[-4096:]
            assert f"{xxh64(struct.pack('<Q', len(content)) + blocks):016x}" == fingerprint, name
        for _, part, count, names_sum, images_sum in parts:
            own = [(n, int(f, 16)) for (_, p, f, _), n in zip(images, names) if p == part]
            assert len(own) == int(count)
            assert f"{xxh64(b''.join(n.encode() + bytes(1) for n, _ in own)):016x}" == names_sum
            prints = b"".join(struct.pack("<Q", f) for _, f in own)
            assert f"{xxh64(prints):016x}" == images_sum
        assert [part for _, part, *_ in parts] == ["train", "val", "test"]


def check_results():
    @case("eval/PROTOCOL.json: the members of every protocol")
    def _():
        named = {table.split()[1] for table in tables("eval ")} - {"all"}
        found = {os.path.basename(p)[:-5]: p for p in glob.glob("classes/eval/*.json")}
        assert set(found) == named and len(named) == 4, (found, named)
        paths = [*found.values(), *glob.glob("classes/eval/partial/*.json")]
        for path in paths:
            protocol = os.path.basename(path)[:-5]
            content = json.loads(read_text(path))
            results = content.pop("results")
            assert results and set(content) <= {"energy"}, (path, set(content))
            for result in results:
                assert result["protocol"] == protocol
                compare(result, "eval all", "eval " + protocol)
                assert ("limit" in result) == ("/partial/" in path)
            energy = [entry for r in [*results, content] for entry in r.get("energy", [])]
            assert all(set(entry) == {"degree", "excess", "sd"} for entry in energy)
        sgd = [r for r in json.loads(read_text(found["linear"]))["results"] if "epochs" in r]
        assert sgd and all("rate" in r and "l2" not in r for r in sgd)


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(content):
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(content):
    """The fields of a protocol buffer: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(content):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, content[at:at + length]
        at += length


def check_events():
    @case("events: the tags, and their values as in metrics.jsonl")
    def _():
        tags = set()
        for folder in ("classes", "views"):
            content, at, losses = read(glob.glob(folder + "/events/*")[0]), 0, []
            while at < len(content):
                length, head = struct.unpack_from("<QI", content, at)
                body = content[at + 12:at + 12 + length]
                assert masked(content[at:at + 8]) == head
                assert masked(body) == struct.unpack_from("<I", content, at + 12 + length)[0]
                at += 16 + length
                for number, value in fields(body):
                    assert number in (1, 2, 3, 5, 7), number
                    for _, one in fields(value) if number == 5 else ():
                        scalar = dict(fields(one))
                        tags.add(scalar[1].decode())
                        if scalar[1] == b"loss/total":
                            losses += struct.unpack("<f", scalar[2])
            lines = map(json.loads, read_text(folder + "/metrics.jsonl").splitlines())
            expected = [line["loss"] for line in lines if line["kind"] == "step"]
            single = [struct.unpack("<f", struct.pack("<f", value))[0] for value in expected]
            assert losses == single and len(losses) == 4, (losses, expected)
        compare(tags, "events")


def check_config():
    @case("config.toml: options of zonal train, each with its source")
    def _():
        options = re.findall(r"^  --([a-z0-9-]+)", done("train", "--help"), re.M)
        lines = read_text("classes/config.toml").splitlines()
        keys = [re.fullmatch(r"([a-z0-9-]+) = .*\S +# .+", line).group(1) for line in lines]
        assert len(keys) > 30 and set(keys) <= set(options), set(keys) - set(options)
        try:
            import tomllib
        except ImportError:
            return
        assert list(tomllib.loads("\n".join(lines))) == keys


def test_embed():
    @case("embeddings: the index's columns")
    def _():
        head = re.search(r"with\s+the\s+header\s+`([a-z,]+)`", PAGE).group(1)
        make_images("photos", each=12)
        done("train", "photos", *TINY, "--eval", "none", "--out", "short")
        done("embed", "short", "--out", "E.npy", "--quiet")
        lines = read_text("E.csv").splitlines()
        assert lines[0] == head and len(lines) == 25 and all(l.count(",") == 3 for l in lines)
        assert lines[1].split(",")[1:] == ["cat/00.bmp", "0", "cat"], lines[1]
        assert read("E.npy")[:6] == b"\x93NUMPY" and b"'<f4'" in read("E.npy")[:128]
        for name in ("photos", "short"):
            shutil.rmtree(name)
        for name in ("E.npy", "E.csv"):
            os.remove(name)


def test_cache():
    @case("the autotuning cache: its first line is the one that the code writes")
    def _():
        first = re.search(r"## Autotuning cache\n.*?```\n(.*?)\n", PAGE, re.S).group(1)
        sources = glob.glob(os.path.join(SOURCE, "src/backend/**/*.c"), recursive=True)
        assert any(f'"{first}"' in read_text(path) for path in sources), first


def test_records():
    @case("records: the members of those that are kept, and of a new one")
    def _():
        done("reproduce", "table-textures", "--out", "matrix", "--families", "disk", "--methods", "susreg",
             "--side", "16", "--steps", "2", "--device", "cpu", "--threads", "1", "--quiet", "--options",
             "width=0.015625,projector=16-8,batch=8,precision=fp32,workers=1,texture-count=16")
        record = json.loads(read_text("matrix/records.jsonl"))
        compare(record, "record")
        listed, _ = members("record")
        for path in glob.glob(os.path.join(SOURCE, "results/table-*.jsonl")):
            for line in read_text(path).splitlines():
                assert set(json.loads(line)) <= listed, path
        shutil.rmtree("matrix")


run_tests(test_pack, test_run, test_embed, test_cache, test_records)
