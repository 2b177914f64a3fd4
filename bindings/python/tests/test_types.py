"""The package's type hints, by mypy as pyproject.toml sets it; they are what py.typed promises."""
import importlib.util
import os
import subprocess
import sys
import unittest

from torch_case import MODERN, slow

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))


@slow
@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
@unittest.skipUnless(MODERN, "the hints are checked against those of PyTorch 2.4 and later")
class Types(unittest.TestCase):
    def test_mypy(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", os.devnull], cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
