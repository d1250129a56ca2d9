"""What ops of one family have in common: type rules, broadcasting, tensor expressions from scalar expressions."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.op import Op, Signature, define
from pullback.relax.expr import Constant, Tuple, TupleGetItem, Var, const
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Domain
from pullback.relax.op_calls import is_op_call
from pullback.relax.struct_info import Dim, TensorStructInfo, as_tensor, format_info, format_shape, same_shape
from pullback.runtime.dtype import BFLOAT16
from pullback.tir.expr import DTYPES, FLOATS, INTEGERS, holds, is_half, out_of_range
from pullback.tir.polynomial import same

MOST_RESULTS = 1 << 16  # of one op
NUMBERS = FLOATS + INTEGERS
DTYPE_CLASSES = {
    "float": FLOATS,
    "integer": INTEGERS,
    "number": NUMBERS,
    "bool": ("bool",),
    "integer or bool": (*INTEGERS, "bool"),
    "any": DTYPES,
}


def specialize(op: Op, kind: type[Op]) -> Op:
    """Register ``op`` anew as a ``kind``, a subclass of Op whose ``__call__`` takes more than the signature says."""
    special = kind(**{f.name: getattr(op, f.name) for f in fields(op)})
    Op.registry[op.name] = special
    return special


def known_shape(op: str, info: Any, argument: str = "its argument") -> tuple[Dim, ...]:
    """The shape of a tensor type, or a ShapeError when it is not known."""
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        hint = 'declare the shape, such as R.Tensor(("n", 10), "float32"), or state it with R.match_cast'
        raise ShapeError(f"{op}: {argument} must be a tensor of known shape, got {format_info(info)}", hint=hint)
    return info.shape


def expect_dtype(op: str, info: TensorStructInfo, kinds: str, argument: str = "its argument") -> None:
    """Raise a DTypeError unless the dtype belongs to the class, a key of DTYPE_CLASSES."""
    if info.dtype not in DTYPE_CLASSES[kinds]:
        names = {"float": "a floating-point", "number": "a numeric", "bool": "a bool"}
        wanted = names.get(kinds, f"an {kinds}")
        raise DTypeError(
            f"{op}: {argument} must have {wanted} dtype, got {info.dtype}",
            hint="cast it: x.float(), or R.astype(x, dtype)",
        )


def expect_same_dtype(op: str, *infos: TensorStructInfo) -> str:
    """The common dtype; nothing is promoted."""
    dtypes = [i.dtype for i in infos]
    if len(set(dtypes)) > 1:
        raise DTypeError(
            f"{op}: the operands must have the same dtype, got {' and '.join(dtypes)}",
            hint="nothing is promoted implicitly: cast one side, with x.float() or R.astype(x, dtype)",
        )
    return dtypes[0]


def expect_int(op: str, name: str, value: Any) -> None:
    """Raise a UserError unless an attribute is an int of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise UserError(f"{op}: {name} must be an int, got {value!r}")


def expect_holds(op: str, name: str, value: Any, dtype: str) -> None:
    """Raise a DTypeError when an attribute is a number that would be an infinity, or 0, in a float type."""
    if isinstance(value, (int, float)) and dtype in FLOATS and not holds(dtype, value):
        error = out_of_range(value, dtype)
        raise DTypeError(f"{op}: {name}={error.message.removeprefix('the number ')}", hint=error.hint)


def expect_member(op: str, name: str, value: Any, known: Sequence[Any]) -> None:
    """Raise a UserError unless an attribute is one of those known."""
    if value not in known:
        raise UserError(f"{op}: {name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def expect_results(op: str, count: int) -> None:
    """Raise a ShapeError when an op would have too many results: each is a variable, and a tensor."""
    if count > MOST_RESULTS:
        hint = "strided_slice and take give single parts; reshape makes of one axis two"
        raise ShapeError(f"{op}: {count} results are too many, at most {MOST_RESULTS} can be had", hint=hint)


def normalize_axis(op: str, axis: int, ndim: int) -> int:
    """``axis`` counted from the front."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise ShapeError(f"{op}: an axis must be an int, got {axis!r}")
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{op}: axis {axis!r} is outside a tensor of rank {ndim}")
    return axis % ndim


def normalize_axes(op: str, axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Sorted distinct axes counted from the front; None means all."""
    if axes is None:
        return tuple(range(ndim))
    given = [normalize_axis(op, a, ndim) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))]
    if len(set(given)) != len(given):
        raise ShapeError(f"{op}: the axes {axes!r} name one axis twice")
    return tuple(sorted(given))


