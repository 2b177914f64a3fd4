#!/usr/bin/env python3
"""The event files of a run: decoded here, from TensorFlow's description of records and events, and
by TensorBoard's own reader where this Python has it; compared with metrics.jsonl, also after a run
was cut off and went on. ZONAL_PROGRAM is the program to test."""
import glob
import json
import os
import shutil
import struct

from harness import case, run, run_tests, skip

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    event_accumulator = None

RUN = ["train", "textures:disk", "--texture-size", 16, "--texture-count", 32, "--batch", 8]
RUN += ["--width", 0.0625, "--side", 16, "--projector", "16-8", "--log-every", 1, "--quiet"]
RUN += ["--eval-every", 3, "--eval-count", 8, "--checkpoint-every", 2, "--threads", 1]
TAGS = {
    "step": {
        "loss": "loss/total",
        "invariance": "loss/invariance",
        "discrepancy": "loss/discrepancy",
        "rate": "optimiser/learning_rate",
        "gradient_norm": "optimiser/gradient_norm",
        "images_per_second": "speed/images_per_second",
    },
    "monitor": {m: "monitor/" + m for m in ("mean_cosine", "effective_rank", "rho")},
    "eval": {f: "eval/retrieval_" + f for f in ("r1", "r3", "r5", "map")},
}


# ---- an independent reader -----------------------------------------------------------------------


def crc32c(data):
    """Bit by bit, as RFC 3720 has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at : at + 8]), "checksum of a length"
        payload = data[at + 12 : at + 12 + length]
        (check,) = struct.unpack_from("<I", data, at + 12 + length)
        assert len(payload) == length and check == masked(payload), "checksum of an event"
        yield payload
        at += 16 + length


def fields(data):
    """The fields of a protocol buffer: number, value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at : at + size]
        at += size


def decode(path):
    """The events of a file: dictionaries with step, version, status and scalars."""
    for payload in records(path):
        event = {"step": 0, "scalars": {}}
        for number, value in fields(payload):
            if number == 1:
                (event["time"],) = struct.unpack("<d", value)
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value.decode()
            elif number == 7:
                event["status"] = dict(fields(value))[1]
            elif number == 5:
                for _, item in fields(value):
                    item = dict(fields(item))
                    event["scalars"][item[1].decode()] = struct.unpack("<f", item[2])[0]
            else:
                raise AssertionError(f"field {number} of an event")
        yield event


# ---- what must be there --------------------------------------------------------------------------


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def wanted(folder):
    """{tag: {step: value}} from metrics.jsonl."""
    out = {}
    for line in open(f"{folder}/metrics.jsonl"):
        line = json.loads(line)
        for key, tag in TAGS.get(line["kind"], {}).items():
            out.setdefault(tag, {})[line["step"]] = single(line[key])
    return out


def files(folder):
    return sorted(glob.glob(f"{folder}/events/*"))


def found(folder):
    """The same from the event files; a step that is there twice is a failure."""
    out = {}
    for path in files(folder):
        for event in decode(path):
            for tag, value in event["scalars"].items():
                assert event["step"] not in out.setdefault(tag, {}), (path, tag, event["step"])
                out[tag][event["step"]] = value
    return out


def from_tensorboard(accumulator):
    accumulator.Reload()
    tags = accumulator.Tags()
    out = {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in tags["scalars"]}
    count = sum(len(accumulator.Scalars(tag)) for tag in tags["scalars"])
    assert count == sum(map(len, out.values())), "TensorBoard shows a step twice"
    return out


def accumulator_of(folder):
    sizes = {event_accumulator.SCALARS: 0}
    return event_accumulator.EventAccumulator(f"{folder}/events", size_guidance=sizes)


def train(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr


def test_checksum():
    @case("CRC-32C of RFC 3720's examples, by the reader of this test")
    def _():
        up = bytes(range(32))
        assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"\xff" * 32) == 0x62A8AB43
        assert crc32c(up) == 0x46DD794E and crc32c(up[::-1]) == 0x113FDB5C


def test_events():
    train(*RUN, "--steps", 6, "--out", "run")

    @case("events: what metrics.jsonl says, once, under its tags")
    def _():
        assert len(files("run")) == 1
        assert len(found("run")) == 13
        assert found("run") == wanted("run"), (found("run"), wanted("run"))

    @case("events: a file begins with its version and START, and time does not go back")
    def _():
        events = list(decode(files("run")[0]))
        assert events[0]["version"] == "brain.Event:2" and not events[0]["scalars"]
        assert events[1]["status"] == 1 and events[1]["step"] == 1
        times = [event["time"] for event in events]
        assert times == sorted(times)

    @case("events: names that TensorBoard takes, in the order of their making")
    def _():
        assert os.path.basename(files("run")[0]) == "events.out.tfevents.000001"

    shutil.copytree("run", "live")
    live = event_accumulator and accumulator_of("live")
    if live:
        from_tensorboard(live)  # a TensorBoard that has seen the steps that will be made again
    for folder in ("run", "live"):
        os.remove(f"{folder}/checkpoints/step-00000006.safetensors")
        with open(files(folder)[0], "ab") as file:
            file.write(b"\x20\0\0\0half a record")  # what a power cut leaves
        train("train", "--resume", folder, "--quiet", "--threads", 1)

    @case("events: a resumed run cuts back, begins a new file, and has each step once")
    def _():
        assert len(files("run")) == 2
        first, second = (list(decode(path)) for path in files("run"))
        assert max(event["step"] for event in first) == 4
        assert second[1]["status"] == 1 and second[1]["step"] == 5
        assert sorted(found("run")["loss/total"]) == [1, 2, 3, 4, 5, 6]
        assert found("run") == wanted("run")

    if event_accumulator:

        @case("events: TensorBoard's reader, of the files as they are")
        def _():
            assert from_tensorboard(accumulator_of("run")) == wanted("run")

        @case("events: a TensorBoard that was running sees each step once")
        def _():
            assert from_tensorboard(live) == wanted("live")

    else:
        skip("events: TensorBoard's reader", "this Python has no tensorboard")

    shutil.rmtree("run")
    shutil.rmtree("live")


def test_off():
    @case("--no-tensorboard: no events; a resumed run may turn them on")
    def _():
        train(*RUN, "--steps", 2, "--no-tensorboard", "--out", "run")
        assert not os.path.exists("run/events")
        os.remove("run/checkpoints/step-00000002.safetensors")
        train("train", "--resume", "run", "--tensorboard", "--quiet", "--threads", 1)
        assert sorted(found("run")["loss/total"]) == [1, 2]
        shutil.rmtree("run")


def test_in_the_way():
    @case("events that cannot be written: a warning, and a resumed run goes on to its end")
    def _():
        train(*RUN, "--steps", 4, "--out", "run")
        os.remove("run/checkpoints/step-00000004.safetensors")
        shutil.rmtree("run/events")
        open("run/events", "w").close()
        done = run("train", "--resume", "run", "--quiet", "--threads", 1)
        assert done.returncode == 0, done.stderr
        assert "no curves for TensorBoard" in done.stderr and "run/events" in done.stderr
        assert "no curves for TensorBoard" in open("run/log.txt").read()
        assert sorted(wanted("run")["loss/total"]) == [1, 2, 3, 4]
        assert os.path.getsize("run/events") == 0
        shutil.rmtree("run")


run_tests(test_checksum, test_events, test_off, test_in_the_way)
