"""Gradient rules of relay's operators, in relay's operators. An operator without one is differentiated as what it means
in the graph IR (``relay/gradient/generic.py``); a few here ask for just that.

Where a derivative jumps, the rule takes the reference system's side: that of ``nn.relu`` and ``abs`` at 0 is 1, and the
adjoint of ``max`` is divided among equal elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.relay.expr import Call, Constant, Expr, Tuple, as_expr, call_op, const
from pullback.relay.op.gradient_rules import register_gradient
from pullback.relay.op.reduce import reduced_axes
from pullback.relay.op.rules import tensors_of
from pullback.relay.ty import TensorType, TupleType

Rule = Callable[[Call, Expr], "list[Any]"]

RULES: dict[str, Rule] = {}


def register_gradients() -> None:
    """Register the rules of this file, once all operators are defined."""
    for name, rule in RULES.items():
        register_gradient(name, rule)
    register_gradient("dyn.arange", RULES["arange"])  # the same call, where the numbers are no constants


def _named(name: str) -> Callable[..., Any]:
    return lambda *args, **attrs: call_op(name, *args, **attrs)


broadcast_to_like, cast_like, collapse_sum_like, reshape_like, ones_like, zeros_like = map(
    _named, ("broadcast_to_like", "cast_like", "collapse_sum_like", "reshape_like", "ones_like", "zeros_like")
)
add, cos, cosh, equal, exp, expand_dims, less, log, sin, sinh, split, sqrt, squeeze, transpose, where = map(
    _named,
    ("add", "cos", "cosh", "equal", "exp", "expand_dims", "less", "log", "sin", "sinh", "split", "sqrt", "squeeze",
     "transpose", "where"),
)  # fmt: skip
sum_, dense, matmul, batch_matmul = map(_named, ("sum", "nn.dense", "nn.matmul", "nn.batch_matmul"))


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _number(value: float, like: Expr) -> Constant:
    """A scalar of the dtype of ``like``."""
    return const(value, like.checked_as(TensorType).dtype)


def _generic(orig: Call, grad: Expr) -> list[Any]:
    """The gradient of what the operator means in the graph IR."""
    from pullback.relay.gradient.generic import generic_gradient

    return generic_gradient(orig, grad)


# Of one tensor: (x, the result, grad) → the adjoint of x.
_UNARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "log": lambda x, y, grad: grad / x,
    "log2": lambda x, y, grad: grad / (x * _number(math.log(2), x)),
    "log10": lambda x, y, grad: grad / (x * _number(math.log(10), x)),
    "tan": lambda x, y, grad: grad * (ones_like(x) + y * y),
    "cos": lambda x, y, grad: -(grad * sin(x)),
    "cosh": lambda x, y, grad: grad * sinh(x),
    "sin": lambda x, y, grad: grad * cos(x),
    "sinh": lambda x, y, grad: grad * cosh(x),
    "acos": lambda x, y, grad: -(grad / sqrt(ones_like(x) - x * x)),
    "acosh": lambda x, y, grad: grad / (sqrt(x - ones_like(x)) * sqrt(x + ones_like(x))),
    "asin": lambda x, y, grad: grad / sqrt(ones_like(x) - x * x),
    "asinh": lambda x, y, grad: grad / sqrt(ones_like(x) + x * x),
    "atan": lambda x, y, grad: grad / (ones_like(x) + x * x),
    "atanh": lambda x, y, grad: grad / (ones_like(x) - x * x),
    "exp": lambda x, y, grad: grad * y,
    "sqrt": lambda x, y, grad: grad * _number(0.5, x) / y,
    "sigmoid": lambda x, y, grad: grad * y * (ones_like(y) - y),
    "tanh": lambda x, y, grad: grad * (ones_like(y) - y * y),
    "erf": lambda x, y, grad: grad * _number(2 / math.sqrt(math.pi), x) * exp(-(x * x)),
    "negative": lambda x, y, grad: -grad,
    "abs": lambda x, y, grad: where(less(x, zeros_like(x)), -grad, grad),
    "nn.relu": lambda x, y, grad: where(less(x, zeros_like(x)), zeros_like(x), grad),
    "copy": lambda x, y, grad: grad,
    "cast": lambda x, y, grad: cast_like(grad, x),
    "zeros_like": lambda x, y, grad: zeros_like(x),
    "ones_like": lambda x, y, grad: zeros_like(x),
    "shape_of": lambda x, y, grad: zeros_like(x),
    **dict.fromkeys(
        ("reshape", "contrib_reverse_reshape", "squeeze", "expand_dims", "nn.batch_flatten"),
        lambda x, y, grad: reshape_like(grad, x),
    ),
}


def _unary(formula: Callable[[Any, Any, Any], Any]) -> Rule:
    return lambda orig, grad: [formula(orig.args[0], orig, grad)]


for _name, _formula in _UNARY.items():
    _rule(_name)(_unary(_formula))
_rule(
    "strided_slice", "take", "gather_nd", "nn.conv2d", "nn.max_pool2d", "nn.avg_pool2d"
)(_generic)  # fmt: skip


@_rule("clip")
def _clip(orig: Call, grad: Expr) -> list[Any]:
    x, zeros = orig.args[0], zeros_like(orig.args[0])
    low, high = _number(orig.attrs.a_min, x), _number(orig.attrs.a_max, x)
    return [where(less(x, low), zeros, where(less(high, x), zeros, grad))]


@_rule("add")
def _add(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    return [collapse_sum_like(grad, x), collapse_sum_like(grad, y)]


@_rule("subtract")
def _subtract(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    return [collapse_sum_like(grad, x), collapse_sum_like(-grad, y)]


@_rule("multiply")
def _multiply(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    return [collapse_sum_like(grad * y, x), collapse_sum_like(grad * x, y)]


@_rule("divide")
def _divide(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    return [collapse_sum_like(grad / y, x), collapse_sum_like(-(grad * orig / y), y)]


@_rule("less_equal", "not_equal", "zeros", "ones", "dyn.zeros", "dyn.ones")
def _constant(orig: Call, grad: Expr) -> list[Any]:
    """Of what does not move with its arguments."""
    return [zeros_like(x) for x in orig.args]


@_rule("dyn.reshape", "reshape_like")
def _reshape(orig: Call, grad: Expr) -> list[Any]:
    x, shape = orig.args
    return [reshape_like(grad, x), zeros_like(shape)]


@_rule("dyn.expand_dims", "dyn.squeeze")
def _axes(orig: Call, grad: Expr) -> list[Any]:
    x, axes = orig.args
    return [reshape_like(grad, x), zeros_like(axes)]


@_rule("dyn.broadcast_to")
def _broadcast(orig: Call, grad: Expr) -> list[Any]:
    x, shape = orig.args
    return [collapse_sum_like(grad, x), zeros_like(shape)]


@_rule("dyn.full")
def _full(orig: Call, grad: Expr) -> list[Any]:
    value, shape = orig.args
    return [reshape_like(cast_like(sum_(grad), value), value), zeros_like(shape)]


@_rule("cast_like")
def _cast_like(orig: Call, grad: Expr) -> list[Any]:
    x, like = orig.args
    return [cast_like(grad, x), zeros_like(like)]


@_rule("collapse_sum_like", "collapse_sum_to", "dyn.collapse_sum_to")
def _collapse_sum(orig: Call, grad: Expr) -> list[Any]:
    x, *others = orig.args
    return [broadcast_to_like(grad, x), *map(zeros_like, others)]


@_rule("where")
def _where(orig: Call, grad: Expr) -> list[Any]:
    condition, x, y = orig.args
    zeros = zeros_like(grad)
    taken, other = where(condition, grad, zeros), where(condition, zeros, grad)
    return [zeros_like(condition), collapse_sum_like(taken, x), collapse_sum_like(other, y)]


@_rule("transpose")
def _transpose(orig: Call, grad: Expr) -> list[Any]:
    axes = orig.attrs.axes
    if not axes:
        return [transpose(grad)]
    axes = [int(axis) % len(axes) for axis in axes]
    return [transpose(grad, axes=[axes.index(k) for k in range(len(axes))])]


@_rule("concatenate")
def _concatenate(orig: Call, grad: Expr) -> list[Any]:
    axis = int(orig.attrs.axis)
    sizes = [t.shape[axis] for t in tensors_of("concatenate", orig.args[0].checked_type)]
    if not all(isinstance(size, int) for size in sizes):
        return _generic(orig, grad)
    if len(sizes) == 1:
        return [Tuple((grad,))]
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes) - 1)]
    return [as_expr(split(grad, ends, axis=axis))]


@_rule("stack")
def _stack(orig: Call, grad: Expr) -> list[Any]:
    count, axis = len(orig.args[0].checked_as(TupleType).fields), int(orig.attrs.axis)
    return [Tuple(tuple(squeeze(part, axis=[axis]) for part in split(grad, count, axis=axis)))]


@_rule("arange", "dyn.arange")
def _arange(orig: Call, grad: Expr) -> list[Any]:
    """Element k is start + k · step; how many there are does not move."""
    start, stop, step = orig.args
    number = (orig - cast_like(start, orig)) / cast_like(step, orig)
    of_start, of_step = (cast_like(sum_(g), x) for g, x in ((grad, start), (grad * number, step)))
    return [reshape_like(of_start, start), zeros_like(stop), reshape_like(of_step, step)]


def _reduced(orig: Call) -> tuple[int, ...]:
    """The axes that a reduction takes, in order."""
    return reduced_axes(orig.op.name, orig.args[0].checked_as(TensorType).ndim, orig.attrs)


def _unreduced(value: Any, orig: Call) -> Any:
    """A result of a reduction, or its adjoint, with the reduced axes as axes of size 1."""
    if not orig.attrs.keepdims:
        for axis in _reduced(orig):
            value = expand_dims(value, axis=axis)
    return value


def _count(orig: Call) -> Any:
    """The number of elements of which one of a reduction's result is made, as an operand for a quotient."""
    x, axes = orig.args[0], _reduced(orig)
    shape = x.checked_as(TensorType).shape
    if all(isinstance(shape[a], int) for a in axes):
        return _number(math.prod(shape[a] for a in axes), x)
    return sum_(ones_like(x), axis=axes, keepdims=True)


