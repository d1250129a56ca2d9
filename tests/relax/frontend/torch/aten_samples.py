"""Calls of ATen's operators: at least one for each, corners among them."""

from __future__ import annotations

import math

import numpy as np
import torch

from tests.relax.frontend.torch.aten_programs import B, I, P, R, Sample, U, aten, case

SAMPLES: dict[str, list[Sample]] = {}


def add(name: str, *samples: Sample) -> None:
    assert name not in SAMPLES, name
    SAMPLES[name] = list(samples)


# -- functions of one tensor

for _names, _draw in {
    ("abs", "atan", "asinh", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "neg", "round",
     "sigmoid", "sign", "sgn", "sin", "sinc", "sinh", "tan", "tanh", "trunc", "frac", "square", "relu", "relu6", "silu",
     "mish", "hardsigmoid", "hardswish", "selu", "deg2rad", "rad2deg", "nan_to_num"): R,
    ("log", "log10", "log2", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"): P,
    ("acos", "asin", "atanh", "erfinv", "log1p"): U,
}.items():  # fmt: skip
    for _name in _names:
        _f = getattr(aten, _name)
        _options = {"rtol": 1e-7} if _name == "hardsigmoid" else {}  # PyTorch's adjoint has the factor float32(1/6)
        add(
            _name, case(_f, _draw(2, 3), **_options), case(_f, _draw(), **_options),
            case(_f, _draw(3, 2), batch=True, **_options),
        )  # fmt: skip
add("acosh", case(aten.acosh, R(2, 3, low=1.1, high=4.0)))
add("logit", case(aten.logit, R(2, 3, low=0.1, high=0.9)), case(lambda x: aten.logit(x, 0.2), R(7, low=0.05, high=0.9)))
add("polygamma", case(lambda x: aten.polygamma(1, x), P(2, 3)), case(lambda x: aten.polygamma(0, x), P(3)))
SAMPLES["round"] += [
    case(lambda x: aten.round(x, decimals=1), R(5)), case(lambda x: aten.round(x, decimals=-1), R(5, low=-40, high=40)),
    case(aten.round, np.array([0.5, 1.5, 2.5, -0.5])), case(aten.round, I(4)),
]  # fmt: skip
for _name in ("exp", "sqrt", "sin", "sigmoid", "log", "reciprocal", "rsqrt", "erf"):
    SAMPLES[_name].append(case(getattr(aten, _name), I(2, 3, low=1)))
for _name in ("ceil", "floor", "trunc", "abs", "neg", "sign", "square"):
    SAMPLES[_name].append(case(getattr(aten, _name), I(2, 3)))
SAMPLES["exp"].append(case(aten.exp, B(3)))
_ODD = np.array([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.0])
for _name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit"):
    add(_name, case(getattr(aten, _name), _ODD), case(getattr(aten, _name), I(3)))
SAMPLES["nan_to_num"] += [case(aten.nan_to_num, _ODD), case(lambda x: aten.nan_to_num(x, 1.0, 2.0, -2.0), _ODD)]
add("logical_not", case(aten.logical_not, B(3)), case(aten.logical_not, I(4)), case(aten.logical_not, _ODD))
add("bitwise_not", case(aten.bitwise_not, B(3)), case(aten.bitwise_not, I(4, dtype="int32")))

# -- arithmetic of two, and dtypes

_MIXED = [
    (R(2, 3), R(3)), (R(2, 1), R(3)), (R(2, 3), R()), (R(2, 3, dtype="float32"), R()), (R(dtype="float32"), R(2)),
    (I(2, 3), R(3)), (I(2, 3, dtype="int32"), I(3)), (I(3, dtype="uint8", low=1, high=4), I(3, dtype="int8", low=1)),
    (R(3, dtype="float16"), R(3, dtype="float32")), (I(3, low=1), R(dtype="float32")),
]  # fmt: skip
for _name in ("add", "sub", "mul"):
    _f = getattr(aten, _name)
    add(
        _name,
        *(case(_f, x, y, rtol=1e-6 if x.dtype == "float32" else 1e-9) for x, y in _MIXED),
        case(_f, R(2, 3), R(2, 3), batch=True),
    )
    SAMPLES[_name] += [
        case(lambda x, f=_f, n=n: f(x, n), x) for x in (R(2), I(3), R(2, dtype="float32")) for n in (2, 1.5)
    ]
SAMPLES["add"] += [
    case(lambda x, y: aten.add(x, y, alpha=2), R(3), R(3)),
    case(aten.add, B(4), B(4)),
    case(lambda x: aten.add(x, True), I(3)),
    case(lambda x: x + 1, B(3)),
    case(lambda x, y: aten.add(x, y, alpha=3), I(3), I(3)),
]
SAMPLES["sub"] += [case(lambda x, y: aten.sub(x, y, alpha=2), R(3), R(3))]
SAMPLES["mul"] += [case(aten.mul, B(4), B(4)), case(aten.mul, B(4), R(4)), case(lambda x: x * 2.5, B(4))]
add(
    "rsub",
    case(lambda x: aten.rsub(x, 2), R(3)),
    case(lambda x: aten.rsub(x, 1.5, 2), R(3)),
    case(lambda x: aten.rsub(x, 2), I(3)),
)
_NOT_0 = [(x, np.where(y == 0, y + 1, y).astype(y.dtype)) for x, y in _MIXED]
add(
    "div",
    *(case(aten.div, x, y, rtol=1e-6 if x.dtype == "float32" else 1e-9) for x, y in _NOT_0),
    case(aten.div, I(3), I(3, low=1)),
    *(
        case(lambda x, y, m=m: aten.div(x, y, rounding_mode=m), x, y)
        for m in ("floor", "trunc")
        for x, y in [
            (R(7, low=-9, high=9), P(7)),
            (I(9, low=-20, high=20), I(9, low=1)),
            (I(9, low=-20, high=20), -I(9, low=1)),
            (R(5), R()),
        ]
    ),
    case(lambda x: aten.div(x, 3), I(4)),
    case(lambda x: aten.div(x, 2, rounding_mode="floor"), R(4)),
    case(lambda x: x / 4, R(3)),
)
add(
    "floor_divide",
    case(lambda x, y: aten.floor_divide(x.detach(), y.detach()), R(7, low=-9, high=9), R(7)),
    case(aten.floor_divide, I(9, low=-20, high=20), I(9, low=1)),
)
for _name in ("remainder", "fmod"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, R(7, low=-9, high=9), P(7)),
        case(_f, R(7, low=-9, high=9), -P(7)),
        case(_f, I(9, low=-20, high=20), I(9, low=1)),
        case(lambda x, f=_f: f(x, 3), I(9, low=-20, high=20)),
        case(lambda x, f=_f: f(x, 1.5), R(4)),
        case(lambda x, f=_f: f(x, -1.5), I(4)),
    )
add(
    "pow",
    case(aten.pow, P(2, 3), R(3)),
    *(case(lambda x, n=n: x**n, P(3)) for n in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5, 1.0)),
    *(case(lambda x, n=n: x**n, I(4)) for n in (0, 1, 2, 5)),
    case(lambda x: x**0.5, I(4, low=0)),
    case(lambda x: 2**x, R(3)),
    case(lambda x: 2.5**x, I(3)),
    case(aten.pow, I(6), I(6, low=0)),
    case(aten.pow, np.array([1, -1, -1, 3, -2, 2]), np.array([-3, -3, -2, -1, -1, 70])),
    case(lambda x: x**2, R(3, dtype="float32")),
    case(lambda x: x**2, R(3, 2), batch=True),
    case(lambda x: x**3, R(5)),
    case(lambda x: 2**x, I(4, low=0)),
    case(lambda x: x**2, np.array([0.0, 1.0])),
)
add("float_power", case(lambda x: aten.float_power(x, 2), I(3)), case(aten.float_power, P(3), R(3)))
for _name in ("maximum", "minimum", "fmax", "fmin"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, R(2, 3), R(3)),
        case(_f, np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0])),
        case(_f, I(3), R(3)),
        case(_f, I(3), I(3)),
    )
