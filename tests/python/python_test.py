"""The Python package: an sdist, a wheel made from it alone, and all its tests in a virtual environment that
has nothing but the wheel and this Python's own modules.

    python_test.py [slow]     slow: what torch.compile's own compiler makes of the modules, and the bench

Where scikit-build-core is not to be had, the tests run on the sources and the library of the build folder.
"""
import glob
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from harness import SOURCE, case, finish, report, skip

import harness

BUILD = os.environ["ZONAL_BUILD_DIR"]
TESTS = os.path.join(SOURCE, "bindings/python/tests/run.py")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
# Of every Linux with a C compiler's runtime; nothing else may be needed.
SYSTEM = {"libc.so.6", "libm.so.6", "libgomp.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"}


def build(script, what, folder):
    """Without CUDA: that would take minutes, and is compiled by make python."""
    done = subprocess.run([script, what, folder, "cmake.define.ZONAL_CUDA=OFF"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        raise AssertionError(done.stdout[-2000:])
    return done.stdout.strip().split("\n")[-1]


def check_sdist(names):
    """Whatever git knows of the sources is in it."""
    folders = ["src", "include", "cmake", "bindings/python/zonal"]
    tracked = subprocess.run(["git", "-C", SOURCE, "ls-files", *folders], stdout=subprocess.PIPE,
                             universal_newlines=True, check=True).stdout.split("\n")
    missing = [name for name in tracked if name and name not in names]
    if missing:
        raise AssertionError(f"the sdist lacks {missing[:5]}")


def check_wheel(wheel, scratch):
    if not re.fullmatch(r"zonal-[0-9.]+-py3-none-linux_\w+\.whl", os.path.basename(wheel)):
        raise AssertionError(f"{wheel} is not for every Python 3")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        libraries = [name for name in names if ".so" in name]
        if libraries != ["zonal/libzonal.so"] or "zonal/py.typed" not in names:
            raise AssertionError(names)
        library = archive.extract("zonal/libzonal.so", scratch)
    told = subprocess.run(["readelf", "-d", library], stdout=subprocess.PIPE, universal_newlines=True,
                          check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", told))
    if not needed <= SYSTEM or re.search(r"\((RPATH|RUNPATH)\)", told):
        raise AssertionError(f"the library needs {needed - SYSTEM}, or has a path of this machine:\n{told}")


def environment(wheel, folder):
    """A virtual environment with the wheel; numpy and PyTorch are those of this Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder],
                   check=True)
    python = os.path.join(folder, "bin/python")
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if installed.returncode != 0:  # no pip here; the wheel has nothing but files to unpack
        (site,) = glob.glob(os.path.join(folder, "lib/python3*/site-packages"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return python


def run_package_tests(python, scratch, *pattern, **extra):
    """Adds the counts of the package's own tests to this one's."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("PYTHONPATH", "ZONAL_LIBRARY"):
        variables.pop(name, None)
    done = subprocess.run([python, TESTS, *pattern], cwd=scratch, env={**variables, **extra},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    print(done.stdout)
    counts = COUNTS.findall(done.stdout)
    ended = counts and done.returncode in (0, 1)
    report(ended, "the package's tests ran to their end", f"status {done.returncode}")
    if counts:
        passed, failed, skipped = map(int, counts[-1])
        harness.passed += passed
        harness.failed += failed
        harness.skipped += skipped


def on_the_sources():
    return {"PYTHONPATH": os.path.join(SOURCE, "bindings/python"),
            "ZONAL_LIBRARY": os.path.join(BUILD, "libzonal.so")}


def test_wheel(scratch):
    sdist = build(os.path.join(SOURCE, "scripts/python.sh"), "sdist", scratch + "/out")
    if sdist is None:
        skip("sdist and wheel", "scikit-build-core is not to be had: pip install scikit-build-core")
        run_package_tests(sys.executable, scratch, **on_the_sources())
        return
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch)
        names = {name.partition("/")[2] for name in archive.getnames()}
    case("the sdist has every source")(lambda: check_sdist(names))
    (unpacked,) = glob.glob(scratch + "/zonal-*")
    wheel = build(unpacked + "/scripts/python.sh", "wheel", scratch + "/out")
    report(True, "a wheel is built from the sdist alone")
    case("the wheel carries what it needs")(lambda: check_wheel(wheel, scratch + "/wheel"))
    run_package_tests(environment(wheel, scratch + "/venv"), scratch)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        if "slow" in sys.argv:  # those of test_bench.py, test_modules.py and test_types.py
            run_package_tests(sys.executable, scratch, "test_[bmt]*.py", **on_the_sources(),
                              ZONAL_SLOW_TESTS="1")
        else:
            test_wheel(scratch)
    finish()


if __name__ == "__main__":
    main()
