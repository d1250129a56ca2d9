"""What both IRs share: nodes, spans, errors, operators, modules, structural equality."""

import importlib
from typing import Any

from pullback.ir import transform
from pullback.ir.deprecation import PullbackDeprecationWarning
from pullback.ir.digest import structural_digest, structural_hash
from pullback.ir.errors import (
    ArgumentError,
    CallError,
    CheckpointError,
    CompileError,
    DifferentiationError,
    DTypeError,
    InternalError,
    NameNotFound,
    NoAttribute,
    PullbackError,
    ScriptError,
    ShapeError,
    TargetError,
    UserError,
)
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import (
    Node,
    SourceName,
    Span,
    assert_structural_equal,
    span_scope,
    structural_equal,
)
from pullback.ir.op import Op
from pullback.ir.saved import load_json, save_json

__all__ = [
    "ArgumentError", "CallError", "CheckpointError", "CompileError", "DTypeError", "DifferentiationError", "GlobalVar",
    "IRModule", "InternalError", "NameNotFound", "NoAttribute", "Node", "Op", "PullbackDeprecationWarning",
    "PullbackError", "ScriptError", "ShapeError", "SourceName", "Span", "TargetError", "UserError",
    "assert_structural_equal", "load_json", "save_json", "span_scope", "structural_digest", "structural_equal",
    "structural_hash", "transform",
]  # fmt: skip

_OF_RELAY = dict.fromkeys(
    ("FuncType", "GlobalTypeVar", "IncompleteType", "TensorType", "TupleType", "Type", "TypeCall", "TypeConstraint",
     "TypeKind", "TypeRelation", "TypeVar"),
    "pullback.relay.ty",
) | dict.fromkeys(("load_json", "save_json"), "pullback.relay.text")  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names that the reference has here, of a room above: found on first use."""
    if name not in _OF_RELAY:
        raise AttributeError(f"module 'pullback.ir' has no attribute {name!r}")
    return getattr(importlib.import_module(_OF_RELAY[name]), name)