SAMPLES["maximum"] += [
    case(aten.maximum, B(4), B(4)),
    case(aten.maximum, np.array([math.nan, 1.0]), np.array([1.0, math.nan])),
]
SAMPLES["fmax"] += [case(aten.fmax, np.array([math.nan, 1.0]), np.array([1.0, math.nan]))]
for _name in ("atan2", "hypot", "logaddexp", "copysign"):
    add(_name, case(getattr(aten, _name), R(2, 3), R(3)))
add("logaddexp2", case(aten.logaddexp2, R(2, 3), R(3)))
SAMPLES["atan2"] += [case(aten.atan2, I(3, low=1), I(3, low=1))]
SAMPLES["copysign"] += [case(aten.copysign, R(4), np.array([-0.0, 0.0, 2.0, -3.0]))]
for _name in ("xlogy", "special_xlogy"):
    add(
        _name,
        case(getattr(aten, _name), R(2, 3), P(3)),
        case(getattr(aten, _name), np.array([0.0, 0.0, 1.0]), np.array([0.5, 1.0, 2.0])),
    )
add("special_xlog1py", case(aten.special_xlog1py, R(2, 3), P(3)))
add("heaviside", case(lambda x, y: aten.heaviside(x, y).detach(), np.array([-1.0, 0.0, 2.0]), R(3)))
add("ldexp", case(aten.ldexp, R(3), I(3, low=0)))
add(
    "addcmul",
    case(aten.addcmul, R(2, 3), R(3), R(2, 1)),
    case(lambda x, a, b: aten.addcmul(x, a, b, value=0.5), R(3), R(3), R(3)),
    case(lambda x, a, b: aten.addcmul(x, a, b, value=2), I(3), I(3), I(3)),
)
add(
    "addcdiv",
    case(aten.addcdiv, R(2, 3), R(3), P(2, 1)),
    case(lambda x, a, b: aten.addcdiv(x, a, b, value=0.5), R(3), R(3), P(3)),
)
add("lerp", case(lambda x, y: aten.lerp(x, y, 0.3), R(3), R(3)), case(aten.lerp, R(2, 3), R(3), R(3)))

# -- comparisons, logic, choices

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, I(3, 4), I(4)),
        case(_f, np.array([1.0, math.nan, 2.0]), np.array([1.0, math.nan, 3.0])),
        case(_f, I(4), R(4)),
        case(lambda x, f=_f: f(x, 0.5), I(4)),
        case(lambda x, f=_f: f(x, 1), R(4)),
        case(_f, B(4), B(4)),
        case(lambda x, f=_f: f(x, 1), B(4)),
        case(_f, I(4, dtype="int32"), I(4)),
    )
for _name in ("logical_and", "logical_or", "logical_xor"):
    add(_name, case(getattr(aten, _name), B(6), B(6)), case(getattr(aten, _name), I(6, low=-1, high=2), R(6)))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, B(6), B(6)),
        case(_f, I(6), I(6)),
        case(lambda x, f=_f: f(x, 3), I(6, dtype="int32")),
        case(_f, I(6, dtype="int32"), I(6)),
        case(_f, B(4), I(4)),
    )
for _name in ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"):
    _f = getattr(aten, _name)
    add(_name, case(_f, I(6), I(6, low=0)), case(lambda x, f=_f: f(x, 2), I(6)))
for _name in ("__and__", "__or__", "__xor__"):
    add(_name, case(getattr(aten, _name), B(6), B(6)), case(getattr(aten, _name), I(6), I(6)))
add(
    "isclose",
    case(aten.isclose, R(3), R(3)),
    case(aten.isclose, np.array([1.0, 2.0, math.inf, math.nan]), np.array([1.0 + 1e-7, 2.1, math.inf, math.nan])),
    case(lambda x, y: aten.isclose(x, y, 1e-5, 1e-8, True), np.array([1.0, math.nan]), np.array([1.0, math.nan])),
    case(aten.isclose, I(4), I(4)),
)
add(
    "where",
    case(aten.where, B(2, 3), R(2, 3), R(3)),
    case(lambda c, x: torch.where(c, x, 0.0), B(3), R(3)),
    case(lambda c, x: torch.where(c, 1, x), B(3), R(3)),
    case(aten.where, B(3), I(3), R(3)),
    case(lambda c: torch.where(c, 1.0, 0.0), B(3)),
    case(lambda c: torch.where(c, 1, 0), B(3)),
    case(aten.where, B(3, 2), R(3, 2), R(3, 2), batch=True),
)
add(
    "masked_fill",
    case(lambda x, m: aten.masked_fill(x, m, -math.inf), R(2, 3, dtype="float32"), B(2, 3)),
    case(lambda x, m: aten.masked_fill(x, m, 0.5), R(2, 3), B(3)),
    case(aten.masked_fill, R(2, 3), B(2, 3), R()),
    case(lambda x, m: aten.masked_fill(x, m, 2), I(3), B(3)),
)
add(
    "clamp",
    case(lambda x: aten.clamp(x, -1, 1), R(5)),
    case(lambda x: aten.clamp(x, 0), np.array([-1.0, 0.0, 1.0])),
    case(lambda x: aten.clamp(x.detach(), 0), np.array([1.0, math.nan])),
    case(lambda x: aten.clamp(x, None, 0.5), np.array([0.0, 0.5, 1.0])),
    case(lambda x: aten.clamp(x, -1, 1), np.array([-1.0, 1.0, 2.0])),
    case(lambda x: aten.clamp(x, -1, 2), I(6)),
    case(lambda x: aten.clamp(x, 0.5), I(6)),
    case(lambda x, a, b: aten.clamp(x, a, b), R(2, 5), R(5) - 2.0, R(5) + 2.0),
    case(lambda x: aten.clamp(x, 2, -1), R(4)),
    case(lambda x, a: aten.clamp(x, a), R(2, 5), R(5)),
)
add("clamp_min", case(lambda x: aten.clamp_min(x, 0), R(5)), case(aten.clamp_min, R(5), R(5)))
add("clamp_max", case(lambda x: aten.clamp_max(x, 0), R(5)), case(aten.clamp_max, R(5), R(5)))

# -- activations

