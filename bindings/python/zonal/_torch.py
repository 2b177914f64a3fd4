"""One call of libzonal as an operator of PyTorch: (value, parts, gradient) of a batch or of views.

From PyTorch 2.4 on it is the operator zonal::execute, known to torch.compile by its schema and shapes; before
that it is a plain function. The derivative is an autograd.Function around it, which costs less than one
registered with the operator: the call has the gradient ready, and backward multiplies.
"""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

try:
    import torch
except ImportError as error:
    raise ImportError(f"zonal.losses needs PyTorch 1.13 or later ({error}): pip install torch") from None

from . import _library
from ._plans import Key, pool

Result = Tuple[torch.Tensor, torch.Tensor, torch.Tensor]

MODERN = hasattr(torch.library, "register_fake")  # 2.4
_DEVICES = ("cpu", "cuda", "meta") if MODERN else ("cpu", "cuda")
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_WORDS = {torch.float64: "double", torch.float32: "fp32", torch.bfloat16: "bf16"}


# ---- the call ------------------------------------------------------------------------------------


def _execute(z: torch.Tensor, step: Optional[torch.Tensor], method: str, options: str, precision: str,
             threads: int, global_views: int, with_gradient: bool) -> Result:
    """value [] and gradient of z's dtype (empty if not asked for), parts in double: [] of z [B, d], the five
    of zonal_objective_parts of z [V, B, d]. It runs in every step: each operator of PyTorch costs 2 us."""
    z = z.contiguous()
    parts, gradient = buffers(z, with_gradient)
    key = key_of(z, method, options, precision, threads, global_views)
    captured = key.stream != 0 and torch.cuda.is_current_stream_capturing()
    made = pool.take_for_capture(key) if captured else pool.take(key)
    try:
        if key.device != "cpu":
            made.set_stream(key.stream)
        if step is not None and step.is_cuda:
            made.set_device_step(step.data_ptr())
        elif step is not None:
            made.set_step(int(step))
        made.execute(z.data_ptr(), parts.data_ptr(), gradient.data_ptr() if with_gradient else None)
    finally:
        if not captured:
            pool.give(key, made)
    return value_of(z, parts), parts, gradient


