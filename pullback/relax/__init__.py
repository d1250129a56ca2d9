"""The graph IR: functions over tensors in A-normal form.

The names of higher rooms that ports expect here (``relax.build``, ``relax.VirtualMachine``, ``relax.training``, …) are
found on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from pullback.ir.module import GlobalVar
from pullback.ir.op import Op
from pullback.relax import analysis, op_arguments
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from pullback.relax.mutator import ExprMutator, ExprVisitor, copy_with_new_vars
from pullback.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

Op.build = op_arguments.build

_ABOVE = {
    "op": ("pullback.relax.op", None),
    "transform": ("pullback.relax.transform", None),
    "training": ("pullback.relax.training", None),
    "testing": ("pullback.relax.testing", None),
    "frontend": ("pullback.relax.frontend", None),
    "optimizer": ("pullback.relax.training.relax_optimizer", None),
    "vm": ("pullback.driver.vm_face", None),
    "build": ("pullback.driver", "compile"),
    "VirtualMachine": ("pullback.runtime.vm", "VirtualMachine"),
}


def __getattr__(name: str) -> Any:
    if name not in _ABOVE:
        raise AttributeError(f"module 'pullback.relax' has no attribute {name!r}")
    path, attribute = _ABOVE[name]
    module = importlib.import_module(path)
    return getattr(module, attribute) if attribute else module


__all__ = [
    "Binding", "BindingBlock", "BlockBuilder", "Call", "Constant", "DataflowBlock", "DataflowVar", "Expr",
    "ExprMutator", "ExprVisitor", "FuncStructInfo", "Function", "GlobalVar", "If", "MatchCast", "ObjectStructInfo",
    "PrimStructInfo", "PrimValue", "SeqExpr", "ShapeExpr", "ShapeStructInfo", "StructInfo", "TensorStructInfo",
    "Tuple", "TupleGetItem", "TupleStructInfo", "Var", "VarBinding", "analysis", "const", "copy_with_new_vars",
]  # fmt: skip