add("gelu", case(aten.gelu, R(2, 3)), case(lambda x: aten.gelu(x, approximate="tanh"), R(2, 3)))
add("leaky_relu", case(aten.leaky_relu, R(2, 3)), case(lambda x: aten.leaky_relu(x, 0.2), R(2, 3)))
add(
    "elu",
    case(aten.elu, R(2, 3)),
    case(lambda x: aten.elu(x, 0.5, 2.0), R(3)),
    case(lambda x: aten.elu(x, 0.5, 2.0, 0.7), R(3)),
)
add("celu", case(lambda x: aten.celu(x, 0.5), R(2, 3)))
add(
    "hardtanh",
    case(aten.hardtanh, R(2, 3)),
    case(lambda x: aten.hardtanh(x, -0.5, 1.5), R(6)),
    case(lambda x: aten.hardtanh(x, 0, 6), I(4)),
)
add("softplus", case(aten.softplus, R(6)), case(lambda x: aten.softplus(x, 2, 1), R(6)))
add("threshold", case(lambda x: aten.threshold(x, 0.5, -1), R(6)), case(lambda x: aten.threshold(x, 1, 7), I(6)))
add("log_sigmoid", case(torch.nn.functional.logsigmoid, R(6)))
add("log_sigmoid_forward", case(lambda x: aten.log_sigmoid_forward(x)[0], R(6)))
add("glu", case(aten.glu, R(2, 4)), case(lambda x: aten.glu(x, 0), R(2, 3)))
add("prelu", case(torch.nn.functional.prelu, R(2, 3, 2), P(3)), case(torch.nn.functional.prelu, R(4), P(1)))
add("_prelu_kernel", case(aten._prelu_kernel, R(2, 3, 2), P(1, 3, 1)))
add(
    "rrelu",
    case(torch.nn.functional.rrelu, R(6)),
    case(lambda x: torch.nn.functional.rrelu(x, training=True), P(6), drawn=True),
)
add(
    "_softmax",
    case(lambda x: aten._softmax(x, 1, False), R(2, 3)),
    case(lambda x: aten._softmax(x, -2, False), R(2, 3, 2)),
)
add(
    "_log_softmax",
    case(lambda x: aten._log_softmax(x, 1, False), R(2, 3)),
    case(lambda x: aten._log_softmax(x, -2, False), R(2, 3, 2)),
)
add(
    "softmax",
    case(lambda x: torch.softmax(x, -1), R(2, 3)),
    case(lambda x: torch.softmax(x, 0, dtype=torch.float64), R(4, dtype="float32")),
    case(lambda x: torch.softmax(x, 0), R()),
)
add("log_softmax", case(lambda x: torch.log_softmax(x, -1), R(2, 3)))
add(
    "_safe_softmax",
    case(lambda x: aten._safe_softmax(x, -1), np.array([[1.0, -math.inf], [-math.inf, -math.inf]])),
    case(lambda x: aten._safe_softmax(x, 0), R(2, 3)),
)

# -- reductions

for _name in ("sum", "mean", "nansum", "nanmean", "logsumexp", "amax", "amin"):
    _f = getattr(aten, _name)
    add(
        _name,
        *(
            case(lambda x, f=_f, d=d, k=k: f(x, d, k), R(2, 3, 2))
            for d in ([0], [-1], [0, 2], [1, -3])
            for k in (False, True)
        ),
    )
    if _name not in ("nanmean", "logsumexp", "nansum"):
        SAMPLES[_name] += [
            case(lambda x, f=_f: f(x), R(2, 3)),
            case(lambda x, f=_f: f(x, []), R(2, 3)),
            case(lambda x, f=_f: f(x), R()),
        ]
SAMPLES["sum"] += [
    case(aten.sum, I(2, 3, dtype="int32")),
    case(aten.sum, B(5)),
    case(lambda x: aten.sum(x, [1], dtype=torch.float64), I(2, 3)),
    case(lambda x: aten.sum(x, [1]), R(3, 2), batch=True),
    case(aten.sum, R(0)),
    case(lambda x: aten.sum(x, [0]), R(3, 2), batch=True),
]
SAMPLES["mean"] += [
    case(lambda x: aten.mean(x, [1], dtype=torch.float64), I(2, 3)),
    case(lambda x: aten.mean(x, [0]), R(3, 2), batch=True),
]
SAMPLES["nansum"] += [case(aten.nansum, np.array([1.0, math.nan])), case(aten.nansum, I(3))]
SAMPLES["amax"] += [
    case(aten.amax, np.array([1.0, 2.0, 2.0])),
    case(lambda x: aten.amax(x, [0]), I(2, 3)),
    case(lambda x: aten.amax(x.detach()), np.array([1.0, math.nan])),
]
add(
    "prod",
    case(aten.prod, R(2, 3)),
    *(case(lambda x, d=d, k=k: aten.prod(x, d, k), R(2, 3)) for d in (0, -1) for k in (False, True)),
    case(aten.prod, I(4, dtype="int32")),
    case(aten.prod, np.array([2.0, 0.0, 3.0])),
)
add(
    "any",
    case(aten.any, B(2, 3)),
    case(lambda x: aten.any(x, 1), B(2, 3)),
    case(lambda x: aten.any(x, [0, 1], True), I(2, 3)),
    case(aten.any, R(3)),
    case(aten.any, I(3, dtype="uint8", low=0)),
    case(lambda x: aten.any(x, -1, True), B(2, 3)),
)
add(
    "all",
    case(aten.all, B(2, 3)),
    case(lambda x: aten.all(x, 1), B(2, 3)),
    case(lambda x: aten.all(x, [0, 1], True), I(2, 3)),
    case(aten.all, R(3)),
)
for _name in ("argmax", "argmin"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, R(2, 3)),
        case(lambda x, f=_f: f(x, 1), R(2, 3)),
        case(lambda x, f=_f: f(x, -2, True), R(2, 3)),
        case(_f, np.array([1, 3, 3, 1])),
        case(_f, R()),
        case(lambda x, f=_f: f(x, None, True), R(2, 3)),
    )
for _name in ("max", "min"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, R(2, 3)),
        case(lambda x, f=_f: f(x, 1), R(2, 3)),
        case(lambda x, f=_f: f(x, -2, True), R(2, 3)),
        case(lambda x, f=_f: f(x, 0), np.array([2.0, 3.0, 3.0, 2.0])),
        case(_f, np.array([2.0, 3.0, 3.0])),
        case(lambda x, f=_f: f(x, 0), I(2, 3)),
        case(lambda x, f=_f: f(x, 0), B(2, 3)),
        case(lambda x, f=_f: f(x, 0), R()),
    )
add("aminmax", case(lambda x: aten.aminmax(x, dim=1), R(2, 3)), case(aten.aminmax, R(2, 3)))
add(
    "median",
    case(aten.median, R(5)),
    case(lambda x: aten.median(x, 1), R(2, 5)),
    case(lambda x: aten.median(x, 0, True), R(4, 2)),
)
add(
    "count_nonzero",
    case(aten.count_nonzero, I(2, 3, low=-1, high=2)),
    case(lambda x: aten.count_nonzero(x, [1]), B(2, 3)),
)
for _name in ("var", "std", "var_mean", "std_mean"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(_f, R(2, 3)),
        case(lambda x, f=_f: f(x, False), R(2, 3)),
        case(lambda x, f=_f: f(x, [1]), R(2, 3)),
        case(lambda x, f=_f: f(x, [0, -1], False, True), R(2, 3, 2)),
        case(lambda x, f=_f: f(x, [1], correction=0), R(2, 3)),
        case(lambda x, f=_f: f(x, [1], correction=2, keepdim=True), R(2, 3)),
        case(lambda x, f=_f: f(x, correction=0.5), R(2, 3)),
        case(lambda x, f=_f: f(x.detach(), []), R(2, 3)),
        case(lambda x, f=_f: f(x, [0]), R(4, 3), batch=True),
        case(lambda x, f=_f: f(x, None, correction=1), R(2, 3)),
    )
add(
    "linalg_vector_norm",
    *(case(lambda x, p=p: aten.linalg_vector_norm(x, p), R(2, 3)) for p in (2, 1, 3.5, math.inf, -math.inf, 0)),
    case(lambda x: aten.linalg_vector_norm(x, 2, [1], True), R(2, 3)),
    case(lambda x: aten.linalg_vector_norm(x, 2, [0, 1]), R(2, 3)),
    case(lambda x: aten.linalg_vector_norm(x, 1, [-1], dtype=torch.float64), R(2, 3, dtype="float32")),
    case(lambda x: aten.linalg_vector_norm(x), np.zeros(3)),
)
add(
    "norm",
    case(lambda x: aten.norm(x, 2), R(2, 3)),
    case(lambda x: aten.norm(x, 3, [1]), R(2, 3)),
    case(lambda x: aten.norm(x, None, [1], True), R(2, 3)),
)
add("dist", case(aten.dist, R(3), R(3)), case(lambda x, y: aten.dist(x, y, 1), R(2, 3), R(3)))
SAMPLES["logsumexp"] += [case(lambda x: aten.logsumexp(x, [0]), np.array([1000.0, 1000.0]))]

