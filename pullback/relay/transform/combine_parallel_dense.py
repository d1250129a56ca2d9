"""CombineParallelDense: denses of one input are one product of matrices.

    %0 = nn.dense(%x, %w1); %1 = nn.dense(%x, %w2); …

    →  to a batch:   %0 = nn.batch_matmul(stack((%x, %x, …)), stack((%w1, %w2, …))); squeeze(split(%0).0); …
    →  else:         %0 = nn.dense(%x, concatenate((%w1, %w2, …))); strided_slice(%0, …); …

Elementwise ops behind them that all have in common are done on the one result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, Tuple, call_op, call_several
from pullback.relay.transform.combine_parallel_conv2d import joined, sliced
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parallel_branches import Branch, Combiner
from pullback.relay.transform.parts import is_call, same_call
from pullback.relay.ty import TensorType


@dataclass(frozen=True)
class CombineParallelDense(FunctionPass):
    """Combine at least ``min_num_branches`` denses of the same input: of the same weights' shapes ``to_batch``, or
    with their weights one below the other.

    Checks: ``out_dtype`` agrees; to a batch the types of all weights do, else their inner sizes. What else a branch
    reads depends neither on a Let inside nor on another dense.
    """

    min_num_branches: int = 3
    to_batch: bool = True

    typed = True
    opt_level = 4
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        kind = _ToBatch if self.to_batch else _ToOne
        return kind(self.min_num_branches).run(function)


class _ToBatch(Combiner):
    name = "nn.dense"

    def together(self, a: Call, b: Call) -> bool:
        return a.attrs.out_dtype == b.attrs.out_dtype and a.args[1].checked_type == b.args[1].checked_type

    def combined(self, branches: list[Branch]) -> Call:
        args = [_stacked([branch[0].args[i] for branch in branches]) for i in (0, 1)]
        return call_op("nn.batch_matmul", *args, out_dtype=branches[0][0].attrs.out_dtype)

    def fits(self, a: Call, b: Call, index: int) -> bool:
        return a.args[index].checked_type == b.args[index].checked_type

    def following(self, data: Expr, calls: list[Call], parent: int) -> Call:
        first = calls[0]
        args = [data if i == parent else _stacked([_row(c.args[i]) for c in calls]) for i in range(len(first.args))]
        if is_call(first, "nn.bias_add"):  # a bias for each is no vector any more
            return call_op("add", *args)
        return same_call(first, args)

    def parts(self, data: Expr, branches: list[Branch], depth: int) -> list[Expr]:
        pieces = call_several("split", data, indices_or_sections=len(branches), axis=0)
        return [call_op("squeeze", pieces[i], axis=[0]) for i in range(len(branches))]


def _stacked(exprs: list[Expr]) -> Call:
    return call_op("stack", Tuple(tuple(exprs)), axis=0)


def _row(expr: Expr) -> Expr:
    """A vector as a matrix of one row, so that it still broadcasts along rows when it is stacked."""
    return call_op("expand_dims", expr, axis=0) if expr.checked_as(TensorType).ndim == 1 else expr


class _ToOne(Combiner):
    name = "nn.dense"

    def together(self, a: Call, b: Call) -> bool:
        first, second = (c.args[1].checked_as(TensorType) for c in (a, b))
        return a.attrs.out_dtype == b.attrs.out_dtype and first.shape[1] == second.shape[1]

    def combined(self, branches: list[Branch]) -> Call:
        first = branches[0][0]
        weight = joined([branch[0].args[1] for branch in branches], 0)
        return same_call(first, [first.args[0], weight], units=sum(_units(branch) for branch in branches))

    def fits(self, a: Call, b: Call, index: int) -> bool:
        first, second = (c.args[index].checked_as(TensorType) for c in (a, b))
        return first.dtype == second.dtype and first.ndim == second.ndim and first.shape[:-1] == second.shape[:-1]

    def following(self, data: Expr, calls: list[Call], parent: int) -> Call:
        first = calls[0]
        args = []
        for i, arg in enumerate(first.args):
            axis = max(arg.checked_as(TensorType).ndim - 1, 0)
            wide = [_as_wide(c.args[i], c.args[parent].checked_as(TensorType).shape[-1], axis) for c in calls]
            args.append(data if i == parent else joined(wide, axis))
        return same_call(first, args)

    def parts(self, data: Expr, branches: list[Branch], depth: int) -> list[Expr]:
        found, start = [], 0
        for branch in branches:
            found.append(sliced(data, branch[0].checked_as(TensorType).ndim - 1, start, _units(branch)))
            start += _units(branch)
        return found


def _units(branch: Branch) -> int:
    return branch[0].args[1].checked_as(TensorType).shape[0]


def _as_wide(expr: Expr, width: int, axis: int) -> Expr:
    """An operand that is one number for a row, repeated for each element of it."""
    known = expr.checked_as(TensorType)
    if known.ndim == 0:
        expr = call_op("expand_dims", expr, axis=-1)
    elif width == 1 or known.shape[-1] != 1:
        return expr
    return call_op("repeat", expr, repeats=width, axis=axis)
