"""Passes and questions under their names of before ``transform`` and ``analysis``: functions of one expression.

    gradient_func = relay.ir_pass.infer_type(relay.ir_pass.gradient(func))

Each says what took its place. A pass infers types first, and in its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.digest import structural_hash as _structural_hash
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.node import Node
from pullback.ir.node import structural_equal as _structural_equal
from pullback.relay import transform as _transform
from pullback.relay.analysis import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    check_kind,
    detect_feature,
    free_type_vars,
    free_vars,
    get_total_mac_number,
    post_order_visit,
    unmatched_cases,
    well_formed,
)
from pullback.relay.expr import Function
from pullback.relay.infer import infer_expr as _infer_expr
from pullback.relay.transform import first_order_gradient, gradient

__all__ = [
    "all_type_vars", "all_vars", "alpha_equal", "alter_op_layout", "backward_fold_scale_axis", "bound_type_vars",
    "bound_vars", "canonicalize_ops", "check_kind", "combine_parallel_conv2d", "dead_code_elimination",
    "detect_feature", "eliminate_common_subexpr", "first_order_gradient", "fold_constant", "forward_fold_scale_axis",
    "free_type_vars", "free_vars", "fuse_ops", "get_total_mac_number", "gradient", "graph_equal", "infer_type",
    "partial_evaluate", "post_order_visit", "simplify_inference", "structural_hash", "to_a_normal_form",
    "to_graph_normal_form", "unmatched_cases", "well_formed",
]  # fmt: skip


def infer_type(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression with a ``checked_type`` in every part: ``transform.InferType``."""
    return _infer_expr(expr, mod)


def alpha_equal(lhs: Any, rhs: Any) -> bool:
    """Whether two expressions, or types, are the same but for the names of variables: ``ir.structural_equal``."""
    return _structural_equal(lhs, rhs)


def graph_equal(lhs: Any, rhs: Any) -> bool:
    """Whether two expressions are the same but for their variables: ``ir.structural_equal``."""
    return _structural_equal(lhs, rhs)


def structural_hash(value: Any) -> int:
    """The same number for equal expressions or types: ``ir.structural_hash``."""
    if not isinstance(value, Node):
        hint = "it takes relay.Expr and relay.Type"
        raise ArgumentError(f"structural_hash: {type(value).__name__} is no expression and no type", hint=hint)
    return _structural_hash(value)


def _applied(name: str, expr: Any, mod: IRModule | None = None, **options: Any) -> Any:
    """What a pass makes of a function, or of an expression: in a module of its own, with what ``mod`` has."""
    work = IRModule() if mod is None else mod.copy()
    main = work.unique_name("main")
    work[main] = expr.as_function()
    result = getattr(_transform, name)(**options)(work)[main]
    return result if isinstance(expr, Function) else result.body


def _pass(name: str) -> Callable[[Any], Any]:
    def applied(expr: Any) -> Any:
        return _applied(name, expr)

    applied.__doc__ = f"The expression after ``transform.{name}``."
    return applied


alter_op_layout = _pass("AlterOpLayout")
backward_fold_scale_axis = _pass("BackwardFoldScaleAxis")
canonicalize_ops = _pass("CanonicalizeOps")
fold_constant = _pass("FoldConstant")
forward_fold_scale_axis = _pass("ForwardFoldScaleAxis")
simplify_inference = _pass("SimplifyInference")
to_graph_normal_form = _pass("ToGraphNormalForm")


def combine_parallel_conv2d(expr: Any, min_num_branches: int = 3) -> Any:
    """The expression after ``transform.CombineParallelConv2D``."""
    return _applied("CombineParallelConv2D", expr, min_num_branches=min_num_branches)


def dead_code_elimination(expr: Any, inline_once: bool = False) -> Any:
    """The expression after ``transform.DeadCodeElimination``."""
    return _applied("DeadCodeElimination", expr, inline_once=inline_once)


def eliminate_common_subexpr(expr: Any, fskip: Callable[[Any], bool] | None = None) -> Any:
    """The expression after ``transform.EliminateCommonSubexpr``."""
    return _applied("EliminateCommonSubexpr", expr, fskip=fskip)


def fuse_ops(expr: Any, opt_level: int = 1, mod: IRModule | None = None) -> Any:
    """The expression after ``transform.FuseOps``."""
    return _applied("FuseOps", expr, mod, fuse_opt_level=opt_level)


def partial_evaluate(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression after ``transform.PartialEvaluate``."""
    return _applied("PartialEvaluate", expr, mod)


def to_a_normal_form(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression after ``transform.ToANormalForm``."""
    return _applied("ToANormalForm", expr, mod)
