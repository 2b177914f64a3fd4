"""bench/python_loss.py: every part runs on the CPU, at a small size, and finds what it looks for."""
import json
import os
import subprocess
import sys
import unittest

from torch_case import MODERN, Case, slow, torch

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/python_loss.py")


def lines_of(*arguments):
    done = subprocess.run([sys.executable, BENCH, "--device", "cpu", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


@slow
class Bench(Case):
    def test_overhead_and_table(self):
        first, second = lines_of("--part", "overhead,table", "--method", "mmd-band", "--batch", "64",
                                 "--dim", "8")
        self.assertEqual((first["part"], second["part"]), ("overhead", "table"))
        self.assertTrue(0 < first["bare_us"] and 0 < first["module_us"])
        self.assertTrue(0 < second["zonal_ms"] and 0 < second["torch_ms"])
        self.assertEqual("torch_compiled_ms" in second, hasattr(torch, "compile"))

    @unittest.skipUnless(MODERN, "torch.compile is asked of PyTorch 2.4 and later")
    def test_a_compiled_network_has_no_graph_break(self):
        (line,) = lines_of("--part", "resnet", "--row", "resnet18@32", "--views-batch", "4",
                           "--width", "0.125")
        self.assertEqual(line["zonal_graph_breaks"], 0)
        self.assertTrue(0 < line["no_loss_ms"] and 0 < line["zonal_ms"])


if __name__ == "__main__":
    unittest.main()
