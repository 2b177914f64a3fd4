"""Whatever holds an array is read, and what cannot be is refused with a sentence."""

import multiprocessing
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zonal
from zonal._arrays import as_rows

try:
    import torch
except ImportError:
    torch = None

X = np.random.default_rng(0).standard_normal((30, 5))


class WithArray:
    def __array__(self, dtype=None, copy=None):
        return X


class WithDlpack:
    """Not numpy's, and without __array__."""

    def __init__(self, device=(1, 0)):
        self._device = device

    def __dlpack__(self, **keywords):
        if self._device[0] != 1:
            raise BufferError("its memory is not the host's")
        return X.__dlpack__()

    def __dlpack_device__(self):
        return self._device


class Taken(unittest.TestCase):
    def test_all_kinds_give_the_same_rows(self):
        padded = np.zeros((60, 10))
        padded[::2, ::2] = X
        for what in (
            X,
            np.asfortranarray(X),
            padded[::2, ::2],
            X.astype(">f8"),
            X.tolist(),
            WithArray(),
            WithDlpack(),
            X.astype(np.longdouble),
        ):
            rows = as_rows(what)
            self.assertEqual(rows.dtype, np.float64)
            self.assertTrue(rows.flags.c_contiguous and (rows == X).all(), type(what))

    def test_single_and_half(self):
        for dtype in (np.float32, np.float16):
            rows = as_rows(X.astype(dtype))
            self.assertEqual(rows.dtype, np.float32)
            self.assertTrue((rows == X.astype(dtype)).all())

    def test_nothing_is_copied_without_need(self):
        self.assertTrue(np.shares_memory(as_rows(X), X))

    @unittest.skipIf(torch is None, "this Python has no torch")
    def test_torch(self):
        tensor = torch.from_numpy(X)
        self.assertTrue(np.shares_memory(as_rows(tensor), X))
        self.assertTrue((as_rows(tensor.clone().requires_grad_()) == X).all())
        self.assertTrue((as_rows(tensor.t().contiguous().t()) == X).all())
        half = tensor.to(torch.bfloat16)
        self.assertEqual(as_rows(half).dtype, np.float32)
        self.assertTrue((as_rows(half) == half.float().numpy()).all())
        self.assertEqual(zonal.collapse_report(tensor), zonal.collapse_report(X))


def in_a_fork(results):
    found = zonal.collapse_report(X).effective_rank, zonal.variance(d=4, batch=8, slices=[2], replicates=2)
    results.put(found)


class AtOnce(unittest.TestCase):
    def test_threads(self):
        want = zonal.test_uniformity(X, monte_carlo=5)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: zonal.test_uniformity(X, monte_carlo=5), range(12)))
        self.assertTrue(all(str(report) == str(want) for report in found))

    def test_fork(self):
        """After threads of OpenMP have run here, whose copies in a fork would never answer."""
        large = np.random.default_rng(1).standard_normal((2000, 64))
        zonal.test_uniformity(large)
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        child = context.Process(target=in_a_fork, args=(results,), daemon=True)
        child.start()
        rank, report = results.get(timeout=60)
        child.join(30)
        self.assertEqual(rank, zonal.collapse_report(X).effective_rank)
        self.assertEqual(report, zonal.variance(d=4, batch=8, slices=[2], replicates=2))


class Fuzz(unittest.TestCase):
    def test_any_shape_strides_and_dtype(self):
        """A report or an exception, and no crash."""
        random, found, refused = np.random.default_rng(7), 0, 0
        for _ in range(400):
            axes = random.choice([0, 1, 2, 2, 2, 2, 3])
            kind = random.choice(["f2", "f4", "f8", ">f4", "i4", "c8", "?"])
            array = random.standard_normal(tuple(random.integers(0, 7, axes))).astype(kind)
            array = array[tuple(slice(None, None, int(step)) for step in random.choice([-2, -1, 1, 2], axes))]
            if random.random() < 0.3:
                array = np.broadcast_to(array.reshape(-1)[:1], (4, 3)) if array.size else array.T
            try:
                self.assertEqual(zonal.test_uniformity(array).n, len(array))
                found += 1
            except (TypeError, ValueError) as error:
                self.assertNotIn("\n", str(error))
                refused += 1
        self.assertGreater(min(found, refused), 20)


class Refused(unittest.TestCase):
    def refused(self, kind, sentence, what, **options):
        with self.assertRaisesRegex(kind, sentence):
            zonal.test_uniformity(what, **options)

    def test_shapes(self):
        self.refused(ValueError, r"must be \[rows, dimensions\], got 1 axes: \[30\]", X[:, 0])
        self.refused(ValueError, r"got 3 axes: \[1, 30, 5\]; reshape it", X[None])
        self.refused(ValueError, "at least 2 rows, got 1", X[:1])
        self.refused(ValueError, "at least 2 rows, got 0", X[:0])
        self.refused(ValueError, "from 2 to 4096, got 1", X[:, :1])
        self.refused(ValueError, "from 2 to 4096, got 0", X[:, :0])

    def test_kinds(self):
        self.refused(TypeError, "floating-point numbers, got int64; convert", np.ones((4, 4), np.int64))
        self.refused(TypeError, "got complex128", np.ones((4, 4), complex))
        self.refused(TypeError, "floating-point numbers, got <U1", [["a", "b"], ["c", "d"]])
        self.refused(TypeError, "must be an array .* got str", "x.npy")
        self.refused(TypeError, "must be an array .* got NoneType", None)
        self.refused(TypeError, "copy it to host memory first", WithDlpack((2, 0)))
        self.refused(ValueError, "is masked", np.ma.masked_greater(X, 1))
        self.refused((TypeError, ValueError), "", [[1.0, 2.0], [3.0]])

    def test_values(self):
        for bad in (np.nan, np.inf):
            x = X.copy()
            x[7, 2] = bad
            self.refused(ValueError, "row 7", x)
        x = X.copy()
        x[9] = 0
        self.refused(ValueError, "row 9", x)
        self.refused(ValueError, "unit", X, unit=True)

    def test_options(self):
        self.refused(ValueError, "mc must be", X, monte_carlo=-1)
        self.refused(ValueError, "level must be", X, level=1.5)
        self.refused(ValueError, "t must be", X, t="5/e")
        self.refused(TypeError, "seed must be a number", X, seed=object())

    @unittest.skipIf(torch is None, "this Python has no torch")
    def test_tensors(self):
        self.refused(TypeError, "got int64", torch.ones(4, 4, dtype=torch.int64))
        self.refused(TypeError, "is a meta tensor", torch.ones(4, 4, device="meta"))
        self.refused(TypeError, "copy it to host", torch.eye(4).to_sparse())


if __name__ == "__main__":
    unittest.main()
