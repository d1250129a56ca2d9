"""Tensors out of nothing, conversions of dtypes, and random numbers.

Random numbers are of the same distribution as PyTorch's, from this package's generator: the bits differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Constant
from pullback.relax.frontend.torch.aten.promotion import (
    as_dtype,
    default_float,
    dtype_of,
    promoted,
    tensor,
)
from pullback.relax.frontend.torch.aten.shape import expand
from pullback.relax.frontend.torch.dtypes import NUMBERED
from pullback.relax.frontend.torch.table import ATEN
from pullback.tir.expr import PrimExpr, is_float


def _dtype(dtype: str | int | None, otherwise: str) -> str:
    return otherwise if dtype is None else dtype if isinstance(dtype, str) else NUMBERED[dtype]


# -- filled with one value


def filled(shape: Sequence[Any], value: Any, dtype: str) -> Any:
    """A tensor of a number, a symbolic size or a tensor of shape ()."""
    if not isinstance(value, (int, float)):
        return expand(tensor(value, dtype), tuple(shape))
    if not is_float(dtype):
        value = bool(value) if dtype == "bool" else int(value)
    return op.full(tuple(shape), float(value) if is_float(dtype) else value, dtype)


@ATEN.register("aten.full")
def full(size: Sequence[Any], fill_value: Any, *, names: Any = None, dtype: str | None = None) -> Any:
    return filled(size, fill_value, dtype or dtype_of(fill_value))


@ATEN.register("aten.full_like", "aten.fill")
def full_like(x: Any, fill_value: Any, *, dtype: str | None = None) -> Any:
    return filled(x.shape, fill_value, dtype or x.dtype)


@ATEN.register("aten.new_full")
def new_full(x: Any, size: Sequence[Any], fill_value: Any, *, dtype: str | None = None) -> Any:
    return filled(size, fill_value, dtype or x.dtype)


for _name, _function in {"zeros": op.zeros, "ones": op.ones, "empty": op.zeros}.items():  # empty: no value is promised
    ATEN.same(
        {
            f"aten.{_name}": lambda size, *, names=None, dtype=None, f=_function: f(
                tuple(size), dtype or default_float()
            ),
            f"aten.new_{_name}": lambda x, size, *, dtype=None, f=_function: f(tuple(size), dtype or x.dtype),
        }
    )
for _name, _function in {"zeros": op.zeros_like, "ones": op.ones_like, "empty": op.zeros_like}.items():
    ATEN.same({f"aten.{_name}_like": lambda x, *, dtype=None, f=_function: f(x, dtype or x.dtype)})


@ATEN.register("aten.empty_strided", "aten.empty_permuted")
def empty_strided(size: Sequence[Any], order: Any, *, dtype: str | None = None) -> Any:
    return op.zeros(tuple(size), dtype or default_float())


ATEN.same(
    {
        "aten.new_empty_strided": lambda x, size, stride, *, dtype=None: op.zeros(tuple(size), dtype or x.dtype),
        "aten.zero": op.zeros_like,
        "aten.scalar_tensor": lambda s, *, dtype=None: tensor(s, dtype or default_float()),
    }
)

# -- rows of numbers


@ATEN.register("aten.arange.start", "aten.arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: str | None = None) -> Any:
    floats = any(isinstance(v, float) or (isinstance(v, PrimExpr) and is_float(v.dtype)) for v in (start, end, step))
    wanted = dtype or (default_float() if floats else "int64")
    if floats and not is_float(wanted):
        return as_dtype(op.arange(start, end, step, default_float()), wanted)
    return op.arange(start, end, step, wanted)


ATEN.same({"aten.arange": lambda end, *, dtype=None: arange(0, end, dtype=dtype)})


@ATEN.register("aten.linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: str | None = None) -> Any:
    """The first half counted from the start, the second from the end, as PyTorch does."""
    wanted = dtype or default_float()
    kind = wanted if is_float(wanted) else "float64"
    start, end = tensor(start, kind), tensor(end, kind)
    if steps < 2:
        return as_dtype(expand(start, (steps,)), wanted)
    step, place = (end - start) / tensor(steps - 1, kind), op.arange(0, steps, 1, kind)
    first = op.less(place, tensor(steps // 2, kind))
    return as_dtype(op.where(first, start + step * place, end - step * (steps - 1.0 - place)), wanted)


@ATEN.register("aten.logspace")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: str | None = None) -> Any:
    wanted = dtype or default_float()
    kind = wanted if is_float(wanted) else "float64"
    return as_dtype(op.power(tensor(float(base), kind), linspace(start, end, steps, dtype=kind)), wanted)


@ATEN.register("aten.eye")
def eye(n: Any, m: Any = None, *, dtype: str | None = None) -> Any:
    return op.eye(n, n if m is None else m, dtype=dtype or default_float())


def _triangle(row: int, column: int, offset: int, dtype: str | None, below: bool) -> Any:
    places = np.tril_indices(row, offset, column) if below else np.triu_indices(row, offset, column)
    return Constant(np.stack(places).astype(_dtype(dtype, "int64")))


@ATEN.register("aten.tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: str | None = None) -> Any:
    return _triangle(row, col, offset, dtype, True)


@ATEN.register("aten.triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: str | None = None) -> Any:
    return _triangle(row, col, offset, dtype, False)


# -- dtypes


@ATEN.register("aten._to_copy", "aten.to.dtype_layout")
def to_copy(x: Any, *, dtype: str | None = None, copy: bool = False) -> Any:
    return as_dtype(x, dtype)


@ATEN.register("aten.to.dtype", "aten.to.device", "aten.to.prim_dtype")
def to_dtype(x: Any, dtype: str | None = None, copy: bool = False) -> Any:
    return as_dtype(x, dtype)


ATEN.same(
    {
        "aten.to.other": lambda x, other, copy=False: as_dtype(x, other.dtype),
        "aten.type_as": lambda x, other: as_dtype(x, other.dtype),
        "aten.copy": lambda x, src: expand(as_dtype(src, x.dtype), x.shape),
        "aten._cast_Float": lambda x: as_dtype(x, "float32"),
    }
)

# -- random numbers


@ATEN.register("aten.rand")
def rand(size: Sequence[Any], *, names: Any = None, dtype: str | None = None) -> Any:
    return op.random.uniform(shape=tuple(size), dtype=dtype or default_float())


@ATEN.register("aten.randn")
def randn(size: Sequence[Any], *, names: Any = None, dtype: str | None = None) -> Any:
    return op.random.normal(shape=tuple(size), dtype=dtype or default_float())


ATEN.same(
    {
        "aten.rand_like": lambda x, *, dtype=None: rand(x.shape, dtype=dtype or x.dtype),
        "aten.randn_like": lambda x, *, dtype=None: randn(x.shape, dtype=dtype or x.dtype),
    }
)


def _whole(size: Sequence[Any], low: int, high: int, dtype: str) -> Any:
    drawn = op.random.randint(shape=tuple(size), low=low, high=high, dtype="int64")
    return as_dtype(drawn, dtype)


@ATEN.register("aten.randint.low")
def randint_low(low: int, high: int, size: Sequence[Any], *, dtype: str | None = None) -> Any:
    return _whole(size, low, high, _dtype(dtype, "int64"))


@ATEN.register("aten.randint")
def randint(high: int, size: Sequence[Any], *, dtype: str | None = None) -> Any:
    return _whole(size, 0, high, _dtype(dtype, "int64"))


@ATEN.register("aten.randint_like")
def randint_like(x: Any, high: int, *, dtype: str | None = None) -> Any:
    return _whole(x.shape, 0, high, dtype or x.dtype)


@ATEN.register("aten.randint_like.low_dtype")
def randint_like_low(x: Any, low: int, high: int, *, dtype: str | None = None) -> Any:
    return _whole(x.shape, low, high, dtype or x.dtype)


@ATEN.register("aten.randperm")
def randperm(n: Any, *, dtype: str | None = None) -> Any:
    return as_dtype(op.random.permutation(n=n), _dtype(dtype, "int64"))


@ATEN.register("aten.bernoulli")
def bernoulli(x: Any, p: Any = None) -> Any:
    """1 with a probability: that of each element of x, or ``p``, a number or a tensor."""
    chance = x if p is None else p
    if isinstance(chance, (int, float)):
        return as_dtype(op.random.bernoulli(shape=x.shape, p=float(chance)), x.dtype)
    drawn = op.random.uniform(shape=x.shape, dtype="float64" if chance.dtype == "float64" else "float32")
    return as_dtype(op.less(drawn, as_dtype(chance, drawn.dtype)), x.dtype)


@ATEN.register("aten.uniform")
def uniform(x: Any, low: float = 0.0, high: float = 1.0) -> Any:
    return op.random.uniform(shape=x.shape, low=float(low), high=float(high), dtype=x.dtype)


@ATEN.register("aten.normal_functional")
def normal_functional(x: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    return op.random.normal(shape=x.shape, mean=float(mean), std=float(std), dtype=x.dtype)


@ATEN.register("aten.normal")
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, dtype: str | None = None) -> Any:
    """Numbers of the normal distribution, with a mean and deviation that are numbers or tensors."""
    if size is not None:
        return op.random.normal(shape=tuple(size), mean=float(mean), std=float(std), dtype=dtype or default_float())
    mean, std = promoted(mean, std)
    spread = mean + op.zeros_like(std)  # the shape that both broadcast to
    return mean + std * op.random.normal(shape=spread.shape, dtype=spread.dtype)


@ATEN.register("aten.exponential")
def exponential(x: Any, lambd: float = 1.0) -> Any:
    """-log(1 - u) / lambd, with u in [0, 1)."""
    u = op.random.uniform(shape=x.shape, dtype=x.dtype)
    return op.negative(op.log1p(op.negative(u))) / float(lambd)


@ATEN.register("aten.geometric")
def geometric(x: Any, p: float) -> Any:
    """How many trials of probability p there are to the first success: ⌈log(1 - u) / log(1 - p)⌉."""
    u = op.random.uniform(shape=x.shape, dtype="float64")
    return as_dtype(op.maximum(op.ceil(op.log1p(op.negative(u)) / math.log1p(-float(p))), 1.0), x.dtype)


@ATEN.register("aten.cauchy")
def cauchy(x: Any, median: float = 0.0, sigma: float = 1.0) -> Any:
    u = op.random.uniform(shape=x.shape, dtype=x.dtype)
    return op.tan((u - 0.5) * math.pi) * float(sigma) + float(median)


@ATEN.register("aten.log_normal")
def log_normal(x: Any, mean: float = 1.0, std: float = 2.0) -> Any:
    return op.exp(normal_functional(x, mean, std))


@ATEN.register("aten.multinomial")
def multinomial(x: Any, num_samples: int, replacement: bool = False) -> Any:
    """Places drawn with probabilities in proportion to x; without replacement, the largest log x + Gumbel noise."""
    rows = x if len(x.shape) == 2 else op.expand_dims(x, 0)
    count = num_samples if replacement else 1
    shape = (rows.shape[0], count, rows.shape[1])
    u = op.random.uniform(shape=shape, dtype=x.dtype)
    tiny = {"float16": 2.0**-24, "float32": 2.0**-149, "float64": 2.0**-1074, "bfloat16": 2.0**-133}[x.dtype]
    noise = op.negative(op.log(op.maximum(op.negative(op.log1p(op.negative(u))), tensor(tiny, x.dtype))))
    keys = op.expand_dims(op.log(rows), 1) + noise
    if replacement:
        places = op.argmax(keys, 2)
    else:
        if not isinstance(rows.shape[1], int) or num_samples > rows.shape[1]:
            raise UserError(f"multinomial draws {num_samples} of {rows.shape[1]} places without replacement")
        places = op.topk(op.squeeze(keys, [1]), num_samples, 1, "indices", dtype="int64")
    return places if len(x.shape) == 2 else op.squeeze(places, [0])