@_rule("sum")
def _sum(orig: Call, grad: Expr) -> list[Any]:
    return [broadcast_to_like(_unreduced(grad, orig), orig.args[0])]


@_rule("mean")
def _mean(orig: Call, grad: Expr) -> list[Any]:
    return [broadcast_to_like(_unreduced(grad, orig) / _count(orig), orig.args[0])]


@_rule("max")
def _max(orig: Call, grad: Expr) -> list[Any]:
    x = orig.args[0]
    taken = cast_like(equal(x, _unreduced(orig, orig)), grad)
    return [taken * (_unreduced(grad, orig) / sum_(taken, axis=_reduced(orig), keepdims=True))]


@_rule("variance")
def _variance(orig: Call, grad: Expr) -> list[Any]:
    """The mean is an argument, and has an adjoint of its own."""
    x, mean = orig.args
    count = _count(orig)
    if orig.attrs.get("unbiased", False):
        count = count - _number(1.0, x)
    adjoint = _unreduced(grad, orig) * _number(2.0, x) / count * (x - mean)
    return [adjoint, collapse_sum_like(-adjoint, mean)]


@_rule("one_hot")
def _one_hot(orig: Call, grad: Expr) -> list[Any]:
    indices, on_value, off_value = orig.args
    zero, one = _number(0.0, orig), _number(1.0, orig)
    adjoints: list[Any] = [zeros_like(indices)]
    for value, (on, off) in ((on_value, (one, zero)), (off_value, (zero, one))):
        there = call_op("one_hot", indices, on, off, **orig.attrs)
        adjoints.append(reshape_like(cast_like(sum_(grad * there), value), value))
    return adjoints


