"""An optimizer on pieces: each rank updates its pieces of the parameters, with its pieces of gradients and states.

    def optimizer((w,), (g,), (m,)):  # (784, 10)          def pieces((w,), (g,), (m,)):  # (1960,), on 4 ranks
        m_new = 0.9 * m + g                                     m_new = 0.9 * m + g
        size = R.sqrt(R.sum(w * w))                    →        total = R.ccl.reduce([R.sum(w * w)])
        …                                                       size = R.sqrt(total) …

What is elementwise stays as it is. A sum or an extremum of all elements is that of the piece, then of all ranks; the
zeros behind the last element are masked for it. (Where results must not depend on the number of ranks, the elements are
gathered first, so that they are added up in one order.) Anything else, such as a mean along one axis, is no function of
single elements: an error that names the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import Value
from pullback.relax.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, const
from pullback.relax.op.namespace import ops
from pullback.relax.op_calls import op_of
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.transform.decompose_ops import DecomposeOpsForTraining
from pullback.relax.transform.distributed import Distributed, piece_info
from pullback.relax.transform.inline_functions import inline_calls
from pullback.runtime.collectives import piece_length

_ELEMENTWISE = ("binary", "unary", "astype", "where")
_LIKE = ("zeros_like", "ones_like", "full_like")
_TOTALS = {"sum": "sum", "max": "max", "min": "min", "prod": "prod", "mean": "sum", "all": "min", "any": "max"}
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0}


def piecewise(
    function: Function, takes: tuple[Value, ...], pieces: Collection[Value], distributed: Distributed, name: str,
    module: IRModule,
) -> Function:  # fmt: skip
    """The optimizer function over pieces: of what it ``takes``, parameters and gradients, and the states in ``pieces``,
    are those of a rank. ``name`` is the optimizer's, for errors."""
    whole = inline_calls(function, module)
    raised = DecomposeOpsForTraining()(IRModule({"optimizer": whole}, module.attrs))["optimizer"]
    return _Piecewise(set(pieces), distributed, name).rewrite(raised, list(takes))


