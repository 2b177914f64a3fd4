"""What the tests in Python share: counting cases, and running the program, which is ZONAL_PROGRAM."""
import json
import os
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
