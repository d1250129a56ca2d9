"""What both IRs share: nodes, spans, errors, operators, modules, structural equality."""

from pullback.ir import transform
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
    Span,
    assert_structural_equal,
    span_scope,
    structural_digest,
    structural_equal,
    structural_hash,
)
from pullback.ir.op import Op
from pullback.ir.saved import load_json, save_json

__all__ = [
    "ArgumentError", "CallError", "CheckpointError", "CompileError", "DTypeError", "DifferentiationError", "GlobalVar",
    "IRModule", "InternalError", "NameNotFound", "NoAttribute", "Node", "Op", "PullbackError", "ScriptError",
    "ShapeError", "Span", "TargetError", "UserError", "assert_structural_equal", "load_json", "save_json", "span_scope",
    "structural_digest", "structural_equal", "structural_hash", "transform",
]  # fmt: skip