# -- shapes and parts

for _name in ("alias", "clone"):
    _f = getattr(aten, _name)
    add(_name, case(lambda x, f=_f: f(x), R(2, 3)))
add("detach", case(lambda x: aten.detach(x) * x, R(2, 3)))
add(
    "view",
    case(lambda x: aten.view(x, [3, 2]), R(2, 3)),
    case(lambda x: aten.view(x, [-1]), R(2, 3)),
    case(lambda x: aten.view(x, [x.shape[0] * 2, -1]), R(3, 4), batch=True),
    case(lambda x: aten.view(x, [x.shape[0], 2, 2]), R(3, 4), batch=True),
    case(lambda x: aten.view(x, []), R(1)),
    case(lambda x: aten.view(x, [-1, 2]), R(3, 4), batch=True),
    case(lambda x: x.flatten(1), R(3, 2, 2), batch=True),
    case(lambda x: x.reshape(-1, 4).reshape(x.shape[0], 2, -1), R(3, 4), batch=True),
)
add("_unsafe_view", case(lambda x: aten._unsafe_view(x, [6]), R(2, 3)))
add(
    "permute",
    case(lambda x: aten.permute(x, [2, 0, 1]), R(2, 3, 4)),
    case(lambda x: aten.permute(x, [-1, 0, 1]), R(2, 3, 4)),
)
add(
    "transpose",
    case(lambda x: aten.transpose(x, 0, -1), R(2, 3, 4)),
    case(lambda x: aten.transpose(x, 1, 2), R(2, 3, 4), batch=True),
)
add("t", case(aten.t, R(2, 3)), case(aten.t, R(3)))
add(
    "expand",
    case(lambda x: aten.expand(x, [4, 2, 3]), R(2, 1)),
    case(lambda x: aten.expand(x, [2, -1, -1]), R(3, 2), batch=True),
    case(lambda x: aten.expand(x, [3]), R()),
)
add(
    "squeeze",
    case(aten.squeeze, R(1, 3, 1)),
    case(lambda x: aten.squeeze(x, 0), R(1, 3)),
    case(lambda x: aten.squeeze(x, 1), R(1, 3)),
    case(lambda x: aten.squeeze(x, [0, -1]), R(1, 3, 1)),
    case(lambda x: aten.squeeze(x, [0, 1]), R(1, 3)),
)
add("unsqueeze", case(lambda x: aten.unsqueeze(x, 0), R(2, 3)), case(lambda x: aten.unsqueeze(x, -1), R(2, 3)))
add(
    "cat",
    case(lambda x, y: aten.cat([x, y]), R(2, 3), R(1, 3)),
    case(lambda x, y: aten.cat([x, y], -1), R(2, 3), R(2, 1)),
    case(lambda x, y: aten.cat([x, y]), I(2), R(3)),
    case(lambda x, y: aten.cat([x, y], 1), R(3, 2), R(3, 1), batch=True),
    case(lambda x, y: aten.cat([x, y]), R(0), R(2, 3)),
    case(lambda x: aten.cat([x]), R(2)),
)
add(
    "stack",
    case(lambda x, y: aten.stack([x, y]), R(2, 3), R(2, 3)),
    case(lambda x, y: aten.stack([x, y], -1), R(2, 3), R(2, 3)),
)
add(
    "split",
    case(lambda x: aten.split(x, 2), R(5, 2)),
    case(lambda x: aten.split(x, 2, -1), R(2, 4)),
    case(lambda x: aten.split(x, 9), R(3)),
)
add(
    "split_with_sizes",
    case(lambda x: aten.split_with_sizes(x, [1, 3, 1]), R(5, 2)),
    case(lambda x: aten.split_with_sizes(x, [2, 0], 1), R(2, 2)),
    case(lambda x: aten.split_with_sizes(x, [1, 1], 1), R(3, 2), batch=True),
)
add("unbind", case(lambda x: aten.unbind(x), R(3, 2)), case(lambda x: aten.unbind(x, -1), R(3, 2)))
add(
    "select",
    case(lambda x: aten.select(x, 0, 1), R(3, 2)),
    case(lambda x: aten.select(x, -1, -1), R(3, 2)),
    case(lambda x: aten.select(x, 0, 0), R(3, 2), batch=True),
    case(lambda x: aten.select(x, 0, -1), R(3, 2), batch=True),
)
add(
    "slice",
    case(lambda x: aten.slice(x, 0, 1, 3), R(4, 2)),
    case(lambda x: aten.slice(x, 1, 0, 9, 2), R(2, 5)),
    case(lambda x: aten.slice(x, -1, -2), R(2, 5)),
    case(lambda x: aten.slice(x, 0, 1, -1), R(5)),
    case(lambda x: aten.slice(x, 0, 3, 1), R(5)),
    case(lambda x: x[1:], R(3, 2), batch=True),
    case(lambda x: x[:, 1:], R(3, 2), batch=True),
    case(lambda x: x[:-1], R(3, 2), batch=True),
    case(lambda x: x[..., :1], R(3, 2)),
)
add(
    "select_scatter",
    case(lambda x, y: aten.select_scatter(x, y, 0, 1), R(3, 2), R(2)),
    case(lambda x, y: aten.select_scatter(x, y, -1, -1), R(3, 2), R(3)),
)
add(
    "slice_scatter",
    case(lambda x, y: aten.slice_scatter(x, y, 0, 1, 3), R(4, 2), R(2, 2)),
    case(lambda x, y: aten.slice_scatter(x, y, 1, 0, 9, 2), R(2, 5), R(2, 3)),
    case(lambda x, y: aten.slice_scatter(x, y), R(2), R(2)),
    case(lambda x, y: aten.slice_scatter(x, y, 1, -2), R(2, 5), R(2, 2)),
    case(lambda x: aten.slice_scatter(x, x[:, 1:] * 2, 1, 0, 1), R(3, 2), batch=True),
)
add(
    "diagonal",
    case(aten.diagonal, R(3, 3)),
    case(lambda x: aten.diagonal(x, 1, 0, 2), R(3, 2, 4)),
    case(lambda x: aten.diagonal(x, -1, -2, -1), R(2, 3, 3)),
)
add(
    "diagonal_scatter",
    case(aten.diagonal_scatter, R(3, 3), R(3)),
    case(lambda x, y: aten.diagonal_scatter(x, y, 1), R(3, 4), R(3)),
    case(lambda x, y: aten.diagonal_scatter(x, y, -1, 0, 2), R(3, 2, 4), R(2, 2)),
)
add(
    "diag_embed",
    case(aten.diag_embed, R(2, 3)),
    case(lambda x: aten.diag_embed(x, 1), R(3)),
    case(lambda x: aten.diag_embed(x, -2, 0, 2), R(2, 3)),
)
add(
    "tril",
    case(aten.tril, R(3, 4)),
    case(lambda x: aten.tril(x, -1), R(2, 3, 3)),
    case(lambda x: aten.tril(x, 1), R(3, 3)),
)
add(
    "triu",
    case(aten.triu, R(3, 4)),
    case(lambda x: aten.triu(x, -1), R(2, 3, 3)),
    case(lambda x: aten.triu(x, 1), B(3, 3)),
)
add(
    "flip",
    case(lambda x: aten.flip(x, [0]), R(3, 2)),
    case(lambda x: aten.flip(x, [0, -1]), R(3, 2)),
    case(lambda x: aten.flip(x, [0]), R(3, 2), batch=True),
)
add(
    "roll",
    case(lambda x: aten.roll(x, [1], [0]), R(3, 2)),
    case(lambda x: aten.roll(x, [1]), R(3, 2)),
    case(lambda x: aten.roll(x, [-1, 2], [0, 1]), R(3, 4)),
    case(lambda x: aten.roll(x, [1], [-1]), R(3, 2)),
)
add("rot90", *(case(lambda x, k=k: aten.rot90(x, k, [0, 1]), R(2, 3)) for k in (0, 1, 2, 3, -1)))
add(
    "repeat",
    case(lambda x: aten.repeat(x, [2, 3]), R(2, 2)),
    case(lambda x: aten.repeat(x, [2, 1, 1]), R(3)),
    case(lambda x: aten.repeat(x, [1, 2]), R(3, 2), batch=True),
)
add(
    "repeat_interleave",
    case(lambda x: aten.repeat_interleave(x, 2), R(2, 2)),
    case(lambda x: aten.repeat_interleave(x, 2, 1), R(2, 2)),
)
add(
    "meshgrid",
    case(lambda x, y: torch.meshgrid(x, y, indexing="ij"), R(2), R(3)),
    case(lambda x, y: torch.meshgrid(x, y, indexing="xy"), R(2), R(3)),
)
add("unfold", case(lambda x: aten.unfold(x, 0, 2, 1), R(4, 2)), case(lambda x: aten.unfold(x, -1, 3, 2), R(2, 7)))

