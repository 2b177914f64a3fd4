"""Losses for JAX, against formulas in jax.numpy, differences, and each other under jit and vmap."""

import unittest

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise unittest.SkipTest(f"JAX is not installed ({error})")

import zonal.jax

jax.config.update("jax_enable_x64", True)
Z = np.random.default_rng(0).standard_normal((40, 9)) + 0.2


def band_2(z):
    """MMD under the kernel of degrees 1 and 2, each weighted by the number of its harmonics."""
    x = z / jnp.linalg.norm(z, axis=1, keepdims=True)
    d = z.shape[1]
    c = x @ x.T
    ones, twos = d, (d - 1) * (d + 2) / 2
    return jnp.mean(ones * c + twos * (d * c**2 - 1) / (d - 1)) / (ones + twos)


class Losses(unittest.TestCase):
    def test_formula_and_its_gradient(self):
        value, gradient = jax.value_and_grad(lambda z: zonal.jax.mmd(z, "band", band=2))(Z)
        want, want_gradient = jax.value_and_grad(band_2)(jnp.asarray(Z))
        np.testing.assert_allclose(value, want, rtol=1e-12)
        np.testing.assert_allclose(gradient, want_gradient, atol=1e-11 * np.abs(want_gradient).max())

    def test_differences(self):
        way = np.random.default_rng(1).standard_normal(Z.shape)
        for loss in (zonal.jax.mmd, zonal.jax.ksd, zonal.jax.kl):
            derivative = float(jnp.sum(jax.grad(loss)(Z) * way))
            h = 1e-5
            differences = float(loss(Z + h * way) - loss(Z - h * way)) / (2 * h)
            self.assertAlmostEqual(derivative / differences, 1, delta=1e-7)

    def test_jit_vmap_and_chain_rule(self):
        eager = jax.grad(zonal.jax.mmd)(Z)
        np.testing.assert_array_equal(jax.jit(jax.grad(zonal.jax.mmd))(Z), eager)
        doubled = jax.grad(lambda z: 2 * zonal.jax.mmd(3 * z))(Z)  # rows are scaled to unit length
        np.testing.assert_allclose(doubled, 2 * np.asarray(eager), rtol=1e-9, atol=1e-15)
        batches = jnp.stack([Z, Z + 1])
        np.testing.assert_array_equal(jax.vmap(zonal.jax.mmd)(batches), [zonal.jax.mmd(z) for z in batches])

    def test_dtypes(self):
        want = zonal.jax.mmd(Z)
        for dtype, near in ((jnp.float32, 1e-6), (jnp.bfloat16, 3e-2), (jnp.float16, 1e-2)):
            z = jnp.asarray(Z, dtype)
            self.assertLess(abs(float(zonal.jax.mmd(z)) / float(want) - 1), near)
            self.assertEqual(jax.grad(lambda z: zonal.jax.mmd(z).astype(jnp.float32))(z).dtype, dtype)

    def test_large_batches_under_jit(self):
        """The callback must not wait for what XLA's threads are busy with."""
        z = jax.random.normal(jax.random.PRNGKey(0), (8192, 128), jnp.float32)
        step = jax.jit(jax.value_and_grad(lambda z: zonal.jax.mmd(z @ (2 * jnp.eye(128)), "band")))
        for _ in range(3):
            value, gradient = step(z)
        self.assertTrue(0 < float(value) < 0.01 and bool(jnp.isfinite(gradient).all()))

    def test_refused(self):
        for kind, sentence, call in (
            (ValueError, r"array \[B, d\], got one of shape \[9\]", lambda: zonal.jax.mmd(Z[0])),
            (TypeError, "floating point numbers, got int64", lambda: zonal.jax.mmd(np.ones((4, 4), int))),
            (ValueError, "there is no loss mmd-haet", lambda: zonal.jax.mmd(Z, "haet")),
            (ValueError, "no use for band", lambda: zonal.jax.mmd(Z, "heat", band=2)),
            (ValueError, "at least 2", lambda: jax.jit(zonal.jax.mmd)(Z[:1])),
        ):
            with self.assertRaisesRegex(kind, sentence):
                call()
        with self.assertRaisesRegex(Exception, "row 3"):
            jax.block_until_ready(zonal.jax.mmd(jnp.asarray(Z).at[3, 1].set(jnp.nan)))


if __name__ == "__main__":
    unittest.main()
