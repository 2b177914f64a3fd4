"""Runs the tests of the package that Python finds, and the examples in its docstrings.

    python run.py [pattern]      test_*.py unless given

Ends with "N passed, N failed, N skipped"; the exit status is 0, 1 after a failure, 77 if all was skipped.
"""
import doctest
import importlib
import os
import pkgutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Counting(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def examples():
    """The docstrings of every module that can be imported here."""
    import zonal

    suite = unittest.TestSuite()
    for module in pkgutil.iter_modules(zonal.__path__):
        try:
            found = importlib.import_module("zonal." + module.name)
        except ImportError as error:
            print(f"examples of zonal.{module.name} skipped: {error}")
            continue
        suite.addTests(doctest.DocTestSuite(found, optionflags=doctest.NORMALIZE_WHITESPACE))
    return suite


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
    sys.path.insert(0, HERE)
    suite = unittest.defaultTestLoader.discover(HERE, pattern, HERE)
    if len(sys.argv) == 1:
        suite.addTests(examples())
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Counting).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    print(f"{result.passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 77 if result.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
