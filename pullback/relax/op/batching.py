"""Calls of ops over a batch: what ``VMap`` makes of a call whose arguments have one more axis, before their own.

    R.nn.relu(x)                   R.nn.relu(x)                               an op that goes element by element
    R.sum(x, axis=0)               R.sum(x, axis=1)
    R.matmul(x, w)                 R.matmul(x, w)
    R.nn.conv2d(x, w)              R.reshape(R.nn.conv2d(R.reshape(x, …), w), …)
    R.any_other(x, w)              R.batch.op([x, w], op="any_other", mapped=(True, False), attrs=…)

A *natural* form is the same op, or a few others, on arguments with the axis. It says no more than the op does, but the
compiler knows it. Any other call becomes one of the four ops here, whose rules are those of the op that they name, over
the batch: a tensor expression with one more index, loops around loops, a gradient rule of which each call is brought
over the batch in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import InternalError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, tuple_get_item
from pullback.relax.op.family import zero_gradient
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.op_calls import lacks_state, op_of
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_int,
    as_tensor,
    fields_of,
    same_info,
)
from pullback.runtime.dtype import numpy_dtype
from pullback.te.batched import batched
from pullback.tir import Buffer
from pullback.tir import batched as loops
from pullback.tir.stmt import Stmt

Known = dict[Expr, tuple[Any, bool]]  # what an expression of one element is over the batch, and whether it has the axis


# -- expressions


def over_batch(expr: Any, known: Known, size: Dim) -> tuple[Any, bool]:
    """An expression over the batch, and whether it has the axis; ``known`` says so of its variables, and remembers."""
    if expr in known:
        return known[expr]
    if isinstance(expr, Tuple):
        parts = [over_batch(f, known, size) for f in expr.fields]
        if any(has for _, has in parts):
            known[expr] = Tuple(tuple(with_axis(e, has, size) for e, has in parts)), True
        else:
            known[expr] = Tuple(tuple(e for e, _ in parts)), False
    elif isinstance(expr, TupleGetItem):
        value, has = over_batch(expr.tuple_value, known, size)
        known[expr] = tuple_get_item(value, expr.index), has
    elif isinstance(expr, Call):
        known[expr] = _call_over_batch(expr, known, size)
    else:
        known[expr] = expr, False
    return known[expr]


def with_axis(expr: Expr, has: bool, size: Dim) -> Expr:
    """The expression with the axis: repeated along it where it has none."""
    if has:
        return expr
    if isinstance(expr.struct_info, TupleStructInfo):
        return Tuple(tuple(with_axis(part, False, size) for part in expr))
    return ops.broadcast_to(ops.expand_dims(expr, 0), (size, *expr.shape))


def batch_info(info: StructInfo, size: Dim) -> StructInfo:
    """The type of so many values."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(batch_info(f, size) for f in info.fields))
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise InternalError(f"a value of type {info} has no axis for a batch")
    return TensorStructInfo((size, *info.shape), info.dtype)


def _call_over_batch(call: Call, known: Known, size: Dim) -> tuple[Any, bool]:
    pairs = [over_batch(a, known, size) for a in call.args]
    args, flags = [e for e, _ in pairs], [has for _, has in pairs]
    if not any(flags) and lacks_state(call):
        return _drawn(call, args, size), True
    if not any(flags):
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        return (call if same else Call(call.op, tuple(args), call.attrs, call.sinfo_args, call.info)), False
    op = op_of(call)
    if op.short in ("zeros_like", "ones_like"):
        return Op.get(op.short.removesuffix("_like"))(call.shape, call.dtype), False
    found = _natural(call, args, flags, size)
    if found is None:
        if (op.te is None and op.kernel is None) or (op.gradient is None and op.decompose is not None):
            assert op.decompose is not None  # it is nothing but that
            form = op.decompose(*call.args, **{"training": True, **call.attrs})
            result, has = over_batch(form, known, size)
            return with_axis(result, has, size), True
        found = mapped_call(call, args, flags)
    if not same_info(found.struct_info, batch_info(call.struct_info, size)):
        raise InternalError(f"{op.short} over a batch gives {found.struct_info}, one element {call.struct_info}")
    return found, True


