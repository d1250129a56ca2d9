"""From graph ops to tensor expressions: a sequence of bindings as one DAG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

from pullback import te
from pullback.ir.errors import InternalError
from pullback.ir.node import remembered
from pullback.ir.op import Op
from pullback.relax.expr import Binding, Call, Constant, Expr, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.op_calls import OpCall, is_op
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, as_int, same_info, same_shape
from pullback.te.graph import body_expr, is_index_map, reads_once, stages
from pullback.te.random import draws
from pullback.te.tensor import TensorLoad
from pullback.tir import const
from pullback.tir.expr import Call as ScalarCall
from pullback.tir.visitor import walk

_MOST_NODES = 12  # of the scalar expression of a cheap op
_CHEAP_CALLS = ("abs", "not", "isnan", "isinf", "isfinite", "fma", "multiply_no_nan", "xdivy")
VIEWS = ("reshape", "flatten", "expand_dims", "squeeze")


def is_view(expr: Any) -> TypeGuard[OpCall]:
    """Whether the value is its argument's memory in another shape."""
    return any(is_op(expr, name) for name in VIEWS)


def is_alias(expr: Any) -> TypeGuard[OpCall]:
    """Whether the value is its argument by another name: a view in the same shape."""
    return is_view(expr) and same_info(expr.args[0].struct_info, expr.struct_info)


def has_te(expr: Any) -> TypeGuard[OpCall]:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.te is not None


class Composer:
    """Builds the te DAG of bindings. Variables bound outside become placeholders, in ``inputs``.

    ``known`` may be shared by composers of many overlapping sets of bindings: what they have in common, tensors of the
    same calls on the same tensors, is built once.
    """

    def __init__(self, known: dict[Any, Any] | None = None) -> None:
        self.known = {} if known is None else known
        self.values: dict[Expr, Any] = {}
        self.inputs: dict[Expr, te.Tensor] = {}

    def add(self, binding: Binding) -> None:
        self.values[binding.var] = self.value(binding.value)

    def value(self, expr: Any, reader: Call | None = None) -> Any:
        """A tensor, or a tuple of tensors. Every ``reader`` of a number has its own: none is a value to be kept."""
        if isinstance(expr, Var) and expr in self.values:
            return self.values[expr]
        if isinstance(expr, TupleGetItem) and expr.tuple_value in self.values:
            return self.values[expr.tuple_value][expr.index]
        if isinstance(expr, Tuple):
            return tuple(self.value(f, reader) for f in expr.fields)
        if isinstance(expr, Constant) and expr.data.size == 1:
            return self.once((expr, reader), lambda: _scalar(expr))
        if has_te(expr):
            args = tuple(self.value(a, expr) for a in expr.args)
            return self.once((expr, args), lambda: _called(expr, args))
        if isinstance(expr, (Var, Constant, TupleGetItem)):
            return self.placeholder(expr)
        raise InternalError(f"no tensor expression for {type(expr).__name__}")

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, or has given for an equal key."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def placeholder(self, expr: Expr) -> Any:
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Var):
            return self.placeholder(expr.tuple_value)[expr.index]
        info = expr.struct_info
        if isinstance(info, TupleStructInfo):
            raise InternalError("a tuple cannot enter a group: its items do")
        if not isinstance(info, TensorStructInfo) or not info.is_static:
            raise InternalError(f"a group's input must have a static shape, not {info}")
        name = getattr(expr, "name", "constant")
        self.inputs[expr] = self.once(expr, lambda: te.placeholder(info.sizes, info.dtype, name))
        return self.inputs[expr]


def _scalar(constant: Constant) -> te.Tensor:
    number = const(constant.data.reshape(()).item(), constant.dtype)
    return te.compute(constant.shape, lambda *_: number, "constant")


def _called(call: Any, args: Sequence[Any]) -> Any:
    result = call.op.te(*args, **call.attrs)
    return tuple(result) if isinstance(result, (list, tuple)) else result


def compose(
    bindings: Iterable[Binding], outputs: Sequence[Var], known: dict[Any, Any] | None = None
) -> tuple[Composer, list[te.Tensor]]:
    """The te DAG of ``bindings`` and the tensors of the variables ``outputs`` (tuples flattened)."""
    composer = Composer(known)
    for binding in bindings:
        composer.add(binding)
    tensors: list[te.Tensor] = []
    for var in outputs:
        value = composer.values[var]
        tensors.extend(value if isinstance(value, tuple) else (value,))
    return composer, tensors


