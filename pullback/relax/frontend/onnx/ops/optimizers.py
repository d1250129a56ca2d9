"""ai.onnx.preview.training: optimizers as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.table import ONNX

ONNX.refuse({"ai.onnx.preview.training.Gradient": "a trainer computes gradients, of the model without this node"})


def _scaled(x: Any, factor: float) -> Any:
    return op.multiply(x, numbers_like(factor, x))


def _each(values: Any, groups: int, update: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
    """The results of ``update`` for each tensor: all first ones, then all second ones. ``groups``: how many values
    belong to a tensor."""
    count = len(values) // groups
    found = [update(*(values[g * count + k] for g in range(groups))) for k in range(count)]
    return tuple(result[part] for part in range(len(found[0])) for result in found)


def _like(scalar: Any, x: Any) -> Any:
    """A learning rate or a count in x's dtype."""
    return op.astype(op.reshape(scalar, ()), x.struct_info.dtype)


@ONNX.register("ai.onnx.preview.training.Adagrad")
def adagrad(rate: Any, count: Any, *values: Any, decay_factor: float, epsilon: float, norm_coefficient: float) -> Any:
    def update(x: Any, gradient: Any, squares: Any) -> tuple[Any, ...]:
        steps = _scaled(_like(count, x), decay_factor)
        step = op.divide(_like(rate, x), op.add(steps, numbers_like(1, x)))
        g = op.add(gradient, _scaled(x, norm_coefficient))
        total = op.add(squares, op.square(g))
        return op.subtract(x, op.divide(op.multiply(step, g), op.add(op.sqrt(total), numbers_like(epsilon, x)))), total

    return _each(values, 3, update)


@ONNX.register("ai.onnx.preview.training.Adam")
def adam(
    rate: Any, count: Any, *values: Any, alpha: float, beta: float, epsilon: float, norm_coefficient: float,
    norm_coefficient_post: float,
) -> Any:  # fmt: skip
    def update(x: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        g = op.add(gradient, _scaled(x, norm_coefficient))
        first = op.add(_scaled(mean, alpha), _scaled(g, 1 - alpha))
        second = op.add(_scaled(square, beta), _scaled(op.square(g), 1 - beta))
        one = numbers_like(1, x)
        powers = [op.power(numbers_like(b, x), _like(count, x)) for b in (beta, alpha)]
        corrected = op.divide(op.sqrt(op.subtract(one, powers[0])), op.subtract(one, powers[1]))
        step = op.multiply(_like(rate, x), op.where(op.greater(_like(count, x), numbers_like(0, x)), corrected, one))
        moved = op.subtract(x, op.divide(op.multiply(step, first), op.add(op.sqrt(second), numbers_like(epsilon, x))))
        return _scaled(moved, 1 - norm_coefficient_post), first, second

    return _each(values, 4, update)


@ONNX.register("ai.onnx.preview.training.Momentum")
def momentum(
    rate: Any, count: Any, *values: Any, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Any:  # fmt: skip
    if mode not in ("standard", "nesterov"):
        raise UserError(f"mode must be standard or nesterov, got {mode!r}")

    def update(x: Any, gradient: Any, velocity: Any) -> tuple[Any, ...]:
        g = op.add(gradient, _scaled(x, norm_coefficient))
        is_first = op.equal(op.reshape(count, ()), const(0, count.struct_info.dtype))
        factor = op.where(is_first, numbers_like(1, x), numbers_like(beta, x))
        moved = op.add(_scaled(velocity, alpha), op.multiply(factor, g))
        step = moved if mode == "standard" else op.add(g, _scaled(moved, alpha))
        return op.subtract(x, op.multiply(_like(rate, x), step)), moved

    return _each(values, 3, update)