# -- indices

add(
    "index",
    case(lambda x, i: x[i], R(4, 3), I(2, low=-4, high=4)),
    case(lambda x, i: x[:, i], R(4, 3), I(2, 2, low=0, high=3)),
    case(lambda x, i, j: x[i, j], R(4, 3), I(2, low=0, high=4), I(2, low=0, high=3)),
    case(lambda x, i, j: x[i, :, j], R(4, 2, 3), I(2, low=0, high=4), I(2, low=0, high=3)),
    case(lambda x, i, j: x[:, i, j], R(2, 4, 3), I(2, low=0, high=4), I(2, low=0, high=3)),
    case(lambda x, i, j: x[:, i, j], R(2, 4, 3, 2), I(2, 1, low=0, high=4), I(3, low=0, high=3)),
    case(lambda x, i: x[i], R(3, 2), I(3, low=0, high=3), batch=True),
    case(lambda x, i: x[..., i], R(2, 4, 3), I(2, low=0, high=3)),
    case(lambda x, i: x[i], I(4), I(2, dtype="int32", low=0, high=4)),
    case(lambda x, i: x[i], R(4, 2), I(low=0, high=4)),
)
add(
    "index_put",
    case(lambda x, i, v: aten.index_put(x, [i], v), R(4, 3), np.array([2, 0]), R(2, 3)),
    case(lambda x, i, v: aten.index_put(x, [i], v, True), R(4, 3), np.array([2, 2]), R(2, 3)),
    case(lambda x, i, v: aten.index_put(x, [None, i], v), R(2, 4), np.array([2, -1]), R(2, 2)),
    case(
        lambda x, i, j, v: aten.index_put(x, [i, None, j], v), R(4, 2, 3), np.array([2, 0]), np.array([1, 1]), R(2, 2)
    ),
    case(lambda x, i, v: aten.index_put(x, [i], v), R(4, 3), np.array([2, 0]), R()),
    case(
        lambda x, i, j, v: aten.index_put(x, [None, i, j], v),
        R(2, 4, 3, 2),
        np.array([[2], [0]]),
        np.array([1, 2]),
        R(2, 2, 2),
    ),
    case(lambda x, m, v: aten.index_put(x, [m], v), R(4, 3), B(4, 3), R()),
    case(lambda x, m, v: aten.index_put(x, [m], v, True), R(4, 3), B(4), R(1)),
    case(lambda x, i, v: aten.index_put(x, [i], v), I(4), np.array([2, 0]), I(2)),
    case(lambda x, m, v: aten.index_put(x, [None, m], v), R(2, 3), B(3), R()),
)
add(
    "index_select",
    case(lambda x, i: aten.index_select(x, 0, i), R(4, 3), I(2, low=0, high=4)),
    case(lambda x, i: aten.index_select(x, -1, i), R(4, 3), I(5, low=0, high=3)),
)
add(
    "index_add",
    case(lambda x, i, s: aten.index_add(x, 0, i, s), R(), np.array([0]), R()),
    case(lambda x, i, s: aten.index_add(x, 0, i, s), R(4, 3), np.array([1, 1]), R(2, 3)),
    case(lambda x, i, s: aten.index_add(x, 1, i, s, alpha=2), R(2, 4), np.array([3, 0]), R(2, 2)),
    case(lambda x, i, s: aten.index_add(x, 0, i, s), I(4), np.array([1, 1]), I(2)),
)
add(
    "index_copy",
    case(lambda x, i, s: aten.index_copy(x, 0, i, s), R(), np.array([0]), R()),
    case(lambda x, i, s: aten.index_copy(x, 0, i, s), R(4, 3), np.array([1, 3]), R(2, 3)),
    case(lambda x, i, s: aten.index_copy(x, 1, i, s), R(2, 4), np.array([1, 3]), R(2, 2)),
)
add(
    "index_fill",
    case(lambda x, i: aten.index_fill(x, 0, i, 7.0), R(), np.array(0)),
    case(lambda x, i: aten.index_fill(x, 0, i, 7.0), R(4, 3), np.array([1, 3])),
    case(lambda x, i: aten.index_fill(x, 1, i, 2), I(2, 4), np.array([1, 3])),
)
add(
    "index_reduce",
    case(lambda x, i, s: aten.index_reduce(x, 0, i, s, "amax"), R(), np.array([0]), R()),
    case(lambda x, i, s: aten.index_reduce(x, 0, i, s, "prod"), R(4, 3), np.array([1, 3]), R(2, 3)),
    case(lambda x, i, s: aten.index_reduce(x, 1, i, s, "amax", include_self=False), R(2, 4), np.array([1, 1]), R(2, 2)),
)
add(
    "gather",
    case(lambda x, i: aten.gather(x, 1, i), R(3, 4), I(3, 2, low=0, high=4)),
    case(lambda x, i: aten.gather(x, 0, i), R(3, 4), I(2, 2, low=0, high=3)),
    case(lambda x, i: aten.gather(x, -1, i), R(3, 4), I(3, 1, low=0, high=4), batch=True),
    case(lambda x, i: aten.gather(x, 0, i), R(), np.array(0)),
)
add("take", case(aten.take, R(3, 4), I(2, 3, low=0, high=12)))
add(
    "put",
    case(lambda x, i, s: aten.put(x, i, s), R(3, 4), np.array([[1, 5]]), R(1, 2)),
    case(lambda x, i, s: aten.put(x, i, s, True), R(3, 4), np.array([5, 5]), R(2)),
)
add(
    "scatter",
    case(lambda x, i, s: aten.scatter(x, 1, i, s), R(3, 4), np.array([[0, 2], [1, 3], [2, 0]]), R(3, 2)),
    case(lambda x, i: aten.scatter(x, 0, i, 1.5), R(3, 4), np.array([[0, 2, 1]])),
    case(lambda x, i, s: aten.scatter(x, -1, i, s.detach()), R(3, 4), np.array([[0, 2], [1, 3]]), R(3, 4)),
    case(
        lambda x, i, s: aten.scatter(x.detach(), 1, i, s.detach(), reduce="add"),
        R(3, 4),
        np.array([[0, 0], [1, 3], [2, 0]]),
        R(3, 2),
    ),
    case(lambda x, i: aten.scatter(x, 0, i, 2, reduce="multiply"), I(3, 4), np.array([[0, 2, 1]])),
    case(lambda x, i, s: aten.scatter(x, 0, i, s), R(), np.array(0), R()),
)
add(
    "scatter_add",
    case(lambda x, i, s: aten.scatter_add(x, 1, i, s), R(3, 4), np.array([[0, 0], [1, 3], [2, 0]]), R(3, 2)),
    case(lambda x, i, s: aten.scatter_add(x, 0, i, s.detach()), R(3, 4), np.array([[0, 0]]), R(3, 4)),
)
add(
    "scatter_reduce",
    *(
        case(
            lambda x, i, s, r=r, n=n: aten.scatter_reduce(x, 1, i, s, r, include_self=n),
            P(3, 4),
            np.array([[0, 0], [1, 3], [2, 0]]),
            P(3, 2),
        )
        for r in ("sum", "prod", "mean", "amax", "amin")
        for n in (True, False)
    ),
    case(lambda x, i, s: aten.scatter_reduce(x, 0, i, s, "amax", include_self=False), I(4), np.array([0, 0, 2]), I(3)),
    case(lambda x, i, s: aten.scatter_reduce(x, 0, i, s, "mean"), I(4), np.array([0, 0, 2]), I(3)),
)
add(
    "masked_scatter",
    case(aten.masked_scatter, R(3, 4), B(3, 4), R(12)),
    case(aten.masked_scatter, R(3, 4), B(4), R(3, 4)),
    case(aten.masked_scatter, I(5), B(5), I(5)),
)
add("one_hot", case(lambda i: torch.nn.functional.one_hot(i, 5), I(2, 3, low=0, high=5)))
add(
    "bucketize",
    case(lambda x, b: aten.bucketize(x.detach(), b.detach()), R(2, 3), np.array([-1.0, 0.0, 1.0])),
    case(lambda x, b: aten.bucketize(x, b, right=True, out_int32=True), I(6), np.array([-1, 0, 2])),
)
add(
    "searchsorted",
    case(lambda x, b: aten.searchsorted(b.detach(), x.detach()), R(2, 3), np.array([-1.0, 0.0, 1.0])),
    case(lambda x, b: aten.searchsorted(b, x, right=True), I(2, 3), np.sort(I(2, 4))),
    case(lambda x, b: aten.searchsorted(b, x, side="right", out_int32=True), I(2), np.array([1, 2])),
)
add(
    "isin",
    case(aten.isin, I(2, 3), np.array([1, 2])),
    case(lambda x, y: aten.isin(x, y, invert=True), I(4), np.array([1, 2])),
)

