"""Random numbers. They are drawn by the trainer's generator: the attribute ``seed`` means nothing here."""

from __future__ import annotations

from typing import Any

from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.ops.shapes import shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import CODES, dtype_of


def _dtype(code: int | None, like: Any = None) -> str:
    if code is None:
        return "float32" if like is None else like.struct_info.dtype
    return dtype_of(code, "the type of random numbers")


@ONNX.register("RandomNormal")
def random_normal(*, shape: Any, mean: float, scale: float, dtype: int = CODES["float32"], **_: Any) -> Any:
    return op.random.normal(shape=tuple(shape), mean=mean, std=scale, dtype=_dtype(dtype))


@ONNX.register("RandomUniform")
def random_uniform(*, shape: Any, low: float, high: float, dtype: int = CODES["float32"], **_: Any) -> Any:
    return op.random.uniform(shape=tuple(shape), low=low, high=high, dtype=_dtype(dtype))


@ONNX.register("RandomNormalLike")
def random_normal_like(x: Any, *, mean: float, scale: float, dtype: int | None = None, **_: Any) -> Any:
    return op.random.normal(shape=shape_of(x), mean=mean, std=scale, dtype=_dtype(dtype, x))


@ONNX.register("RandomUniformLike")
def random_uniform_like(x: Any, *, low: float, high: float, dtype: int | None = None, **_: Any) -> Any:
    return op.random.uniform(shape=shape_of(x), low=low, high=high, dtype=_dtype(dtype, x))


@ONNX.register("Bernoulli")
def bernoulli(x: Any, *, dtype: int | None = None, **_: Any) -> Any:
    drawn = op.random.uniform(shape=shape_of(x), dtype="float32")
    return op.astype(op.less(drawn, op.astype(x, "float32")), _dtype(dtype, x))


@ONNX.register("Multinomial")
def multinomial(x: Any, *, sample_size: int, dtype: int = CODES["int32"], **_: Any) -> Any:
    """Classes drawn with the probabilities whose logarithms, up to a constant, are the rows of x."""
    rows, classes = shape_of(x)
    noise = op.random.uniform(shape=(rows, sample_size, classes), dtype=x.struct_info.dtype)
    gumbel = op.negative(op.log(op.maximum(op.negative(op.log(noise)), const(1e-20, x.struct_info.dtype))))
    return op.astype(op.argmax(op.add(op.expand_dims(x, 1), gumbel), -1), _dtype(dtype))