@remembered
def compose_call(call: Call) -> list[te.Tensor]:
    """The tensors of a single call's results, which the questions below are about."""
    var = Var("value", call.struct_info)
    return compose([VarBinding(var, call)], [var])[1]


def looks_at_values(call: OpCall) -> bool:
    """Whether the op checks its arguments' values while it runs: a ``take`` does, unless it makes all indices valid."""
    if call.op.check is None:
        return False
    return call.op.check(*stand_ins(call), **call.attrs) is not None


def stand_ins(call: Call) -> list[te.Tensor]:
    """A placeholder for each of the tensors that an op with a check is called on."""
    return [te.placeholder(i.sizes, i.dtype) for a in call.args if isinstance(i := a.struct_info, TensorStructInfo)]


def is_free(value: Any) -> bool:
    """Whether a call only moves or repeats elements, so that any reader may do it itself."""
    if not has_te(value) or isinstance(value.struct_info, TupleStructInfo) or looks_at_values(value):
        return False
    (tensor,) = compose_call(value)
    return not tensor.is_placeholder and is_index_map(tensor)


def reduces(value: Any) -> bool:
    """Whether a call reduces one tensor, or the products of several of one shape, to fewer elements."""
    if not value.args or not isinstance(value.struct_info, TensorStructInfo):
        return False
    (tensor,) = compose_call(value)
    reductions = [s for s in stages([tensor]) if s.is_reduction]
    smaller = math.prod(tensor.shape) < math.prod(value.args[0].struct_info.shape)
    return smaller and bool(reductions) and (len(value.args) == 1 or all(map(reads_once, reductions)))


def op_stages(call: Any) -> list[te.Tensor]:
    """The te stages of a call of one op with one result; empty for anything else."""
    if not has_te(call) or is_view(call) or looks_at_values(call):
        return []
    return stages(compose_call(call)) if isinstance(call.struct_info, TensorStructInfo) else []


def is_elementwise(call: Any) -> bool:
    """Whether each element of the result is computed by itself, without sums or random bits; a view's is."""
    return is_view(call) or (bool(found := op_stages(call)) and not any(s.is_reduction or draws(s) for s in found))


def is_cheap(call: Any) -> bool:
    """Whether an element of the result is a few additions, comparisons and the like."""
    if is_view(call) or not is_elementwise(call):
        return False
    nodes = [n for s in op_stages(call) for n in walk(body_expr(s))]
    return len(nodes) <= _MOST_NODES and all(n.name in _CHEAP_CALLS for n in nodes if isinstance(n, ScalarCall))


def moves_elements(call: Any) -> bool:
    """Whether the result holds elements of the argument, in another arrangement."""
    return is_view(call) or (len(found := op_stages(call)) == 1 and is_index_map(found[0]))


def contracts(call: Any) -> bool:
    """Whether the op reads its arguments many times over: a sum over products of several tensors' elements, each for
    several results, or no te op."""
    if is_view(call):
        return False
    found = op_stages(call)
    return not found or any(map(_multiplies, found))


def products(call: Any) -> int:
    """How many products of several tensors' elements the op sums up in all; 0 for what is no te op."""
    return sum(_terms(stage) for stage in op_stages(call) if _multiplies(stage))


def _multiplies(stage: te.Tensor) -> bool:
    """Whether the stage is a sum over products of several of the op's arguments."""
    if not stage.is_reduction:
        return False
    loads = {n.tensor for n in walk(body_expr(stage)) if isinstance(n, TensorLoad)}
    return sum(t.is_placeholder for t in loads) > 1 and not reads_once(stage)


def _terms(stage: te.Tensor) -> int:
    body = stage.body
    assert isinstance(body, te.Reduce)
    return math.prod([as_int(size) for size in (*stage.shape, *(axis.extent for axis in body.axes))])


def broadcasts(value: Any) -> Var | None:
    """The large operand of a sum, a difference, a product or a multiply-add, where any other is a smaller tensor that
    is broadcast (no single number): to compute it from that operand costs no more than to read it."""
    if not any(is_op(value, name) for name in ("add", "subtract", "multiply", "ewise_fma")):
        return None
    shapes = [a.struct_info.shape for a in value.args]
    if None in shapes or any(all(isinstance(s, int) and s == 1 for s in shape) for shape in shapes):
        return None
    large = [a for a, s in zip(value.args, shapes, strict=True) if same_shape(s, value.struct_info.shape)]
    return large[0] if len(large) == 1 and isinstance(large[0], Var) else None