# -- orders

add(
    "sort",
    case(lambda x: aten.sort(x), R(2, 4)),
    case(lambda x: aten.sort(x, 0, True), R(4, 2)),
    case(lambda x: aten.sort(x), np.array([2, 1, 2, 1])),
    case(lambda x: aten.sort(x, stable=True, dim=0, descending=True), np.array([2, 1, 2, 1])),
    case(lambda x: aten.sort(x), R()),
)
add("argsort", case(lambda x: aten.argsort(x, stable=True, dim=0), R(4, 2)))
add(
    "topk",
    case(lambda x: aten.topk(x, 2), R(2, 5)),
    case(lambda x: aten.topk(x, 2, 0, False), R(5, 2)),
    case(lambda x: aten.topk(x, 1, -1), R(3, 2), batch=True),
)
add("kthvalue", case(lambda x: aten.kthvalue(x, 2), R(2, 5)), case(lambda x: aten.kthvalue(x, 3, 0, True), R(5, 2)))
add(
    "cumsum",
    case(lambda x: aten.cumsum(x, 0), R(3, 2)),
    case(lambda x: aten.cumsum(x, -1), I(2, 3, dtype="int32")),
    case(lambda x: aten.cumsum(x, 0), B(4)),
    case(lambda x: aten.cumsum(x, 0, dtype=torch.float64), I(4)),
    case(lambda x: aten.cumsum(x, 0), R()),
)
add("cumprod", case(lambda x: aten.cumprod(x, 0), R(3, 2)), case(lambda x: aten.cumprod(x, -1), I(2, 3)))
add(
    "diff",
    case(aten.diff, R(2, 4)),
    case(lambda x: aten.diff(x, 2, 0), R(4, 2)),
    case(lambda x, y: aten.diff(x, 1, -1, y), R(3), R(1)),
    case(aten.diff, B(4)),
)

for _name in ("cummax", "cummin"):
    _f = getattr(aten, _name)
    add(
        _name,
        case(lambda x, f=_f: f(x, 0), R(7, 2)),
        case(lambda x, f=_f: f(x, -1), np.array([[2, 3, 3, 1, 3, 0]])),
        case(lambda x, f=_f: f(x.detach(), 0), np.array([1.0, math.nan, 2.0, math.nan, 0.0])),
        case(lambda x, f=_f: f(x, 0), R()),
        case(lambda x, f=_f: f(x, 1), R(3, 4), batch=True),
    )
add(
    "logcumsumexp",
    case(lambda x: aten.logcumsumexp(x, 0), R(5, 2)),
    case(lambda x: aten.logcumsumexp(x, -1), np.array([[1000.0, 1000.0, -1000.0]])),
)
add(
    "nanmedian",
    case(aten.nanmedian, R(6)),
    case(lambda x: aten.nanmedian(x.detach()), np.array([3.0, math.nan, 1.0, 2.0, math.nan])),
    case(lambda x: aten.nanmedian(x.detach(), 1), np.array([[3.0, math.nan, 1.0], [math.nan, math.nan, 7.0]])),
    case(lambda x: aten.nanmedian(x, 0, True), R(4, 2)),
)
add(
    "histc",
    case(lambda x: aten.histc(x.detach(), 4), R(20)),
    case(lambda x: aten.histc(x.detach(), 3, -1, 1), R(20)),
    case(lambda x: aten.histc(x.detach(), 2), np.full(3, 5.0)),
)

# -- products