def broadcast_shapes(op: str, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """NumPy's rule: aligned at the right, sizes equal or one of them 1."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
    result: list[Dim] = []
    for k in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [s[-k] for s in shapes if len(s) >= k]
        size: Dim = 1
        for other in sizes:
            if isinstance(other, int) and other == 1:
                continue
            if isinstance(size, int) and size == 1:
                size = other
            elif not same(size, other):
                listed = " and ".join(format_shape(s) for s in shapes)
                if isinstance(size, int) and isinstance(other, int):
                    hint = "sizes are compared from the last axis on: they must be equal, or one of them 1"
                else:
                    hint = "symbolic sizes may differ when it runs: give equal sizes one name"
                raise ShapeError(f"{op}: the shapes {listed} do not broadcast", hint=hint)
        result.append(size)
    return tuple(reversed(result))


def broadcast_index(tensor: te.Tensor, indices: Sequence[tir.PrimExpr]) -> tir.PrimExpr:
    """``tensor`` read at the indices of a shape that it broadcasts to."""
    own = indices[len(indices) - tensor.ndim :]
    return tensor[tuple(tir.as_expr(0) if s == 1 else i for s, i in zip(tensor.shape, own, strict=True))]


def collapse_like(gradient: Any, operand: Any) -> Any:
    """The adjoint of broadcasting: sum ``gradient`` over the axes along which ``operand`` was repeated."""
    if same_shape(gradient.shape, operand.shape):
        return gradient
    return ops.collapse_sum_to(gradient, operand.shape)


def collapse_to_operands(gradients: Sequence[Any], *operands: Any) -> tuple[Any, ...]:
    """:func:`collapse_like` of every adjoint that there is."""
    pairs = zip(gradients, operands, strict=True)
    return tuple(None if g is None else collapse_like(g, x) for g, x in pairs)


def masked(condition: Any, value: Any) -> Any:
    """``value`` where the condition holds, else 0: unlike a product, it keeps what is masked out from being NaN."""
    return ops.where(condition, value, const(0.0, value.dtype))


def elementwise_te(scalar: Callable[..., Any], name: str) -> Callable[..., te.Tensor]:
    """The tensor expression of a scalar function over broadcast operands."""

    def build(*tensors: te.Tensor, **attrs: Any) -> te.Tensor:
        shape = broadcast_shapes(name, *(t.shape for t in tensors))
        return te.compute(shape, lambda *i: scalar(*(broadcast_index(t, i) for t in tensors), **attrs), name)

    return build


def elementwise_infer(name: str, dtypes: str, result: str | None) -> Callable[..., TensorStructInfo]:
    """Broadcast shape; equal operand dtypes of a class; ``result`` dtype, or the operands'."""

    def infer(*infos: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        shapes = [known_shape(name, i) for i in infos]
        for info in infos:
            expect_dtype(name, info, dtypes)
        dtype, shape = expect_same_dtype(name, *infos), broadcast_shapes(name, *shapes)
        known = next((i for i in infos if i.shape == shape), None)
        return TensorStructInfo(shape, result or dtype) if known is None or result not in (None, dtype) else known

    return infer


def wide(dtype: str) -> str:
    """The type in which sums of ``dtype`` are accumulated."""
    return "float32" if is_half(dtype) else dtype


def widened(x: Any) -> Any:
    """A tensor in the type in which it is computed: half precision in float32, anything else as it is."""
    return x if wide(x.dtype) == x.dtype else ops.astype(x, wide(x.dtype))


def narrowed(x: Any, dtype: str) -> Any:
    """A result in the arguments' type."""
    return x if x.dtype == dtype else ops.astype(x, dtype)


def in_wide(numpy: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """The NumPy meaning with half-precision arguments computed in float32 and the result rounded once."""

    def run(x: np.ndarray, *rest: Any, **attrs: Any) -> np.ndarray:
        if wide(x.dtype.name) == x.dtype.name:
            return np.asarray(numpy(x, *rest, **attrs))
        rest = tuple(r.astype(np.float32) if getattr(r, "dtype", None) == x.dtype else r for r in rest)
        result = np.asarray(numpy(x.astype(np.float32), *rest, **attrs))
        return result.astype(x.dtype) if result.dtype == np.float32 else result

    return run


def scalar_in_wide(scalar: Callable[..., tir.PrimExpr]) -> Callable[..., tir.PrimExpr]:
    """The scalar expression with half-precision arguments computed in float32 and the result rounded once."""

    def run(*xs: tir.PrimExpr, **attrs: Any) -> tir.PrimExpr:
        dtype = xs[0].dtype
        result = scalar(*(tir.cast(wide(dtype), x) for x in xs), **attrs)
        return tir.cast(dtype, result) if result.dtype == wide(dtype) else result

    return run


_EXACT = ("where", "negative", "abs", "sign", "maximum", "minimum", "broadcast_to", "expand_dims")


def _rounds(expr: Any, given: Sequence[Any]) -> int:
    """How many ops of an expression of given ones round their result to its type. A number that half precision does
    not hold exactly counts as many."""
    if any(expr is g for g in given):
        return 0
    if isinstance(expr, Constant):
        return 0 if expr.dtype not in FLOATS or np.all(np.isnan(expr.data) | _is_exact(expr.data)) else 2
    if not is_op_call(expr):
        return 0
    rounds = as_tensor(expr.struct_info).dtype in FLOATS and expr.op.short not in _EXACT
    return rounds + sum(_rounds(a, given) for a in expr.args)


def _is_exact(data: np.ndarray) -> np.ndarray:
    """Which numbers every float type has."""
    with np.errstate(over="ignore", under="ignore"):
        return (data == data.astype(np.float16)) & (data == data.astype(BFLOAT16))


def rule_in_wide(gradient: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """A gradient rule, ``gradient(dy, y, *tensors, **attrs)``, that computes half precision in float32 and rounds each
    adjoint once, where it would round more often as it is: what is between may be out of the range of half precision,
    and so may be its numbers, such as a count of elements."""

    def rule(dy: Any, y: Any, *args: Any, **attrs: Any) -> tuple[Any, ...]:
        given = (dy, y, *args)
        if all(wide(g.dtype) == g.dtype for g in given):
            return gradient(*given, **attrs)
        wider = tuple(map(widened, given))
        found = gradient(*wider, **attrs)
        if all(f is None or _rounds(f, wider) <= 1 for f in found):
            return gradient(*given, **attrs)
        return tuple(None if f is None else narrowed(f, a.dtype) for f, a in zip(found, args, strict=True))

    return rule


def unary(
    name: str,
    *,
    numpy: Callable[..., Any],
    scalar: Callable[..., Any],
    gradient: Callable[..., Any] | None = None,
    dtypes: str = "float",
    result: str | None = None,
    attrs: str = "",
    doc: str = "",
    domain: tuple[float, float] = (-3.0, 3.0),
    kinks: tuple[float, ...] = (),
    **rules: Any,
) -> Op:
    """An elementwise op of one tensor. ``gradient(y, x, dy, **attrs)`` gives dx; None: the derivative is zero
    everywhere (or the result is not real). ``domain``: the interval from which samples are drawn; ``kinks``: values at
    which the derivative jumps."""

    rule = None if gradient is None else rule_in_wide(lambda dy, y, x, **kw: (gradient(y, x, dy, **kw),))
    rules.setdefault("samples", Domain("unary", *domain, dtypes, kinks))
    return define(
        name,
        f"x | {attrs}" if attrs else "x",
        infer=rules.pop("infer", None) or elementwise_infer(name, dtypes, result),
        te=elementwise_te(scalar_in_wide(scalar), name),
        numpy=in_wide(numpy),
        gradient=rule or zero_gradient,
        doc=doc,
        family="unary",
        **rules,
    )


def binary(
    name: str,
    *,
    numpy: Callable[..., Any],
    scalar: Callable[..., Any],
    gradient: Callable[..., Any] | None = None,
    dtypes: str = "number",
    result: str | None = None,
    doc: str = "",
    domain: tuple[float, float] = (-3.0, 3.0),
    **rules: Any,
) -> Op:
    """An elementwise op of two tensors that broadcast. ``gradient(z, x, y, dz)`` gives (dx, dy) in the broadcast
    shape; this family sums them back to the operands' shapes."""

    rule = None
    if gradient is not None:
        rule = rule_in_wide(lambda dz, z, x, y: collapse_to_operands(gradient(z, x, y, dz), x, y))
    rules.setdefault("samples", Domain("binary", *domain, dtypes))
    return define(
        name,
        "x, y",
        infer=rules.pop("infer", None) or elementwise_infer(name, dtypes, result),
        te=elementwise_te(scalar, name),
        numpy=numpy,
        gradient=rule or zero_gradient,
        doc=doc,
        family="binary",
        **rules,
    )


def composite(
    name: str, signature: str, *, decompose: Callable[..., Any], expect: Callable[..., Any] | None = None, **rules: Any
) -> Op:
    """An op that is defined by others: its tensor expression is that of its decomposition, and so are its type, its
    gradient and, with a ``check_message``, its run-time check, where there is no rule of its own. ``te=None``: one of
    those it is made of has no tensor expression.

    ``decompose`` may take the keyword ``training``; an op with an attribute ``training`` decides by it, any other is in
    training. ``expect(*infos, **attrs)`` is called before the type is taken from the decomposition, and raises what is
    to bear the op's name; shapes are known by then.
    """
    form = _with_training(decompose)
    names = Signature.parse(signature).tensors

    def infer(*infos: Any, **attrs: Any) -> Any:
        for label, info in zip(names * max(1, len(infos)), infos, strict=False):
            known_shape(name, info, label)
        if expect is not None:
            expect(*infos, **attrs)
        return form(*(Var(f"x{k}", i) for k, i in enumerate(infos)), **{"training": True} | attrs).struct_info

    def parts(tensors: Sequence[te.Tensor], attrs: dict[str, Any]) -> tuple[Any, dict[Any, Any]]:
        values: dict[Any, Any] = {Var(t.name, TensorStructInfo(t.shape, t.dtype)): t for t in tensors}
        return _te_of(form(*values, **{"training": True} | attrs), values), values

    def check(*tensors: te.Tensor, **attrs: Any) -> te.Tensor | None:
        _, values = parts(tensors, attrs)
        calls = [e for e in values if is_op_call(e)]
        found = [rule(*(values[a] for a in c.args), **c.attrs) for c in calls if (rule := c.op.check) is not None]
        held = [c for c in found if c is not None]
        return te.compute((), lambda: reduce(operator.and_, (c[()] for c in held)), "check") if held else None

    own = {"infer": infer, "te": lambda *tensors, **attrs: parts(tensors, attrs)[0]}
    if "check_message" in rules:
        own["check"] = check
    return define(name, signature, decompose=form, **own | rules)


def _with_training(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that takes the keyword ``training``, if only to pass it over."""
    if "training" in inspect.signature(decompose).parameters:
        return decompose
    return lambda *tensors, training, **attrs: decompose(*tensors, **attrs)


def _te_of(expr: Any, values: dict[Any, Any]) -> Any:
    """The tensor expression of nested calls of ops; ``values`` holds those of expressions that are known."""
    if expr not in values:
        if isinstance(expr, Tuple):
            values[expr] = tuple(_te_of(f, values) for f in expr.fields)
        elif isinstance(expr, TupleGetItem):
            values[expr] = _te_of(expr.tuple_value, values)[expr.index]
        elif isinstance(expr, Constant):
            number = tir.const(expr.data.item(), expr.dtype)
            values[expr] = te.compute((), lambda: number, "constant")
        else:
            values[expr] = expr.op.te(*(_te_of(a, values) for a in expr.args), **expr.attrs)
    return values[expr]


def zero_gradient(dy: Any, y: Any, *args: Any, **attrs: Any) -> tuple[None, ...]:
    """The derivative is zero almost everywhere: no argument gets an adjoint."""
    return (None,) * len(args)