@_rule("nn.softmax")
def _softmax(orig: Call, grad: Expr) -> list[Any]:
    return [(grad - sum_(grad * orig, axis=orig.attrs.axis, keepdims=True)) * orig]


@_rule("nn.log_softmax")
def _log_softmax(orig: Call, grad: Expr) -> list[Any]:
    return [grad - sum_(grad, axis=orig.attrs.axis, keepdims=True) * exp(orig)]


@_rule("nn.bias_add")
def _bias_add(orig: Call, grad: Expr) -> list[Any]:
    axis = int(orig.attrs.axis)
    return [collapse_sum_like(grad, orig.args[0]), sum_(grad, axis=axis, keepdims=False, exclude=True)]


@_rule("nn.global_avg_pool2d")
def _global_avg_pool2d(orig: Call, grad: Expr) -> list[Any]:
    x, layout = orig.args[0], str(orig.attrs.layout)
    height, width = (x.checked_as(TensorType).shape[layout.index(axis)] for axis in "HW")
    if not isinstance(height, int) or not isinstance(width, int):
        return _generic(orig, grad)
    size = height * width
    return [broadcast_to_like(grad / _number(size, x), x)]


def _converts(orig: Call) -> bool:
    """Whether the result is of another dtype than the arguments."""
    return any(x.checked_as(TensorType).dtype != orig.checked_as(TensorType).dtype for x in orig.args)