class _Piecewise:
    def __init__(self, pieces: set[Value], distributed: Distributed, name: str) -> None:
        self.pieces, self.ranks, self.name = pieces, distributed.ranks, name
        self.gathers = distributed.deterministic
        self.env: dict[Var, Any] = {}
        self.whole: dict[Expr, TensorStructInfo] = {}  # of each piece, the type of what it is a piece of
        self.waiting: list[tuple[Var, Call]] = []  # totals whose operands are there
        self.builder = BlockBuilder()

    def rewrite(self, function: Function, takes: list[Value]) -> Function:
        self.builder.begin([p.name for p in function.params])
        params, rest = [], iter(takes)
        for param in function.params:
            tree, info = self.parameter(param.struct_info, rest)
            fresh = Var(param.name, info, span=param.span)
            self.env[param] = self.spread(fresh, tree)
            params.append(fresh)
        with self.builder.dataflow():
            self.bindings(function)
            results = self.outputs(self.tree(function.body.body))
        attrs = {"private": True}
        return Function(tuple(params), self.builder.finish(results), None, attrs, span=function.span)

    def bindings(self, function: Function) -> None:
        """All bindings, those first that need no total: totals that are there together are sent together."""
        left = list(function.bindings)
        while left:
            later = []
            for binding in left:
                if all(v in self.env for v in used_vars(binding.value)):
                    value = binding.value
                    found = self.value(value, binding.var.name)
                    if found is not None:
                        self.env[binding.var] = found
                    elif isinstance(value, Call):
                        self.waiting.append((binding.var, value))
                else:
                    later.append(binding)
            self.send()
            left = later

    def parameter(self, info: StructInfo, rest: Any) -> tuple[Any, StructInfo]:
        """Of a parameter, which of its tensors are pieces of what (a tree), and its type."""
        if isinstance(info, TupleStructInfo):
            found = [self.parameter(f, rest) for f in info.fields]
            return [tree for tree, _ in found], TupleStructInfo(tuple(i for _, i in found))
        is_piece = next(rest) in self.pieces
        return (info if is_piece else None), (piece_info(info, self.ranks) if is_piece else info)

    def spread(self, value: Expr, tree: Any) -> Any:
        """The tensors of a parameter, as nested lists; pieces are noted."""
        if isinstance(tree, list):
            return [self.spread(TupleGetItem(value, k), t) for k, t in enumerate(tree)]
        if tree is None:
            return value
        bound = value if isinstance(value, Var) else self.builder.emit(value, "piece")
        self.whole[bound] = tree
        return bound

    def tree(self, expr: Any) -> Any:
        if isinstance(expr, Var):
            return self.env[expr]
        if isinstance(expr, Tuple):
            return [self.tree(f) for f in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self.tree(expr.tuple_value)[expr.index]
        return expr

    def outputs(self, tree: Any) -> Expr:
        if isinstance(tree, list):
            return Tuple(tuple(self.outputs(t) for t in tree))
        return self.builder.emit_output(tree)

    def value(self, expr: Any, name: str) -> Any:
        if not isinstance(expr, Call):
            return self.tree(expr)
        args = [self.tree(a) for a in expr.args]
        owners = [self.whole[a] for a in args if isinstance(a, Var) and a in self.whole]
        if not owners:
            return self.builder.emit(_called(expr, args), name)
        op = expr.op
        assert isinstance(op, Op)
        if op.family == "reduction" and op.short in _TOTALS and _covers(expr):
            return self.whole_total(expr, args[0], owners[0], name) if self.gathers else None
        if not (op.family in _ELEMENTWISE or op.short in _LIKE) or not all(self.fits(a, owners[0]) for a in args):
            self.refuse(expr)
        result = self.builder.emit(_called(expr, args), name)
        info: Any = expr.struct_info
        self.whole[result] = TensorStructInfo(info.sizes, info.dtype)
        return result

    def fits(self, arg: Any, owner: TensorStructInfo) -> bool:
        """Whether an operand is a piece of such a tensor, or a scalar."""
        if isinstance(arg, Var) and arg in self.whole:
            return tuple(self.whole[arg].sizes) == tuple(owner.sizes)
        return all(size == 1 for size in arg.struct_info.sizes)

    def whole_total(self, call: Call, arg: Var, owner: TensorStructInfo, name: str) -> Expr:
        """A reduction of all elements, after all of them were gathered."""
        whole = self.builder.emit(ops.ccl.gather_pieces([arg], self.ranks, (tuple(owner.sizes),)), f"{name}_whole")
        return self.builder.emit(_called(call, [whole]), name)

    def send(self) -> None:
        """Reductions of all elements: of the rank's, then, all at once, of all ranks'."""
        waiting, self.waiting = self.waiting, []
        parts: dict[tuple[str, str], dict[Var, Expr]] = {}
        for var, call in waiting:
            part = self.part(call, var.name)
            parts.setdefault((_TOTALS[op_of(call).short], part.dtype), {})[var] = part
        totals: dict[Var, Any] = {}
        for (op_type, _), own in parts.items():
            several = self.builder.emit(ops.ccl.reduce(list(own.values()), op_type=op_type), "totals")
            one = len(own) == 1
            totals |= {v: several if one else TupleGetItem(several, k) for k, v in enumerate(own)}
        for var, call in waiting:
            self.env[var] = self.finished(call, totals[var], var.name)

    def part(self, call: Call, name: str) -> Expr:
        """The reduction of the rank's own elements, a scalar."""
        arg = self.tree(call.args[0])
        short, count = op_of(call).short, math.prod(self.whole[arg].static_shape)
        length = piece_length(count, self.ranks)
        if length * self.ranks != count:
            arg = self.builder.emit(self.masked(arg, short, count, length), f"{name}_own")
        axes = {"keepdims": False} | ({"axis": None} if "axis" in call.attrs else {})
        reduction = "sum" if short == "mean" else short
        part = self.builder.emit(getattr(ops, reduction)(arg, **axes), f"{name}_part")
        is_bool = part.dtype == "bool"
        return self.builder.emit(ops.astype(part, "uint8")) if is_bool else part

    def finished(self, call: Call, total: Any, name: str) -> Expr:
        """What the reduction gives, of the total of all ranks."""
        info: Any = call.struct_info
        result = self.builder.emit(total, name)
        if info.dtype == "bool":
            result = self.builder.emit(ops.astype(result, "bool"), name)
        if op_of(call).short == "mean":
            count = math.prod(self.whole[self.tree(call.args[0])].static_shape)
            result = self.builder.emit(ops.divide(result, const(count, info.dtype)), name)
        return self.builder.emit(ops.reshape(result, info.sizes), name) if info.sizes else result

    def masked(self, arg: Any, short: str, count: int, length: int) -> Expr:
        """The piece with what lies behind the last element of the whole replaced: by what changes no total."""
        first = ops.multiply(ops.ccl.rank(), const(length, "int64"))
        place = ops.add(ops.arange(0, length, 1, dtype="int64"), self.builder.emit(first, "first"))
        inside = self.builder.emit(ops.less(place, const(count, "int64")), "inside")
        info: Any = arg.struct_info
        if short in ("all", "any"):
            fill: Any = const(short == "all", "bool")
        elif short in _NEUTRAL:
            fill = const(_NEUTRAL[short], info.dtype)
        else:  # an extremum: the first element of the piece, or the extremum's own neutral element where it has none
            fill = Constant(np.asarray(-np.inf if short == "max" else np.inf).astype(info.dtype))
        return ops.where(inside, arg, fill)

    def refuse(self, call: Call) -> None:
        op = op_of(call).short
        raise UserError(
            f"{self.name} cannot be divided among ranks: its update takes {op} of what belongs to a parameter, which is"
            " no function of single elements",
            hint='distributed="data" keeps optimizer states whole on each rank; Adam and most others can be divided',
        )


def _called(call: Call, args: list[Any]) -> Call:
    return Call(call.op, tuple(args), call.attrs, call.sinfo_args, span=call.span)


def _covers(call: Call) -> bool:
    """Whether a reduction goes over all axes."""
    info: Any = call.args[0].struct_info
    axes = call.attrs.get("axis")
    if axes is None:
        return True
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    return len({a % len(info.sizes) for a in given}) == len(info.sizes)
