"""FoldTranspose: transposes around matmuls disappear where a matmul can be written without them.

    permute_dims(permute_dims(a))                  →  a
    permute_dims(matmul(a, b))                     →  matmul(permute_dims(b), permute_dims(a))

The second only when the product has no other reader. Only the last two axes count as a transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import users
from pullback.relax.expr import Binding, Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import OpCall
from pullback.relax.struct_info import as_tensor
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings


@dataclass(frozen=True)
class FoldTranspose(FunctionPass):
    """Fold transposes into matmuls.

    Checks: a product is turned round where the transpose is its one reader, and both factors have one rank, of at least
    2. No product is computed twice.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return fold_transposes(function)


def fold_transposes(function: Function) -> Function:
    if not any(is_transpose(b.value) for b in function.bindings):
        return function
    return remove_dead_bindings(_Fold(function).function(function))


def is_transpose(expr: object) -> TypeGuard[OpCall]:
    """Whether the expression exchanges the last two axes of a tensor and keeps the others."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.short != "permute_dims":
        return False
    ndim = as_tensor(expr.args[0].struct_info).ndim
    axes = expr.attrs["axes"]
    axes = tuple(a % ndim for a in axes) if axes is not None else tuple(reversed(range(ndim)))
    return ndim >= 2 and axes == (*range(ndim - 2), ndim - 1, ndim - 2)


def transpose(expr: Expr) -> Expr:
    ndim = as_tensor(expr.struct_info).ndim
    axes = None if ndim == 2 else (*range(ndim - 2), ndim - 1, ndim - 2)
    return Op.get("permute_dims")(expr, axes)


class _Fold(ExprMutator):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.readers = users(function)
        self.values: dict[Expr, Call] = {}  # new variable -> its value
        self.origin: dict[Expr, Var] = {}  # new variable -> the variable of the source function

    def rewrite_call(self, call: Call) -> Expr:
        if not is_transpose(call):
            return call
        inner = self.values.get(call.args[0])
        if is_transpose(inner):
            return inner.args[0]
        if isinstance(inner, Call) and isinstance(inner.op, Op) and inner.op.short == "matmul":
            a, b = inner.args
            only_reader = len(self.readers.get(self.origin[call.args[0]], ())) == 1
            if only_reader and as_tensor(a.struct_info).ndim == as_tensor(b.struct_info).ndim >= 2:
                return Op.get("matmul")(self.transposed(b), self.transposed(a), **inner.attrs)
        return call

    def transposed(self, expr: Expr) -> Expr:
        inner = self.values.get(expr)
        return inner.args[0] if is_transpose(inner) else self.builder.emit(transpose(expr))

    def rewrite_binding(self, binding: Binding) -> None:
        super().rewrite_binding(binding)
        new = self.env[binding.var]
        if isinstance(new, Var):
            self.origin[new] = binding.var
            value = self.builder.lookup(new)
            if isinstance(value, Call):
                self.values[new] = value