def _drawn(call: Call, args: list[Expr], size: Dim) -> Expr:
    """Random numbers of each element, where a call draws without a state: as it would if it were made for each."""
    if args:
        return _again(call, [with_axis(a, False, size) for a in args])
    if "shape" not in call.attrs:
        hint = "draw before, or give it a state that has the axis"
        raise UserError(f"{op_of(call).short} has no form for a batch", span=call.span, hint=hint)
    return _again(call, args, shape=(size, *call.attrs["shape"]))


# -- natural forms

_Rule = Callable[[Call, list[Expr], list[bool], Dim], "Expr | None"]
_RULES: dict[str, _Rule] = {}
_ELEMENTWISE = ("unary", "binary", "where", "astype")  # families


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _natural(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    op = op_of(call)
    if op.family in _ELEMENTWISE or lacks_state(call):  # what draws for each element does so for each of the batch
        return _elementwise(call, args, flags, size)
    rule = _RULES.get(op.short)
    return None if rule is None else rule(call, args, flags, size)


def _again(call: Call, args: Sequence[Expr], **changed: Any) -> Call:
    """The same op on other arguments."""
    return Call(call.op, tuple(args), {**call.attrs, **changed})


def _ndim(expr: Any) -> int:
    return expr.struct_info.ndim


def _aligned(arg: Expr, has: bool, ndim: int) -> Expr:
    """An argument whose own axes are aligned at the right with ``ndim`` axes after that of the batch."""
    if not has or _ndim(arg) == ndim + 1:
        return arg
    return ops.reshape(arg, (arg.shape[0], *[1] * (ndim + 1 - _ndim(arg)), *arg.shape[1:]))


def _elementwise(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr:
    ndim = max(map(_ndim, call.args))
    return _again(call, [_aligned(a, has, ndim) for a, has in zip(args, flags, strict=True)])


_RULES.update(dict.fromkeys(("grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint"), _elementwise))


def _all_with_axis(args: list[Expr], flags: list[bool], size: Dim) -> list[Expr]:
    return [with_axis(a, has, size) for a, has in zip(args, flags, strict=True)]


def _shifted(axis: Any) -> Any:
    """An axis, or several, one further from the front."""
    if isinstance(axis, (tuple, list)):
        return tuple(map(_shifted, axis))
    return axis + 1 if axis >= 0 else axis


@_rule(
    *("sum", "mean", "prod", "max", "min", "variance", "std", "logsumexp", "any", "all", "count_nonzero"),
    *("nn.softmax", "nn.log_softmax", "argmax", "argmin", "cumsum", "cumprod", "argsort", "flip", "split", "norm"),
    *("concat", "stack", "linear_recurrence"),
)
def _along_axis(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    op, axis, ndim = op_of(call), call.attrs["axis"], _ndim(call.args[0])
    if axis is None:
        if op.family != "reduction" or ndim == 0 or op.short == "norm":
            return None
        axis = tuple(range(ndim))
    if ndim == 0 and op.short != "stack":
        return None
    return _again(call, _all_with_axis(args, flags, size), axis=_shifted(axis))


@_rule("nn.layer_norm", "nn.rms_norm")
def _norm(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    return None if any(flags[1:]) else _again(call, args, axes=_shifted(call.attrs["axes"]))


@_rule("tril", "triu")
def _on_matrices(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr:
    return _again(call, args)


@_rule("linear")
def _linear(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    return None if any(flags[1:]) else _again(call, args)


@_rule("matmul")
def _matmul(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    first, second = map(_ndim, call.args)
    if first == 1 and second == 2 and flags == [True, False]:
        return _again(call, args)
    if min(first, second) < 2:
        return None
    ndim = max(first, second)
    return _again(call, [_aligned(a, has, ndim) for a, has in zip(args, flags, strict=True)])


@_rule("reshape", "flatten", "expand_dims", "squeeze")
def _reshape(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr:
    return ops.reshape(args[0], (size, *call.shape))


@_rule("permute_dims")
def _permute(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr:
    axes, ndim = call.attrs["axes"], _ndim(call)
    axes = reversed(range(ndim)) if axes is None else [a % ndim for a in axes]
    return _again(call, args, axes=(0, *(a + 1 for a in axes)))


@_rule("broadcast_to")
def _broadcast(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr:
    return ops.broadcast_to(_aligned(args[0], True, _ndim(call)), (size, *call.shape))


@_rule("collapse_sum_to", "collapse_sum_like")
def _collapse(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    if not flags[0]:
        return None
    ones = [1] * (_ndim(call.args[0]) - _ndim(call))
    result = ops.collapse_sum_to(args[0], (size, *ones, *call.shape))
    return ops.reshape(result, (size, *call.shape)) if ones else result


@_rule("strided_slice")
def _slice(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    axes = call.attrs["axes"]
    return _again(call, args, axes=_shifted(axes)) if isinstance(axes, (tuple, list)) else None


@_rule("take")
def _take(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    axis, ndim = call.attrs["axis"], _ndim(call.args[0])
    if axis is None:
        return None
    if flags == [True, False]:
        return _again(call, args, axis=_shifted(axis))
    return _again(call, args) if flags == [False, True] and axis % ndim == 0 else None


@_rule("nn.embedding")
def _embedding(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    return _again(call, args) if flags == [True, False] else None


def _is_batch_first(call: Call) -> bool:
    layouts = [call.attrs.get(name) for name in ("data_layout", "layout", "out_layout")]
    return all(layout is None or layout.startswith("N") for layout in layouts)


def _folded(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    """The op on arguments whose first axis is that of a batch already: the two become one."""
    if not _is_batch_first(call):
        return None
    folded = [
        ops.reshape(a, (a.shape[0] * a.shape[1], *a.shape[2:])) if has else a
        for a, has in zip(args, flags, strict=True)
    ]
    result = _again(call, folded)
    if isinstance(result.struct_info, TupleStructInfo):
        return Tuple(tuple(ops.reshape(r, (size, *c.shape)) for r, c in zip(result, call, strict=True)))
    return ops.reshape(result, (size, *call.shape))


@_rule(*(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")))
def _convolution(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    return _folded(call, args, flags, size) if flags == [True, False] else None


@_rule(
    *(f"nn.{kind}_pool{n}d" for n in (1, 2, 3) for kind in ("max", "avg", "adaptive_avg")),
    *(f"grad.max_pool{n}d{kind}" for n in (1, 2, 3) for kind in ("_choice", "", "_pick")),
    *(f"grad.{kind}avg_pool{n}d" for n in (1, 2, 3) for kind in ("", "adaptive_")),
)
def _pool(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    return _folded(call, args, flags, size) if all(flags) else None


@_rule("nn.attention", "grad.attention")
def _attention(call: Call, args: list[Expr], flags: list[bool], size: Dim) -> Expr | None:
    has_bias = len(args) in (4, 6)
    return _folded(call, args, flags, size) if all(flags) and not has_bias else None


# -- any other op


def mapped_call(call: Call, args: Sequence[Expr], flags: Sequence[bool]) -> Call:
    """The call of an op over the batch, by its own rules."""
    op = op_of(call)
    name = ("batch.kernel" if op.te is None else "batch.op") + ("" if op.gradient is not None else "_without_rule")
    attrs = {"op": op.short, "mapped": tuple(flags), "attrs": tuple(sorted(call.attrs.items()))}
    return Call(Op.get(name), tuple(args), attrs)


def _inner(attrs: Any) -> dict[str, Any]:
    """The attributes of the op of one element."""
    return {name: _listed(value) for name, value in attrs}


def _listed(value: Any) -> Any:
    return tuple(map(_listed, value)) if isinstance(value, list) else value


def _element(info: Any, has: bool) -> Any:
    return TensorStructInfo(info.shape[1:], info.dtype) if has else info


def _first(values: Sequence[Any], mapped: Sequence[bool]) -> Any:
    """The number of elements of the batch."""
    return next(v.shape[0] for v, has in zip(values, mapped, strict=True) if has)


def _infer(*infos: Any, op: str, mapped: Any, attrs: Any) -> StructInfo:
    given = [_element(i, has) for i, has in zip(infos, mapped, strict=True)]
    return batch_info(Op.get(op).infer(*given, **_inner(attrs)), _first(infos, mapped))


def _te(*tensors: te.Tensor, op: str, mapped: Any, attrs: Any) -> Any:
    return _tensors(Op.get(op).te, tensors, mapped, attrs)


def _tensors(rule: Any, tensors: Sequence[te.Tensor], mapped: Any, attrs: Any) -> Any:
    """What a rule that makes tensor expressions gives, over the batch."""
    pairs = list(zip(tensors, mapped, strict=True))
    given = [te.placeholder(t.shape[1:], t.dtype, t.name) if has else t for t, has in pairs]
    result = rule(*given, **_inner(attrs))
    if result is None:
        return None
    found = {g: t for g, (t, has) in zip(given, pairs, strict=True) if has}
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    whole = batched(outputs, found, _first(tensors, mapped))
    return tuple(whole) if isinstance(result, (tuple, list)) else whole[0]


def _check(*tensors: te.Tensor, op: str, mapped: Any, attrs: Any) -> Any:
    rule = Op.get(op).check
    result = None if rule is None else _tensors(rule, tensors, mapped, attrs)
    return None if result is None else all_of(result)


def _kernel(inputs: Sequence[Any], outputs: Sequence[Any], *, op: str, mapped: Any, attrs: Any) -> Stmt:
    flags = [*mapped, *[True] * len(outputs)]
    whole = [*inputs, *outputs]
    parts = [Buffer(b.name, b.shape[1:], b.dtype) if has else b for b, has in zip(whole, flags, strict=True)]
    rule = Op.get(op).kernel
    assert rule is not None  # that is why the call is batch.kernel
    body = rule(parts[: len(inputs)], parts[len(inputs) :], **_inner(attrs))
    found = {p: b for p, b, has in zip(parts, whole, flags, strict=True) if has}
    return loops.batched(body, found, _first(inputs, mapped))


def _numpy(*arrays: np.ndarray, op: str, mapped: Any, attrs: Any) -> Any:
    inner, attrs = Op.get(op), _inner(attrs)
    assert inner.numpy is not None
    size = _first(arrays, mapped)
    infos = [_element(TensorStructInfo(a.shape, a.dtype.name), has) for a, has in zip(arrays, mapped, strict=True)]
    info = inner.infer(*infos, **attrs)
    fields = [as_tensor(f) for f in fields_of(info)]
    results = [np.empty((size, *map(as_int, f.sizes)), numpy_dtype(f.dtype)) for f in fields]
    for k in range(size):
        value = inner.numpy(*(a[k] if has else a for a, has in zip(arrays, mapped, strict=True)), **attrs)
        for result, part in zip(results, value if isinstance(info, TupleStructInfo) else (value,), strict=True):
            result[k] = part
    return tuple(results) if isinstance(info, TupleStructInfo) else results[0]


def _gradient(dy: Any, y: Any, *args: Any, op: str, mapped: Any, attrs: Any) -> tuple[Any, ...]:
    """The rule of one element, over the batch; what all elements have in common gets the sum of their adjoints."""
    inner, size = Op.get(op), _first([a.struct_info for a in args], mapped)
    if inner.gradient is zero_gradient:
        return (None,) * len(args)
    assert inner.gradient is not None  # the other ops over a batch have no rule
    known: Known = {}

    def one(value: Any, has: bool) -> Any:
        info = value.struct_info
        if isinstance(info, TupleStructInfo):
            info = TupleStructInfo(tuple(_element(f, has) for f in info.fields))
        else:
            info = _element(info, has)
        if isinstance(value, Constant) and not has:
            return value
        known[var := Var(getattr(value, "name", "x"), info)] = value, has
        return var

    given = [one(a, has) for a, has in zip(args, mapped, strict=True)]
    seeds = [one(d, True) for d in dy] if isinstance(dy, (list, tuple)) else one(dy, True)
    found = inner.gradient(seeds, one(y, True), *given, **_inner(attrs))
    results: list[Any] = []
    for contribution, has in zip(found, mapped, strict=True):
        if contribution is None:
            results.append(None)
            continue
        value, is_batch = over_batch(contribution, known, size)
        results.append(with_axis(value, is_batch, size) if has else ops.sum(value, axis=0) if is_batch else value)
    return tuple(results)


_SIGNATURE = "args* | op, mapped, attrs=()"
_COMMON: Mapping[str, Any] = {
    "infer": _infer, "numpy": _numpy, "check": _check, "singular": True, "zeros": "makes", "family": "batch",
}  # fmt: skip
_DOC = "The op of that name over a batch: ``mapped`` says which arguments have an axis for it, before their own."
define("batch.op", _SIGNATURE, te=_te, gradient=_gradient, doc=_DOC, **_COMMON)
define("batch.kernel", _SIGNATURE, kernel=_kernel, gradient=_gradient, doc=_DOC, **_COMMON)
define("batch.op_without_rule", _SIGNATURE, te=_te, doc=_DOC, **_COMMON)
define("batch.kernel_without_rule", _SIGNATURE, kernel=_kernel, doc=_DOC, **_COMMON)
