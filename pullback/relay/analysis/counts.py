"""How many operators, layers and multiplications a program has, and what stands at a place of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.analysis.variables import free_type_vars, free_vars
from pullback.relay.expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var
from pullback.relay.ty import FuncType, RefType, TensorType, TupleType, Type, TypeCall
from pullback.relay.visitor import children, post_order


def _functions(mod: IRModule) -> list[Function]:
    return [f for f in mod.functions.values() if isinstance(f, Function)]


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """How many calls of each operator the functions of a module have.

    >>> from pullback.relay.expr import var
    >>> x = var("x", shape=())
    >>> list_op_freqs(IRModule.from_expr(x + x + x))
    {'add': 2}
    """
    calls = {node: None for f in _functions(mod) for node in post_order(f) if _is_operator_call(node)}
    return dict(Counter(call.op.name for call in calls))


def _is_operator_call(node: Any) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op)


def count_layers(expr: Any, valid_ops: Collection[str]) -> int:
    """The most calls of the operators of these names that depend on one another: those side by side count as one.

    ``expr`` may be a module: its ``main`` counts.
    """
    expr = expr["main"] if isinstance(expr, IRModule) else expr
    nodes = list(post_order(expr))
    values = {node.variable: node.value for node in nodes if isinstance(node, Let)}
    depth: dict[Any, int] = {}
    for node in nodes:
        below = (depth.get(values.get(child, child), 0) for child in children(node))
        depth[node] = max(below, default=0) + (_is_operator_call(node) and node.op.name in valid_ops)
    return depth[expr]


def all_dtypes(expr: Any) -> set[str]:
    """The dtypes of all values in an expression whose types are inferred."""
    found: set[str] = set()
    for node in post_order(expr):
        if isinstance(node, Expr):
            _add_dtypes(node.checked_type, found)
    return found


def _add_dtypes(type_: Type, found: set[str]) -> None:
    if isinstance(type_, TensorType):
        found.add(type_.dtype)
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            _add_dtypes(field, found)
    elif isinstance(type_, FuncType):
        for part in (*type_.arg_types, type_.ret_type):
            _add_dtypes(part, found)
    elif isinstance(type_, RefType):
        _add_dtypes(type_.value, found)
    elif isinstance(type_, TypeCall):
        for part in type_.args:
            _add_dtypes(part, found)


def _shape(expr: Any) -> tuple[int, ...]:
    type_ = expr.checked_type
    if not isinstance(type_, TensorType):
        raise UserError("multiplications are counted of tensors of known sizes", span=expr.span)
    return type_.concrete_shape


def _convolution(call: Call) -> int:
    layout = call.attrs.get("data_layout", "NCHW")
    channels = _shape(call.args[0])[layout.index("C")] * (_shape(call.args[0])[-1] if layout[-1] == "c" else 1)
    kernel = call.attrs.get("kernel_size") or _shape(call.args[1])[2:]
    return math.prod(_shape(call)) * channels * math.prod(kernel) // call.attrs.get("groups", 1)


def _matmul(call: Call) -> int:
    data = _shape(call.args[0])
    inner = data[-2] if call.attrs.get("transpose_a", False) else data[-1]
    return math.prod(_shape(call)) * inner


_MULTIPLICATIONS: dict[str, Callable[[Call], int]] = {
    "nn.conv2d": _convolution,
    "nn.conv2d_transpose": _convolution,
    "nn.dense": _matmul,
    "nn.batch_matmul": _matmul,
}


def get_total_mac_number(expr: Any) -> int:
    """How many multiply-accumulates the convolutions and matrix products of an expression take, whose types are
    inferred and of known sizes."""
    calls = [node for node in post_order(expr) if _is_operator_call(node)]
    return sum(_MULTIPLICATIONS[call.op.name](call) for call in calls if call.op.name in _MULTIPLICATIONS)


def extract_intermediate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module whose ``main`` computes an expression inside of that of ``mod``.

    ``expr_id`` is its number in the text of a dataflow program, which counts calls, tuples and fields from 0.
    ArgumentError where there are fewer.
    """
    numbered = [node for node in post_order(mod["main"]) if isinstance(node, (Call, Tuple, TupleGetItem))]
    if not 0 <= expr_id < len(numbered):
        raise ArgumentError(f"main has {len(numbered)} numbered expressions, there is none of number {expr_id}")
    expr = numbered[expr_id]
    result = mod.copy()
    result["main"] = Function(tuple(free_vars(expr)), expr, None, tuple(free_type_vars(expr)))
    return result


extract_intermdeiate_expr = extract_intermediate_expr  # as the reference spells it


def search_fc_transpose(expr: Any) -> list[str]:
    """The names of the weights ``w`` in calls ``nn.dense(x, transpose(w, [1, 0]))``."""
    found: dict[str, None] = {}
    for node in post_order(expr):
        if _is_operator_call(node) and node.op.name == "nn.dense":
            weight = node.args[1]
            if _is_operator_call(weight) and weight.op.name == "transpose":
                axes = weight.attrs.get("axes")
                if isinstance(weight.args[0], Var) and (not axes or tuple(axes) == (1, 0)):
                    found[weight.args[0].name_hint] = None
    return list(found)
