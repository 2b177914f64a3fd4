"""Forks, spawned processes and hostile input: nothing hangs, nothing crashes."""
import multiprocessing
import os
import subprocess
import sys
import unittest

from torch_case import Case, gradient, rows, torch
from zonal.losses import MMD, SUSReg

HERE = os.path.dirname(os.path.abspath(__file__))


def value_and_gradient():
    z = rows(200, 32)
    return MMD()(z).item(), gradient(MMD(), z).sum().item()


def answer(queue):
    queue.put(value_and_gradient())


class Rows(torch.utils.data.Dataset):
    """Each item is a loss, computed by the worker."""

    def __init__(self):
        self.loss = MMD(threads=2)  # a fork must not take it at its word

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.loss(rows(100, 16, seed=i, grad=False)).item()


class Processes(Case):
    def expect_from_child(self, method):
        expected = value_and_gradient()  # in the parent first: its threads exist then
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=answer, args=(queue,))
        child.start()
        try:
            self.assertEqual(queue.get(timeout=60), expected)
        finally:
            child.join(10)
            child.terminate()

    def test_fork(self):
        self.expect_from_child("fork")

    def test_spawn(self):
        self.expect_from_child("spawn")

    def test_two_forks_of_many_threads(self):
        torch.set_num_threads(max(2, torch.get_num_threads()))
        self.expect_from_child("fork")
        self.expect_from_child("fork")

    def test_data_loader_workers(self):
        data = Rows()
        expected = [data[i] for i in range(len(data))]
        for start in ("fork", "spawn"):
            with self.subTest(start):
                loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, timeout=60,
                                                     multiprocessing_context=start)
                self.assertEqual([float(x) for x in loader], expected)

    def test_the_parent_goes_on(self):
        before = value_and_gradient()
        self.expect_from_child("fork")
        self.assertEqual(value_and_gradient(), before)

    def test_a_module_travels(self):
        context = multiprocessing.get_context("spawn")
        loss = SUSReg(slices=8)
        loss.step = 5
        with context.Pool(1) as pool:
            value, step = pool.apply_async(step_of, (loss,)).get(60)
        self.assertEqual(loss.step, 5)
        self.assertEqual((value, step), step_of(loss))


def step_of(loss):
    return loss(rows(9, 6, grad=False)).item(), loss.step


class Fuzz(Case):
    def test_the_interpreter_survives(self):
        """In a process of its own, as a crash would end it."""
        done = subprocess.run([sys.executable, os.path.join(HERE, "fuzz.py"), "300"], timeout=110,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        self.assertRegex(done.stdout, "300 calls: [0-9]+ values, [0-9]+ refusals")


if __name__ == "__main__":
    unittest.main()