add("mm", case(aten.mm, R(2, 3), R(3, 4)), case(lambda x, y: aten.mm(x, y.t()), R(3, 2), R(3, 2), batch=True))
add("bmm", case(aten.bmm, R(2, 3, 4), R(2, 4, 2)), case(aten.bmm, R(3, 2, 4), R(3, 4, 2), batch=True))
add(
    "matmul",
    case(aten.matmul, R(2, 3), R(3, 4)),
    case(aten.matmul, R(3), R(3)),
    case(aten.matmul, R(2, 1, 3, 4), R(5, 4, 2)),
    case(aten.matmul, R(3), R(2, 3, 4)),
    case(aten.matmul, I(2, 3), I(3, 2)),
)
add("mv", case(aten.mv, R(2, 3), R(3)))
add("dot", case(aten.dot, R(3), R(3)), case(aten.dot, I(3), I(3)))
add("outer", case(aten.outer, R(3), R(2)))
add(
    "addmm",
    case(aten.addmm, R(4), R(2, 3), R(3, 4)),
    case(lambda x, a, b: aten.addmm(x, a, b, beta=0.5, alpha=2), R(2, 4), R(2, 3), R(3, 4)),
    case(lambda x, a, b: aten.addmm(x.detach(), a, b, beta=0), np.full((2, 4), math.nan), R(2, 3), R(3, 4)),
)
add(
    "baddbmm",
    case(aten.baddbmm, R(2, 2, 4), R(2, 2, 3), R(2, 3, 4)),
    case(lambda x, a, b: aten.baddbmm(x, a, b, beta=0.5, alpha=2), R(1, 2, 4), R(2, 2, 3), R(2, 3, 4)),
)
add(
    "addbmm",
    case(aten.addbmm, R(2, 4), R(2, 2, 3), R(2, 3, 4)),
    case(lambda x, a, b: aten.addbmm(x, a, b, beta=0.5, alpha=2), R(2, 4), R(2, 2, 3), R(2, 3, 4)),
)
add("addmv", case(aten.addmv, R(2), R(2, 3), R(3)))
add("addr", case(aten.addr, R(2, 3), R(2), R(3)))
add(
    "einsum",
    case(lambda x, y: torch.einsum("ij,kj->ik", x, y), R(2, 3), R(4, 3)),
    case(lambda x: torch.einsum("ii->i", x), R(3, 3)),
    case(lambda x, y: torch.einsum("b...i, i->b...", x, y), R(2, 3, 4), R(4)),
)
add("tensordot", case(lambda x, y: torch.tensordot(x, y, dims=([1], [0])), R(2, 3), R(3, 4)))
add("kron", case(aten.kron, R(2, 3), R(2, 2)), case(aten.kron, R(3), R(2, 2)))
add(
    "linalg_cross",
    case(lambda x, y: aten.linalg_cross(x, y), R(2, 3), R(2, 3)),
    case(lambda x, y: aten.linalg_cross(x, y, dim=0), R(3, 2), R(3, 2)),
)
add("linalg_vecdot", case(lambda x, y: aten.linalg_vecdot(x, y), R(2, 3), R(2, 3)))
add(
    "_cdist_forward",
    *(
        case(lambda x, y, p=p: aten._cdist_forward(x.detach(), y.detach(), p, None), R(2, 3), R(4, 3))
        for p in (2.0, 1.0, math.inf)
    ),
)
add(
    "cdist",
    case(lambda x, y: torch.cdist(x, y), R(2, 3), R(4, 3)),
    case(lambda x, y: torch.cdist(x, y, p=1.0), R(2, 2, 3), R(2, 4, 3)),
)
add("_pdist_forward", case(lambda x: aten._pdist_forward(x.detach(), 2.0), R(4, 3)))
add("pdist", case(torch.pdist, R(4, 3)))
add("trace", case(aten.trace, R(3, 3)), case(aten.trace, I(3, 2, dtype="int32")))

# -- creation, dtypes

add(
    "full",
    case(lambda x: aten.full([2, 3], 1.5), R(1)),
    case(lambda x: aten.full([2], 3), R(1)),
    case(lambda x: aten.full([2], True), R(1)),
    case(lambda x: aten.full([x.shape[0]], 2, dtype=torch.float64), R(3, 2), batch=True),
)
add(
    "full_like",
    case(lambda x: aten.full_like(x, 2), R(2, 3)),
    case(lambda x: aten.full_like(x, 2.7, dtype=torch.int64), R(2)),
    case(lambda x: aten.full_like(x, 1), R(3, 2), batch=True),
)
add("fill", case(lambda x: aten.fill(x, 2), R(2, 3)), case(aten.fill, R(2, 3), R()))
add("new_full", case(lambda x: aten.new_full(x, [2], 3), R(1)))
for _name in ("zeros", "ones"):
    _f, _like, _new = (getattr(aten, n) for n in (_name, f"{_name}_like", f"new_{_name}"))
    add(
        _name,
        case(lambda x, f=_f: f([2, 3]), R(1)),
        case(lambda x, f=_f: f([x.shape[0]], dtype=torch.int64), R(3, 2), batch=True),
    )
    add(
        f"{_name}_like",
        case(lambda x, f=_like: f(x), R(2)),
        case(lambda x, f=_like: f(x, dtype=torch.bool), R(2)),
    )
    add(f"new_{_name}", case(lambda x, f=_new: f(x, [2]), I(2)))
add("empty", case(lambda x: aten.empty([2, 3]), R(1), drawn=True))
add("empty_like", case(aten.empty_like, R(2, 3), drawn=True))
add("empty_strided", case(lambda x: aten.empty_strided([2, 3], [1, 2]), R(1), drawn=True))
add(
    "scalar_tensor",
    case(lambda x: aten.scalar_tensor(2.5), R(1)),
    case(lambda x: aten.scalar_tensor(2, dtype=torch.int64), R(1)),
)
add(
    "arange",
    case(lambda x: torch.arange(5), R(1)),
    case(lambda x: torch.arange(1, 6, 2), R(1)),
    case(lambda x: torch.arange(0.0, 1.0, 0.25, dtype=torch.float64), R(1)),
    case(lambda x: torch.arange(x.shape[0]), R(3, 2), batch=True),
    case(lambda x: torch.arange(1, x.shape[0] + 1, dtype=torch.float32), R(3, 2), batch=True),
    case(lambda x: torch.arange(5, 0, -2), R(1)),
)
add(
    "linspace",
    case(lambda x: torch.linspace(0, 1, 5, dtype=torch.float64), R(1)),
    case(lambda x: torch.linspace(-1, 2, 4), R(1)),
    case(lambda x: torch.linspace(3, 4, 1), R(1)),
)
add("logspace", case(lambda x: torch.logspace(0, 2, 5, dtype=torch.float64), R(1)))
add("eye", case(lambda x: torch.eye(3), R(1)), case(lambda x: torch.eye(2, 3, dtype=torch.int64), R(1)))
add("tril_indices", case(lambda x: torch.tril_indices(3, 4, 1), R(1)))
add("triu_indices", case(lambda x: torch.triu_indices(3, 4, -1), R(1)))
add(
    "_to_copy",
    *(
        case(lambda x, d=d: x.to(d), R(2, 3))
        for d in (torch.float32, torch.int64, torch.bool, torch.float16, torch.bfloat16)
    ),
    case(lambda x: x.to(torch.float64), I(3)),
    case(lambda x: x.float(), B(3)),
)
add("type_as", case(aten.type_as, R(2), I(2)))
add("copy", case(lambda x, y: aten.copy(x.detach(), y.detach()), R(2, 3), R(3)))
add(
    "rand",
    case(lambda x: torch.rand(2, 3), R(1), drawn=True),
    case(lambda x: torch.rand(x.shape[0], dtype=torch.float64), R(3, 2), batch=True, drawn=True),
)
add("randn", case(lambda x: torch.randn(2, 3), R(1), drawn=True))
add("rand_like", case(torch.rand_like, R(2, 3), drawn=True))
add("randn_like", case(torch.randn_like, R(2, 3), drawn=True))
add(
    "randint",
    case(lambda x: torch.randint(5, (2, 3)), R(1), drawn=True),
    case(lambda x: torch.randint(2, 5, (2,)), R(1), drawn=True),
)
add(
    "randint_like",
    case(lambda x: torch.randint_like(x, 5), R(2), drawn=True),
    case(lambda x: torch.randint_like(x, 2, 5), I(2), drawn=True),
)
add("randperm", case(lambda x: torch.randperm(5), R(1), drawn=True))
add(
    "bernoulli",
    case(lambda x: torch.bernoulli(x), R(3, low=0.1, high=0.9), drawn=True),
    case(lambda x: aten.bernoulli(x, 0.3), R(3), drawn=True),
)
add(
    "multinomial",
    case(lambda x: torch.multinomial(x, 2), P(2, 5), drawn=True),
    case(lambda x: torch.multinomial(x, 7, True), P(5), drawn=True),
)
add(
    "normal",
    case(lambda x: torch.normal(x, 1.0), R(3), drawn=True),
    case(lambda x: torch.normal(0.0, 1.0, (2, 3)), R(1), drawn=True),
)
add(
    "sym_size",
    case(lambda x: x * x.shape[0], R(3, 2), batch=True),
    case(lambda x: x / (x.shape[0] + 1) + torch.full((), x.shape[0]), R(3, 2), batch=True),
)
add("item", case(lambda x, i: x[i], R(4, 2), np.array(2)), case(lambda x, y: x * y.detach().item(), R(3), R()))

