"""Kernels as operators: what a gradient calls that no operator says, the adjoint of another one's loops.

    R.call_tir(cls.roi_adjoint, (x, dy), out_sinfo=…)   →   relax.loops.roi_adjoint_3f2a9c01(x, dy)

Such an op of the graph IR is defined when it is first met, and named by what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.digest import structural_digest
from pullback.ir.module import GlobalVar
from pullback.ir.op import Op, define
from pullback.relax.expr import Call, Expr, Function, Tuple
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import StructInfo, as_tensor, fields_of
from pullback.runtime.dtype import numpy_dtype
from pullback.tir import PrimFunc, interpreter
from pullback.tir.expr import Buffer
from pullback.tir.stmt import Stmt
from pullback.tir.visitor import Substitute


def with_operators(function: Function, kernels: Mapping[str, Any]) -> Function:
    """The function with calls of kernels as calls of operators."""
    if not any(is_call_tir(binding.value) for binding in function.bindings):
        return function
    return _Operators(kernels).function(function)


class _Operators(ExprMutator):
    def __init__(self, kernels: Mapping[str, Any]) -> None:
        super().__init__()
        self.kernels = kernels

    def rewrite_call(self, call: Call) -> Expr:
        if not is_call_tir(call) or len(call.args) > 2:  # the third one: sizes that are not known
            return call
        name, arguments = call.args[0], call.args[1]
        assert isinstance(name, GlobalVar) and isinstance(arguments, Tuple)
        op = operator_of(self.kernels[name.name], len(arguments.fields), call.struct_info)
        return op(*arguments.fields)


def operator_of(function: PrimFunc, inputs: int, info: StructInfo) -> Op:
    """The op that a kernel computes, of its first so many buffers; ``info``: the type of the result."""
    digest = structural_digest((function, info)).hex()[:16]
    short = f"loops.{function.name}_{digest}"
    found = Op.find(f"relax.{short}")
    if found is not None:
        return found

    def kernel(taken: Sequence[Buffer], given: Sequence[Buffer]) -> Stmt:
        return Substitute(buffers=dict(zip(function.buffers, (*taken, *given), strict=True))).stmt(function.body)

    def meaning(*arrays: np.ndarray) -> Any:
        types = map(as_tensor, fields_of(info))
        results = [np.zeros(t.static_shape, numpy_dtype(t.dtype)) for t in types]
        interpreter.run(function, [*arrays, *results])
        return results[0] if len(results) == 1 else tuple(results)

    return define(
        short,
        ", ".join(f"x{k}" for k in range(inputs)),
        infer=lambda *infos: info,
        kernel=kernel,
        numpy=meaning,
        singular=True,
        family="own",
        doc=f"The loops of {function.name}.",
    )
