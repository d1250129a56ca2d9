"""Operators on lists of tensors: the elementwise operator of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.relax.frontend.torch.aten import pointwise  # noqa: F401  the operators that are looked up
from pullback.relax.frontend.torch.table import ATEN


def _of_each(name: str) -> Callable[..., tuple[Any, ...]]:
    """``_foreach_name``: arguments that are lists are taken one by one, others are the same for all tensors."""

    def run(tensors: Sequence[Any], *args: Any, **options: Any) -> tuple[Any, ...]:
        one = ATEN.function(f"aten.{name}")
        rows = [a if isinstance(a, (tuple, list)) else [a] * len(tensors) for a in args]
        return tuple(one(x, *rest, **options) for x, *rest in zip(tensors, *rows, strict=True))

    return run


ATEN.same(
    {
        f"aten._foreach_{name}": _of_each(name)
        for name in (
            "abs", "acos", "add", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div", "erf", "erfc",
            "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum", "minimum",
            "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
            "tanh", "trunc",
        )
    }
)  # fmt: skip


def _with_value(name: str) -> Callable[..., tuple[Any, ...]]:
    """``_foreach_addcmul`` and its kin, whose values come last, as one number or as a list."""

    def run(tensors: Sequence[Any], a: Sequence[Any], b: Sequence[Any], values: Any = 1) -> tuple[Any, ...]:
        one = ATEN.function(f"aten.{name}")
        listed = values if isinstance(values, (tuple, list)) else [values] * len(tensors)
        return tuple(one(x, y, z, value=v) for x, y, z, v in zip(tensors, a, b, listed, strict=True))

    return run


ATEN.same({f"aten._foreach_{name}": _with_value(name) for name in ("addcmul", "addcdiv")})
ATEN.same({"aten._foreach_norm": lambda tensors, ord=2, dtype=None: tuple(_norm(x, ord, dtype) for x in tensors)})


def _norm(x: Any, ord: Any, dtype: str | None) -> Any:
    return ATEN.function("aten.linalg_vector_norm")(x, ord, dtype=dtype)
