"""FoldConstant: what depends on constants only is computed now, over NumPy.

    let %x = add(1f, 2f);                                  multiply(%y, 3f)
    multiply(%y, %x)                              →

    %0 = (%a, %b); %0.1                           →        %b
    shape_of(%a), where %a: Tensor[(2, 3), …]     →        meta constant [2, 3]
    if (True) {%a} else {%b}                      →        %a

Ops without arguments, such as ``ones``, stay: folded they only take memory. So do those whose result is much larger
than their arguments, ops with a state, dropout, and what fails: a failed check belongs to run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, const
from pullback.relay.infer import infer_expr
from pullback.relay.op.meaning import result_type, value
from pullback.relay.op.registry import Op
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_call, is_primitive, is_value, tensor_type
from pullback.relay.transform.purity import Effect, Purity
from pullback.relay.ty import TensorType, TupleType, Type

LARGEST = 1 << 22  # elements that a result may have beyond those of the arguments


@dataclass(frozen=True)
class FoldConstant(FunctionPass):
    """Compute now what depends on constants only. ``fold_qnn``: calls of ``qnn`` ops too.

    Checks: all arguments are constants, and the op has a value: no state, no dropout, no failing check. The result has
    at most 4 million elements more than its arguments. Fused functions are not looked into.
    """

    fold_qnn: bool = False

    typed = True
    opt_level = 2

    def function(self, function: Function, module: IRModule) -> Function:
        return _Fold(self.fold_qnn, Purity(module)).visit(function)


def FoldConstantExpr(expr: Expr, mod: IRModule | None = None, fold_qnn: bool = False) -> Expr:  # noqa: N802
    """The expression with what depends on constants only computed; ``mod`` has the functions and types it names."""
    folded = _Fold(fold_qnn, Purity(mod)).visit(infer_expr(expr, mod))
    return infer_expr(folded, mod)


class _Fold(CallRewriter):
    def __init__(self, fold_qnn: bool, purity: Purity) -> None:
        super().__init__()
        self.fold_qnn, self.purity = fold_qnn, purity

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)  # what was fused stays whole

    def visit_let(self, let: Let) -> Expr:
        bound = self.visit(let.value)
        if isinstance(bound, Constant):
            self.memo_map[let.variable] = bound
            return self.visit(let.body)
        return super().visit_let(let)

    def visit_if(self, if_: If) -> Expr:
        cond = self.visit(if_.cond)
        if isinstance(cond, Constant):
            return self.visit(if_.true_branch if bool(cond.data.numpy()) else if_.false_branch)
        return super().visit_if(if_)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        new = super().visit_tuple_getitem(item)
        if not isinstance(new, TupleGetItem) or not isinstance(new.tuple_value, Tuple):
            return new
        fields = new.tuple_value.fields
        others = (field for k, field in enumerate(fields) if k != new.index)
        if all(self.purity.of(field) is not Effect.WRITES for field in others):
            return fields[new.index]
        return new

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        if not isinstance(new.op, Op) or not new.args:
            return None
        if is_call(new, "shape_of", "vm.shape_of", "ndarray_size"):
            return _of_shape(old, new)
        if not is_value(new.op) or not _has_value(new.op) or (new.op.name.startswith("qnn.") and not self.fold_qnn):
            return None
        if not all(_is_constant(arg) for arg in new.args):
            return None
        types = tuple(_type(arg) for arg in new.args)
        room = LARGEST + sum(_elements(t) for t in types)
        try:
            if _elements(result_type(new.op, types, new.attrs)) > room:
                return None
            with np.errstate(all="ignore"):
                found = value(new.op, [_value(arg) for arg in new.args], types, new.attrs)
        except UserError:
            return None
        return _as_constant(found, new)


def _of_shape(old: Call, new: Call) -> Expr | None:
    """The shape, or the number of elements, of a tensor whose sizes are known."""
    known = tensor_type(old.args[0])
    if known is None or not known.is_concrete:
        return None
    sizes: Any = known.concrete_shape
    found = int(np.prod(sizes, dtype=np.int64)) if is_call(new, "ndarray_size") else list(sizes)
    return Constant(const(np.asarray(found), new.attrs.get("dtype") or "int32").data, span=new.span)


def _has_value(op: Op) -> bool:
    return op.lower is not None or op.static is not None or op.numpy is not None


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Constant) or (isinstance(expr, Tuple) and all(_is_constant(f) for f in expr.fields))


def _value(expr: Expr) -> Any:
    if isinstance(expr, Constant):
        return expr.data.numpy()
    assert isinstance(expr, Tuple)
    return tuple(_value(f) for f in expr.fields)


def _type(expr: Expr) -> Type:
    if isinstance(expr, Constant):
        return TensorType(expr.data.shape, expr.data.dtype)
    assert isinstance(expr, Tuple)
    return TupleType(tuple(_type(f) for f in expr.fields))


def _elements(type_: Type) -> int:
    """How many there are; 0 of sizes that are not known."""
    if isinstance(type_, TensorType):
        return int(np.prod(type_.shape, dtype=np.int64)) if type_.is_concrete else 0
    return sum(_elements(f) for f in type_.fields) if isinstance(type_, TupleType) else 0


def _as_constant(found: Any, call: Call) -> Expr:
    if isinstance(found, (tuple, list)):
        return Tuple(tuple(_as_constant(f, call) for f in found), span=call.span)
    return Constant(found, span=call.span)
