"""UnroundedProducts: a product of half precision is not rounded where what follows would have it in float32.

    y = R.matmul(a, b)                          # bfloat16
    dw = R.astype(y, "float32")       →         dw = R.matmul(a, b, out_dtype="float32")

    y = R.matmul(a, b)                          y = R.matmul(a, b, out_dtype="float32")
    z = R.add(y, R.astype(c, "bfloat16"))  →    z = R.astype(R.add(y, c), "bfloat16")      c, float32, is broadcast

Products are summed in float32 in any case. So the gradients of weights keep all digits of their sums, and what a bias
is added to is rounded once. It comes after ``Gradient``: the adjoint of a product with another ``out_dtype`` would
multiply in that type. ``SetupTrainer`` applies it to the adjoint of what it trains in mixed precision.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars, users
from pullback.relax.expr import Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import TensorStructInfo, same_shape
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.tir.expr import is_half

_WIDE = "float32"


@dataclass(frozen=True)
class UnroundedProducts(FunctionPass):
    """Compute products in float32 that were rounded to half precision for one use, in float32 or a sum with a float32
    value that was cast and is broadcast.

    Checks: the product has one use and is no result. It comes after Gradient.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        results = set(used_vars(function.body.body))
        uses = {v: bindings for v, bindings in users(function).items() if v not in results}
        once = {v for v, (first, *more) in uses.items() if not more and isinstance(first.value, Call)}
        return remove_dead_bindings(_Unround(once).function(function))


class _Unround(ExprMutator):
    """``once``: the variables of the function that one call uses, and nothing else."""

    def __init__(self, once: Set[Var]) -> None:
        super().__init__()
        self.once: set[Expr] = set(once)

    def bind(self, var: Var, value: Expr) -> None:
        super().bind(var, value)
        if var in self.once and not isinstance(value, Var):
            self.once.add(self.env[var])

    def rewrite_call(self, call: Call) -> Expr:
        if is_op(call, "astype") and call.dtype == _WIDE:
            product = self.wide(call.args[0])
            return call if product is None else product
        if not is_op(call, "add"):
            return call
        for a, b in (call.args, call.args[::-1]):
            bias = self.cast_from(b)
            product = self.wide(a) if bias is not None and not same_shape(a.shape, b.shape) else None
            if product is not None:
                total = self.builder.emit(Op.get("add")(self.builder.emit(product), bias))
                return Op.get("astype")(total, call.dtype)
        return call

    def wide(self, value: Any) -> Expr | None:
        """The product that a variable is, if it is one of half precision and used once, in float32."""
        product = self.builder.lookup(value) if isinstance(value, Var) and value in self.once else None
        if not isinstance(product, Call) or not isinstance(product.op, Op) or "out_dtype" not in product.attrs:
            return None
        if product.op.precision != "low" or not is_half(value.struct_info.dtype):
            return None
        attrs = {**product.attrs, "out_dtype": _WIDE}
        return Call(product.op, product.args, attrs, product.sinfo_args, span=product.span)

    def cast_from(self, value: Any) -> Expr | None:
        """The float32 value that a variable is cast from."""
        cast = self.builder.lookup(value) if isinstance(value, Var) else None
        source = cast.args[0] if is_op(cast, "astype") else None
        info = source.struct_info if isinstance(source, Expr) else None
        return source if isinstance(info, TensorStructInfo) and info.dtype == _WIDE else None