add("geometric", case(lambda x: aten.geometric(x, 0.3), R(3), drawn=True))
add("cauchy", case(aten.cauchy, R(3), drawn=True))
add("log_normal", case(aten.log_normal, R(3), drawn=True))
add("uniform", case(lambda x: aten.uniform(x, -1.0, 2.0), R(3), drawn=True))
add("normal_functional", case(aten.normal_functional, R(3), drawn=True))
add("exponential", case(aten.exponential, R(3), drawn=True))
add(
    "_foreach_add",
    case(lambda x, y: aten._foreach_add([x, y], [y, x]), R(3), R(3)),
    case(lambda x: aten._foreach_add([x, x], 2), R(3)),
)
add("_foreach_mul", case(lambda x, y: aten._foreach_mul([x, y], [2.0, 3.0]), R(3), R(2)))
add("_foreach_sqrt", case(lambda x, y: aten._foreach_sqrt([x, y]), P(3), P(2)))
add("_foreach_addcdiv", case(lambda x, y: aten._foreach_addcdiv([x], [x], [y], 0.5), R(3), P(3)))
add("_foreach_norm", case(lambda x, y: aten._foreach_norm([x, y]), R(3), R(2)))

# -- what export takes apart, or nn.functional does not call: replayed as written

WRITTEN: dict[str, list[Sample]] = {
    "hardshrink": [case(aten.hardshrink.default, R(6)), case(lambda x: aten.hardshrink.default(x, 1), R(6))],
    "softshrink": [case(aten.softshrink.default, R(6)), case(lambda x: aten.softshrink.default(x, 1), R(6))],
    "contiguous": [case(aten.contiguous.default, R(2, 3))],
    "lift_fresh_copy": [case(aten.lift_fresh_copy.default, R(2, 3))],
    "reshape": [case(lambda x: aten.reshape.default(x, [3, -1]), R(2, 3))],
    "reshape_as": [case(aten.reshape_as.default, R(2, 3), R(3, 2))],
    "view_as": [case(aten.view_as.default, R(2, 3), R(3, 2))],
    "expand_as": [case(aten.expand_as.default, R(1, 3), R(2, 3))],
    "flatten": [case(lambda x: aten.flatten.using_ints(x, 1), R(2, 3, 2)), case(aten.flatten.using_ints, R())],
    "ravel": [case(aten.ravel.default, R(2, 3))],
    "unflatten": [case(lambda x: aten.unflatten.int(x, -1, [2, -1]), R(2, 4))],
    "movedim": [
        case(lambda x: aten.movedim.int(x, 0, -1), R(2, 3, 4)),
        case(lambda x: aten.movedim.intlist(x, [0, 1], [2, 0]), R(2, 3, 4)),
    ],
    "swapaxes": [case(lambda x: aten.swapaxes.default(x, 0, 1), R(2, 3))],
    "numpy_T": [case(aten.numpy_T.default, R(2, 3))],
    "mT": [case(aten.mT.default, R(2, 2, 3))],
    "broadcast_to": [case(lambda x: aten.broadcast_to.default(x, [2, 3]), R(3))],
    "chunk": [case(lambda x: aten.chunk.default(x, 3), R(5, 2)), case(lambda x: aten.chunk.default(x, 2, 1), R(2, 3))],
    "tensor_split": [
        case(lambda x: aten.tensor_split.sections(x, 3), R(5, 2)),
        case(lambda x: aten.tensor_split.indices(x, [1, 3], 1), R(2, 4)),
    ],
    "narrow": [case(lambda x: aten.narrow.default(x, 1, 1, 2), R(2, 4))],
    "hstack": [
        case(lambda x, y: aten.hstack.default([x, y]), R(2, 3), R(2, 1)),
        case(lambda x: aten.hstack.default([x, x]), R(3)),
    ],
    "vstack": [case(lambda x, y: aten.vstack.default([x, y]), R(2, 3), R(3))],
    "dstack": [
        case(lambda x, y: aten.dstack.default([x, y]), R(2, 3), R(2, 3)),
        case(lambda x: aten.dstack.default([x, x]), R(3)),
    ],
    "column_stack": [case(lambda x, y: aten.column_stack.default([x, y]), R(3), R(3, 2))],
    "atleast_2d": [case(aten.atleast_2d.default, R(3)), case(aten.atleast_2d.default, R())],
    "atleast_3d": [case(aten.atleast_3d.default, R(3)), case(aten.atleast_3d.default, R(3, 2))],
    "broadcast_tensors": [case(lambda x, y: aten.broadcast_tensors.default([x, y]), R(2, 1), R(3))],
    "diag": [case(aten.diag.default, R(3)), case(lambda x: aten.diag.default(x, 1), R(3, 3))],
    "fliplr": [case(aten.fliplr.default, R(2, 3))],
    "flipud": [case(aten.flipud.default, R(2, 3))],
    "true_divide": [case(aten.true_divide.Tensor, R(3), P(3))],
    "arccos": [case(aten.arccos.default, U(3))],
    "special_expit": [case(aten.special_expit.default, R(3))],
    "take_along_dim": [
        case(lambda x, i: aten.take_along_dim.default(x, i, 1), R(2, 3), I(2, 2, low=0, high=3)),
        case(lambda x, i: aten.take_along_dim.default(x, i), R(2, 3), I(4, low=0, high=6)),
        case(lambda x, i: aten.take_along_dim.default(x, i, 0), R(4, 1), I(2, 3, low=0, high=4)),
    ],
    "inner": [case(aten.inner.default, R(2, 3), R(4, 3)), case(aten.inner.default, R(3), R(3))],
    "linalg_matmul": [case(aten.linalg_matmul.default, R(2, 3), R(3, 2))],
    "linalg_multi_dot": [case(lambda x, y, z: aten.linalg_multi_dot.default([x, y, z]), R(2, 3), R(3, 4), R(4, 2))],
    "matrix_power": [case(lambda x, n=n: aten.matrix_power.default(x, n), R(3, 3)) for n in (0, 1, 2, 5)],
    "frobenius_norm": [case(lambda x: aten.frobenius_norm.dim(x, [1]), R(2, 3))],
    "argsort": [case(lambda x: aten.argsort.default(x, 0, True), R(4, 2))],
    "msort": [case(aten.msort.default, R(4, 2))],
    "float_power": [case(lambda x: aten.float_power.Tensor_Scalar(x, 2), I(3))],
    "to": [
        case(lambda x: aten.to.dtype(x, torch.float32), R(3)),
        case(lambda x, y: aten.to.other(x, y), I(3), R(2)),
    ],
    "_unsafe_index": [case(lambda x, i: aten._unsafe_index.Tensor(x, [None, i]), R(2, 3), I(2, low=0, high=3))],
    "log_softmax": [case(lambda x: aten.log_softmax.int(x, 1), R(2, 3))],
    "square": [case(aten.square.default, B(3))],
}