@_rule("nn.dense")
def _dense(orig: Call, grad: Expr) -> list[Any]:
    data, weight = orig.args
    if data.checked_as(TensorType).ndim != 2 or _converts(orig):
        return _generic(orig, grad)
    return [
        collapse_sum_like(dense(grad, transpose(weight)), data),
        collapse_sum_like(dense(transpose(grad), transpose(data)), weight),
    ]


def _products(orig: Call, grad: Expr, product: Callable[..., Any]) -> list[Any]:
    """Of ``a @ b``, either of which may be transposed first: an adjoint is a product of the same kind."""
    if _converts(orig):
        return _generic(orig, grad)
    a, b = orig.args
    turned_a, turned_b = bool(orig.attrs.transpose_a), bool(orig.attrs.transpose_b)
    of_a = (b, grad, turned_b, True) if turned_a else (grad, b, False, not turned_b)
    of_b = (grad, a, True, turned_a) if turned_b else (a, grad, not turned_a, False)
    found = [product(x, y, transpose_a=s, transpose_b=t) for x, y, s, t in (of_a, of_b)]
    return [collapse_sum_like(adjoint, x) for adjoint, x in zip(found, (a, b), strict=True)]


@_rule("nn.matmul")
def _matmul(orig: Call, grad: Expr) -> list[Any]:
    return _products(orig, grad, matmul)


@_rule("nn.batch_matmul")
def _batch_matmul(orig: Call, grad: Expr) -> list[Any]:
    return _products(orig, grad, batch_matmul)


def _per_row(x: Expr, grad: Any) -> Any:
    """The adjoint of a mean over the first axis of ``x``, for one of its rows."""
    rows = x.checked_as(TensorType).shape[0]
    if isinstance(rows, int):
        return grad / _number(rows, x)
    return grad / call_op(
        "cast", call_op("take", call_op("shape_of", x), const(0), axis=0), dtype=x.checked_as(TensorType).dtype
    )


@_rule("nn.cross_entropy")
def _cross_entropy(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    grad = _per_row(x, grad)
    return [-(grad * y / x), -(grad * log(x))]


@_rule("nn.cross_entropy_with_logits")
def _cross_entropy_with_logits(orig: Call, grad: Expr) -> list[Any]:
    x, y = orig.args
    grad = _per_row(x, grad)
    return [-(grad * y), -(grad * x)]
