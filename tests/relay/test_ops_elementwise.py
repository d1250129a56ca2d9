"""relay's elementwise operators and reductions against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

from pullback.relay import op
from tests.relay.op_cases import Case, check_unknown_sizes, check_value, every, first, integers, normal, uniform


def _unary(name: str, expect: Any, low: float = -2.0, high: float = 2.0) -> list[Case]:
    return [Case(name, [uniform(low, high, *shape)], expect) for shape in ((3, 4), ())]


ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "floor_divide": np.floor_divide,
    "trunc_divide": lambda a, b: np.trunc(a / b),
    "mod": np.fmod,
    "trunc_mod": np.fmod,
    "floor_mod": np.mod,
}
WHOLE = {  # of integers, the quotient truncated or floored
    "divide": lambda a, b: np.trunc(a / b).astype(a.dtype),
    "trunc_divide": lambda a, b: np.trunc(a / b).astype(a.dtype),
    "floor_divide": np.floor_divide,
    "mod": np.fmod,
    "trunc_mod": np.fmod,
    "floor_mod": np.mod,
    "add": np.add,
    "maximum": np.maximum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
ODD = np.array([[np.nan, np.inf, -np.inf], [0.0, -1.5, 3.0]], "float32")
NONZERO = np.array([[3, -3, 2], [-2, 4, -4]], "int32")

CASES = [
    *_unary("exp", np.exp),
    *_unary("fast_exp", np.exp),
    *_unary("log", np.log, 0.1, 3),
    *_unary("log2", np.log2, 0.1, 3),
    *_unary("log10", np.log10, 0.1, 3),
    *_unary("sqrt", np.sqrt, 0.1, 3),
    *_unary("rsqrt", lambda x: 1 / np.sqrt(x), 0.1, 3),
    *_unary("sigmoid", scipy.special.expit),
    *_unary("tanh", np.tanh),
    *_unary("fast_tanh", np.tanh),
    *_unary("erf", scipy.special.erf),
    *_unary("fast_erf", scipy.special.erf),
    *_unary("negative", np.negative),
    *_unary("abs", np.abs),
    *_unary("sign", np.sign),
    *_unary("ceil", np.ceil),
    *_unary("floor", np.floor),
    *_unary("trunc", np.trunc),
    *_unary("round", np.round),
    *_unary("copy", np.copy),
    *_unary("cos", np.cos),
    *_unary("sin", np.sin),
    *_unary("tan", np.tan, -1, 1),
    *_unary("cosh", np.cosh),
    *_unary("sinh", np.sinh),
    *_unary("acos", np.arccos, -0.9, 0.9),
    *_unary("asin", np.arcsin, -0.9, 0.9),
    *_unary("atan", np.arctan),
    *_unary("acosh", np.arccosh, 1.1, 3),
    *_unary("asinh", np.arcsinh),
    *_unary("atanh", np.arctanh, -0.9, 0.9),
    Case("floor", [integers(-5, 5, 3)], lambda x: x),
    Case("isnan", [ODD], np.isnan),
    Case("isinf", [ODD], np.isinf),
    Case("isfinite", [ODD], np.isfinite),
    Case("isfinite", [integers(0, 9, 3)], lambda x: np.ones(3, bool)),
    Case("isnan", [integers(0, 9, 3)], lambda x: np.zeros(3, bool)),
    Case("logical_not", [integers(0, 2, 3, 4, dtype="bool")], np.logical_not),
    Case("bitwise_not", [integers(-9, 9, 3, 4)], np.bitwise_not),
    Case("clip", [normal(3, 4)], lambda x: np.clip(x, -0.5, 0.25), attrs={"a_min": -0.5, "a_max": 0.25}),
    Case("clip", [integers(-9, 9, 7)], lambda x: np.clip(x, -2, 3), attrs={"a_min": -2, "a_max": 3}),
    Case("clip", [integers(0, 250, 7, dtype="uint8")], lambda x: np.clip(x, 5, 127), attrs={"a_min": 5, "a_max": 127}),
    Case(
        "fixed_point_multiply",
        [integers(-1000, 1000, 20)],
        lambda x: np.floor(x * (1073741824 / 2**31) * 2.0**1 + 0.5).astype("int32"),
        attrs={"multiplier": 1073741824, "shift": 1},
    ),
    Case(
        "fixed_point_multiply",
        [integers(-1000, 1000, 20)],
        lambda x: np.floor(x.astype("float64") * 1395864371 * 2.0**-33 + 0.5).astype("int32"),
        attrs={"multiplier": 1395864371, "shift": -2},
    ),
    *(Case(n, [normal(3, 4), uniform(0.5, 2, 4)], f) for n, f in ARITHMETIC.items()),
    *(Case(n, [normal(2, 1, 3), uniform(-3, -1, 4, 1)], f) for n, f in ARITHMETIC.items()),
    *(Case(n, [integers(-9, 9, 2, 3), NONZERO], f) for n, f in WHOLE.items()),
    Case("power", [uniform(0.5, 2, 3, 4), normal(4)], np.power),
    Case("power", [integers(-4, 4, 3), np.array([3, 2, 1], "int32")], np.power),
    Case("left_shift", [integers(0, 9, 3), integers(0, 4, 3)], np.left_shift),
    Case("right_shift", [integers(-90, 90, 3), integers(0, 4, 3)], np.right_shift),
    *(Case(n, [integers(0, 3, 3, 4), integers(0, 3, 4)], f) for n, f in COMPARISONS.items()),
    *(Case(n, [integers(0, 2, 3, 4, dtype="bool"), integers(0, 2, 4, dtype="bool")], f) for n, f in LOGIC.items()),
]


def _reductions(name: str, expect: Any, data: np.ndarray) -> list[Case]:
    return [
        Case(name, [data], lambda x: expect(x)),
        Case(name, [data], lambda x: expect(x, axis=1), attrs={"axis": 1}),
        Case(name, [data], lambda x: expect(x, axis=(0, 2), keepdims=True), attrs={"axis": [0, -1], "keepdims": True}),
        Case(name, [data], lambda x: expect(x, axis=(0, 2)), attrs={"axis": (1,), "exclude": True}),
    ]


def _place(extremum: Any) -> Any:
    """The place of the extremum, as relay has it: of several axes that in what they make together."""

    def find(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> np.ndarray:
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
        kept = [i for i in range(x.ndim) if i not in axes]
        flat = x.transpose(*kept, *axes).reshape(*(x.shape[i] for i in kept), -1)
        found = extremum(flat, axis=-1).astype("int32")
        return np.expand_dims(found, axes) if keepdims else found

    return find


_TRUTH = integers(0, 2, 2, 3, 4, dtype="bool")
_TIES = np.array([[1, 3, 3], [2, 2, 0]], "float32")
CASES += [
    *_reductions("sum", np.sum, normal(2, 3, 4)),
    *_reductions("max", np.max, normal(2, 3, 4)),
    *_reductions("min", np.min, normal(2, 3, 4)),
    *_reductions("prod", np.prod, normal(2, 3, 4)),
    *_reductions("mean", np.mean, normal(2, 3, 4)),
    *_reductions("all", np.all, _TRUTH),
    *_reductions("any", np.any, _TRUTH),
    *_reductions("argmax", _place(np.argmax), normal(2, 3, 4)),
    *_reductions("argmin", _place(np.argmin), normal(2, 3, 4)),
    *_reductions("variance", np.var, normal(2, 3, 4)),
    Case("sum", [integers(-9, 9, 2, 3)], lambda x: x.sum(1, dtype="int32"), attrs={"axis": 1}),
    Case(
        "mean",
        [integers(-9, 9, 2, 3)],
        lambda x: np.trunc(x.sum(1) / 3).astype("int32"),
        attrs={"axis": 1},
    ),
    Case("argmax", [_TIES], lambda x: np.array([1, 0], "int32"), attrs={"axis": 1}),
    Case(
        "argmax",
        [_TIES],
        lambda x: np.array([2, 1], "int32"),
        attrs={"axis": 1, "select_last_index": True},
    ),
    Case("variance", [normal(2, 5)], lambda x: x.var(1, ddof=1), attrs={"axis": 1, "unbiased": True}),
    Case("variance", [normal(2, 5)], lambda x: x.var(1), lambda x: op.mean_variance(x, 1)[1]),
    Case("mean", [normal(2, 5)], lambda x: x.mean(1), lambda x: op.mean_variance(x, 1)[0]),
    Case("variance", [normal(2, 5)], lambda x: x.std(1), lambda x: op.std(x, 1)),
    Case("variance", [normal(2, 5)], lambda x: x.std(0, keepdims=True), lambda x: op.mean_std(x, 0, True)[1]),
    Case("log", [normal(2, 5)], lambda x: scipy.special.logsumexp(x, axis=1), lambda x: op.logsumexp(x, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case) -> None:
    check_value(case)


@pytest.mark.parametrize("loose", [every, first])
@pytest.mark.parametrize("case", [c for c in CASES if c.dynamic], ids=str)
def test_unknown_sizes(case: Case, loose: Any) -> None:
    check_unknown_sizes(case, loose)