def buffers(z: torch.Tensor, with_gradient: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    """For the parts and the gradient."""
    parts = torch.empty(() if z.dim() == 2 else 5, dtype=torch.float64, device=z.device)
    return parts, torch.empty_like(z) if with_gradient else z.new_empty(0)


def value_of(z: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
    """The first part in the precision of the rows; that of bf16 rows is a float, as under autocast."""
    value = parts[0] if parts.dim() else parts
    return value.clone() if z.dtype == torch.float64 else value.float()


def _outputs(z: torch.Tensor, step: Optional[torch.Tensor], method: str, options: str, precision: str,
             threads: int, global_views: int, with_gradient: bool) -> Result:
    """What torch.compile is told."""
    z = z.contiguous()
    parts, gradient = buffers(z, with_gradient)
    return value_of(z, parts), parts, gradient


def key_of(z: torch.Tensor, method: str, options: str, precision: str, threads: int,
           global_views: int) -> Key:
    dtype = _WORDS[z.dtype]
    if z.device.type == "cpu":
        # Results are the same for any number of threads. In a fork more than one would hang.
        threads = 1 if _library.is_forked() else threads or torch.get_num_threads()
        return Key(method, options, tuple(z.shape), global_views, dtype, "cpu", dtype, threads, 0)
    index = z.device.index
    # torch.cuda.current_stream() makes an object, which costs 5 us.
    stream = _raw_stream(index) if _raw_stream else torch.cuda.current_stream(index).cuda_stream
    return Key(method, options, tuple(z.shape), global_views, dtype, f"cuda:{index}", precision, 0, stream)


if MODERN:
    _ops: Any = torch.library.Library("zonal", "DEF")  # type: ignore[no-untyped-call]
    _ops.define("execute(Tensor z, Tensor? step, str method, str options, str precision, int threads, "
                "int global_views, bool with_gradient) -> (Tensor, Tensor, Tensor)")
    _ops.impl("execute", _execute, "CPU")
    _ops.impl("execute", _execute, "CUDA")
    _ops.impl("execute", torch.library.fallthrough_kernel, "Autograd")  # the derivative is below
    torch.library.register_fake("zonal::execute", _outputs, lib=_ops)
    execute: Any = torch.ops.zonal.execute
else:
    execute = _execute


# ---- its derivative ------------------------------------------------------------------------------

_NO_SECOND = ("a zonal loss has no second derivative: detach its gradient, or leave it out of what is "
              "differentiated twice")
_NO_FORWARD = "a zonal loss has no forward-mode derivative: use backward() or torch.autograd.grad"
_NO_VMAP = "a zonal loss takes one batch at a time: call it in a loop instead of under vmap"


class Product(torch.autograd.Function):
    """gradient * factor under create_graph=True: right as a number, refused if it is differentiated. It
    takes z so that it is known to depend on it."""

    @staticmethod
    def forward(ctx: Any, z: Any, gradient: Any, factor: Any) -> Any:
        return gradient * factor

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        raise NotImplementedError(_NO_SECOND)


class _Eager(torch.autograd.Function):
    """Takes a list for the parts, and one for what execute() takes after z: more than one output, a
    setup_context, and each argument cost."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, rest: Tuple[Any, ...], out: List[torch.Tensor]) -> torch.Tensor:
        # The way through PyTorch's dispatcher costs 6 us, and is for those who look at operators.
        value, parts, gradient = (_execute if _is_plain(z) else execute)(z, *rest)
        out.append(parts)
        ctx.save_for_backward(gradient, z)
        return value

    @staticmethod
    def backward(ctx: Any, *factors: Any) -> Any:
        gradient, z = ctx.saved_tensors
        if torch.is_grad_enabled():
            return Product.apply(z, gradient, factors[0]), None, None
        return gradient * factors[0], None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_FORWARD)


# How many modes (fake tensors, tracers) want to see every operator.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: int(MODERN))


def _is_plain(z: torch.Tensor) -> bool:
    return type(z) in (torch.Tensor, torch.nn.Parameter) and z.device.type != "meta" and _modes() == 0


class _Compiled(torch.autograd.Function):
    """For torch.compile, which takes no function with a jvp or vmap of its own, and has its own refusals."""

    @staticmethod
    def forward(*arguments: Any) -> Result:
        return execute(*arguments)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, parts, gradient = output
        ctx.mark_non_differentiable(parts, gradient)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, inputs[0])

    @staticmethod
    def backward(ctx: Any, *factors: Any) -> Any:
        gradient, _ = ctx.saved_tensors
        return (gradient * factors[0], None, None, None, None, None, None, None)


class _TransformedProduct(torch.autograd.Function):
    """As Product."""

    generate_vmap_rule = True  # over the factor, for torch.func.jacrev

    @staticmethod
    def forward(z: Any, gradient: Any, factor: Any) -> Any:
        return gradient * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        raise NotImplementedError(_NO_SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_SECOND)


class _Transformed(_Compiled):
    """For torch.func.grad and its like."""

    @staticmethod
    def backward(ctx: Any, *factors: Any) -> Any:
        gradient, z = ctx.saved_tensors
        product = _TransformedProduct.apply(z, gradient, factors[0])
        return (product, None, None, None, None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_FORWARD)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        raise NotImplementedError(_NO_VMAP)


def evaluate(z: torch.Tensor, step: Optional[torch.Tensor], method: str, options: str, precision: str,
             threads: int, global_views: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """value, with its derivative, and parts; z is float64, float32 or (on CUDA) bfloat16."""
    with_gradient = torch.is_grad_enabled() and z.requires_grad
    rest = (step, method, options, precision, threads, global_views, with_gradient)
    if MODERN and torch.compiler.is_compiling():
        # PyTorch 2.4 cannot trace a function with a setup_context where no gradient is asked for.
        value, parts, _ = (_Compiled.apply if with_gradient else execute)(z, *rest)
        return value, parts
    if MODERN and torch._C._are_functorch_transforms_active():
        value, parts, _ = _Transformed.apply(z, *rest)
        return value, parts
    out: List[torch.Tensor] = []
    value = _Eager.apply(z, rest, out)
    return value, out[0]


def is_capturing(z: torch.Tensor) -> bool:
    """Whether a CUDA graph is being captured; what torch.compile captures it asks about when it runs."""
    if z.device.type != "cuda" or (MODERN and torch.compiler.is_compiling()):
        return False
    return bool(torch.cuda.is_current_stream_capturing())


# ---- what may be given ---------------------------------------------------------------------------


def rows_of(z: Any, dims: int, precision: Optional[str]) -> torch.Tensor:
    """z as evaluate() takes it, or a sentence about what is wrong with it."""
    shape = "[B, d]" if dims == 2 else "[V, B, d]"
    if not isinstance(z, torch.Tensor):
        raise TypeError(f"a zonal loss takes a tensor {shape}, got {type(z).__name__}")
    if z.dim() != dims:
        raise ValueError(f"a zonal loss takes a tensor {shape}, got one of shape {list(z.shape)}")
    if z.layout != torch.strided:
        raise TypeError(f"a zonal loss takes a dense tensor, got one of layout {z.layout}: use z.to_dense()")
    if not z.is_floating_point():
        raise TypeError(f"a zonal loss takes rows of floating point numbers, got {z.dtype}: use z.float()")
    if z.device.type not in _DEVICES:
        raise ValueError(f"a zonal loss takes rows on the CPU or on CUDA, got {z.device}: use z.cpu()")
    return _of_known_dtype(z, precision)


def _of_known_dtype(z: torch.Tensor, precision: Optional[str]) -> torch.Tensor:
    cuda = z.device.type == "cuda"
    if cuda and z.dtype == torch.float64:
        raise TypeError("a zonal loss takes float64 on the CPU alone: use z.float() or z.cpu()")
    # The gradient is made before a GradScaler multiplies, and in float16 it would underflow.
    if z.dtype == torch.float16 or (z.dtype == torch.bfloat16 and not cuda):
        z = z.float()
    if z.dtype not in _WORDS:
        raise TypeError(f"a zonal loss has no use for {z.dtype}: use z.float()")
    if not cuda and precision not in (None, _WORDS[z.dtype]):
        raise ValueError(f"precision={precision!r} is for CUDA; on the CPU it is that of the tensor, "
                         f"{z.dtype}")
    return z


@functools.lru_cache(maxsize=None)
def check_method(method: str) -> None:
    """An unknown method is refused by libzonal, which knows what was meant."""
    if method not in _library.names("zonal_method_name"):
        _library.Plan(method, "", 4, 4)
