"""What the tests in Python share: counting cases, and running the program, which is ZONAL_PROGRAM."""
import json
import os
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(os.environ.get("ZONAL_PROGRAM", "build/zonal"))
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
passed = failed = skipped = 0


def report(good, name, why=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good and why:
        print("# " + str(why).replace("\n", "\n# "))
    print(f"{'ok' if good else 'not ok'} {passed + failed + skipped} - {name}", flush=True)


def skip(name, why):
    global skipped
    skipped += 1
    print(f"ok {passed + failed + skipped} - {name} # SKIP {why}")


def xxh64(content):
    """XXH64 with seed 0, step by step as its specification has it, on whole numbers of any size."""
    prime1, prime2, prime3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    prime4, prime5, mask = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, 2 ** 64 - 1

    def rotated(x, bits):
        return (x << bits | (x & mask) >> 64 - bits) & mask

    def mixed(lane, word):
        return rotated(lane + word * prime2 & mask, 31) * prime1 & mask

    at, length = 0, len(content)
    if length >= 32:
        lanes = [prime1 + prime2 & mask, prime2, 0, -prime1 & mask]
        while length - at >= 32:
            for k in range(4):
                lanes[k] = mixed(lanes[k], int.from_bytes(content[at + 8 * k:at + 8 * k + 8], "little"))
            at += 32
        total = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            total = ((total ^ mixed(0, lane)) * prime1 + prime4) & mask
    else:
        total = prime5
    total = total + length & mask
    while length - at >= 8:
        total ^= mixed(0, int.from_bytes(content[at:at + 8], "little"))
        total = rotated(total, 27) * prime1 + prime4 & mask
        at += 8
    if length - at >= 4:
        total ^= int.from_bytes(content[at:at + 4], "little") * prime1 & mask
        total = rotated(total, 23) * prime2 + prime3 & mask
        at += 4
    for byte in content[at:]:
        total = rotated(total ^ byte * prime5 & mask, 11) * prime1 & mask
    total = (total ^ total >> 33) * prime2 & mask
    total = (total ^ total >> 29) * prime3 & mask
    return total ^ total >> 32


def write_mnist(folder, part, side, labels, pixels):
    """The two files of a part of a data set like MNIST, "train" or "t10k": bytes, and side * side of them each."""
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4I", 0x803, len(labels), side, side) + bytes(pixels))
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2I", 0x801, len(labels)) + bytes(labels))


def run(*arguments, **keywords):
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True, timeout=100, **keywords
    )


def run_json(*arguments):
    done = run(*arguments, "--json")
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"{arguments}: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def case(name):
    """Runs a function as one test; an exception is a failure."""

    def decorate(function):
        try:
            result = function()
            report(result is None or result, name)
        except Exception as error:  # the remaining tests are still worth running
            report(False, name, f"{type(error).__name__}: {error}")
        return function

    return decorate


def refused(name, status, text, *arguments):
    """Exit status, one line on stderr that says why, nothing on stdout, no file made or changed."""
    before = sorted(os.listdir())
    done = run(*arguments)
    good = (
        done.returncode == status
        and done.stderr.startswith("zonal: ")
        and done.stderr.count("\n") == 1
        and done.stderr.endswith("\n")
        and text in done.stderr
        and not done.stdout
        and sorted(os.listdir()) == before
    )
    report(good, f"refused: {name}", f"status {done.returncode}\n{done.stderr}{done.stdout}")


def kept(name, path, *arguments):
    """Refused, because "path", which the command reads, would be replaced; it stays as it is."""
    with open(path, "rb") as file:
        before = file.read()
    refused(f"{name} over its input", 2, "would replace", *arguments)
    with open(path, "rb") as file:
        report(file.read() == before, f"{name} leaves its input as it was")


def finish():
    """The closing line; ends the program, with 77 when all was skipped."""
    print(f"1..{passed + failed + skipped}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 77 if passed == 0 else 0)


def run_tests(*tests):
    """Runs each in one empty folder, which it must leave empty; ends the program."""
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"{PROGRAM} is not there: build it, or set ZONAL_PROGRAM")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for test in tests:
            test()
            report(not os.listdir(), f"{test.__name__} leaves no file behind", os.listdir())
        os.chdir("/")
    finish()
