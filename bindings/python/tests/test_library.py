"""Loading libzonal: what is said where it is missing, damaged, another library or of another version."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import zonal
from zonal import _library

COMPILER = os.environ.get("CC") or shutil.which("cc")
SOURCE = """
const char *zonal_version(void) { return "%s"; }
"""


def importing(library):
    """The last line that `import zonal` leaves on stderr; empty if it succeeds."""
    done = subprocess.run([sys.executable, "-c", "import zonal"], stderr=subprocess.PIPE, timeout=60,
                          universal_newlines=True, env={**os.environ, "ZONAL_LIBRARY": library})
    return done.stderr.strip().split("\n")[-1], done.returncode


class Loading(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "libzonal.so")

    def tearDown(self):
        self.folder.cleanup()

    def refused(self, *words):
        line, status = importing(self.path)
        self.assertEqual(status, 1)
        self.assertTrue(line.startswith("ImportError: "), line)
        for word in words + ("ZONAL_LIBRARY",):
            self.assertIn(word, line)

    def compiled(self, version):
        if not COMPILER:
            self.skipTest("there is no C compiler to make a library with")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", self.path], check=True,
                       input=(SOURCE % version).encode(), timeout=60)

    def test_it_is_missing(self):
        self.refused("there is no libzonal at", self.path)

    def test_it_is_no_library(self):
        with open(self.path, "w") as file:
            file.write("not a library\n")
        self.refused("could not be loaded")

    def test_it_is_a_folder(self):
        os.mkdir(self.path)
        self.refused("could not be loaded")

    def test_another_version(self):
        self.compiled("9.8.7")
        self.refused("9.8.7", zonal.__version__)

    def test_the_same_version_without_its_functions(self):
        self.compiled(zonal.__version__)
        line, status = importing(self.path)
        self.assertEqual(status, 1)
        self.assertRegex(line, "^ImportError: .* has no zonal_.*pip install")

    def test_another_library(self):
        if not COMPILER:
            self.skipTest("there is no C compiler to make a library with")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", self.path], check=True,
                       input=b"int other(void) { return 0; }", timeout=60)
        self.refused("is not libzonal")

    def test_a_copy_works(self):
        shutil.copy(_library.path(), self.path)
        self.assertEqual(importing(self.path), ("", 0))


class Names(unittest.TestCase):
    def test_version(self):
        self.assertEqual(_library.lib.zonal_version().decode(), zonal.__version__)

    def test_unknown_names(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'loses'"):
            zonal.loses
        self.assertIn("losses", dir(zonal))

    def test_torch_is_not_imported_unasked(self):
        code = "import sys, zonal; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], timeout=60).returncode, 0)

    def test_without_torch(self):
        """A module that cannot be imported stands in for a machine without PyTorch."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "torch.py"), "w") as file:
                file.write("raise ImportError('no torch here')")
            path = os.pathsep.join([folder] + [p for p in [os.environ.get("PYTHONPATH")] if p])
            done = subprocess.run([sys.executable, "-c", "import zonal; zonal.losses"], timeout=60,
                                  stderr=subprocess.PIPE, universal_newlines=True,
                                  env={**os.environ, "PYTHONPATH": path})
        last = done.stderr.strip().split("\n")[-1]
        self.assertRegex(last, "^ImportError: zonal.losses needs PyTorch.*pip install torch")


if __name__ == "__main__":
    unittest.main()
