"""What the tests of the losses share; importing it skips a file where there is no PyTorch."""
import os
import unittest

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"PyTorch is not installed ({error})")

MODERN = hasattr(torch.library, "register_fake")
CUDA = torch.cuda.is_available()
REQUIRE_GPU = bool(os.environ.get("ZONAL_REQUIRE_GPU"))

modern = unittest.skipUnless(MODERN, "torch.compile and opcheck are asked of PyTorch 2.4 and later")
slow = unittest.skipUnless(os.environ.get("ZONAL_SLOW_TESTS"), "slow: set ZONAL_SLOW_TESTS=1")


def rows(*shape, seed=0, dtype=torch.float64, grad=True, device="cpu"):
    """Rows with a common direction and unequal lengths: nothing is symmetric."""
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z = (z + 0.3) * torch.linspace(0.5, 2, shape[-2], dtype=torch.float64)[:, None]
    return z.to(device=device, dtype=dtype).requires_grad_(grad)


def gradient(loss, z):
    return torch.autograd.grad(loss(z), z)[0]


class Case(unittest.TestCase):
    def assert_close(self, got, expected, relative, absolute=0.0):
        """Both tensors or numbers; a NaN on either side fails."""
        got, expected = (torch.as_tensor(x, dtype=torch.float64, device="cpu") for x in (got, expected))
        self.assertEqual(got.shape, expected.shape)
        error, size = (got - expected).norm().item(), expected.norm().item()
        self.assertTrue(error <= relative * size + absolute, f"off by {error} of {size}")

    def refused(self, kind, words, function, *arguments, **keywords):
        """An exception of that kind, with these words in one sentence."""
        with self.assertRaisesRegex(kind, words) as caught:
            function(*arguments, **keywords)
        self.assertNotIn("\n", str(caught.exception))
