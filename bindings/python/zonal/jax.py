"""The exact losses for JAX, on the CPU: value and gradient from one call of libzonal.

    loss = lambda z: zonal.jax.mmd(z, kernel="heat", t="5/d")
    value, gradient = jax.value_and_grad(loss)(z)               # z [B, d], raw embeddings; also under jax.jit

The call goes out of XLA by jax.pure_callback: arrays are copied, and on a GPU that means to the host and
back. A handler of XLA's own (jax.ffi) would need a file compiled against XLA's headers, which this package
does without. Losses have no second derivative; under vmap they are called one by one.
"""

from __future__ import annotations

import functools
from typing import Any, Tuple

import numpy as np

from ._library import is_forked, names, options_text
from ._plans import Key, pool

try:
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError(f"zonal.jax needs JAX 0.4.34 or later ({error}): pip install jax") from None

__all__ = ["kl", "ksd", "mmd"]

_WORDS = {"float64": "double", "float32": "fp32"}


def mmd(z: Any, kernel: str = "heat", **options: Any) -> jax.Array:
    """Maximum mean discrepancy of z [B, d] from the uniform distribution on the sphere, 1 at total collapse;
    kernels and options are those of :class:`zonal.losses.MMD`.

    >>> import jax, jax.numpy as jnp
    >>> z = jax.random.normal(jax.random.PRNGKey(0), (64, 16))
    >>> round(float(mmd(jnp.ones((4, 16)))), 6), jax.jit(jax.grad(mmd))(z).shape
    (1.0, (64, 16))
    """
    return _checked_loss(z, f"mmd-{kernel}", options)


def ksd(z: Any, kernel: str = "heat", **options: Any) -> jax.Array:
    """Kernel Stein discrepancy; as :func:`mmd`."""
    return _checked_loss(z, f"ksd-{kernel}", options)


def kl(z: Any, kernel: str = "heat", **options: Any) -> jax.Array:
    """Kullback-Leibler divergence, as of :class:`zonal.losses.KL`; at least three rows."""
    return _checked_loss(z, f"kl-{kernel}", options)


def _checked_loss(z: Any, method: str, options: Any) -> jax.Array:
    """What can be seen from shapes is refused here: an exception in a callback comes as XLA's."""
    z = jnp.asarray(z)
    if z.ndim != 2:
        raise ValueError(f"a zonal loss takes an array [B, d], got one of shape {list(z.shape)}")
    if not jnp.issubdtype(z.dtype, jnp.floating):
        raise TypeError(f"a zonal loss takes rows of floating point numbers, got {z.dtype}")
    if method not in names("zonal_method_name"):
        raise ValueError(f"there is no loss {method}; there are {', '.join(names('zonal_method_name'))}")
    text = options_text(options)
    dtype = z.dtype if z.dtype.name in _WORDS else jnp.float32
    pool.give(*_take(method, text, z.shape, np.dtype(dtype).name))  # wrong options are refused now
    value: jax.Array = _loss(z.astype(dtype), method, text)
    return value


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _loss(z: Any, method: str, options: str) -> Any:
    return _call(z, method, options)[0]


def _forward(z: Any, method: str, options: str) -> Any:
    return _call(z, method, options)


def _backward(method: str, options: str, gradient: Any, factor: Any) -> Tuple[Any]:
    return (gradient * factor,)


_loss.defvjp(_forward, _backward)


def _call(z: Any, method: str, options: str) -> Any:
    like: Any = jax.ShapeDtypeStruct
    results = (like((), z.dtype), like(z.shape, z.dtype))
    host = functools.partial(_on_host, method, options)
    return jax.pure_callback(host, results, z, vmap_method="sequential")


def _on_host(method: str, options: str, z: Any) -> Tuple[Any, Any]:
    x = np.ascontiguousarray(z)
    value, gradient = np.empty(1), np.empty_like(x)
    key, made = _take(method, options, x.shape, x.dtype.name)
    try:
        made.execute(x.ctypes.data, value.ctypes.data, gradient.ctypes.data)
    finally:
        pool.give(key, made)
    return x.dtype.type(value[0]), gradient


def _take(method: str, options: str, shape: Tuple[int, ...], dtype: str) -> Any:
    word = _WORDS[dtype]
    key = Key(method, options, tuple(shape), 0, word, "cpu", word, int(is_forked()), 0)
    return key, pool.take(key)
