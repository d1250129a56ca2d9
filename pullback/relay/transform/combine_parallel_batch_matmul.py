"""CombineParallelBatchMatmul: products of one batch of matrices with several are one.

%0 = nn.batch_matmul(%x, %w1); %1 = nn.batch_matmul(%x, %w2); …
                  →    %0 = nn.batch_matmul(%x, concatenate((%w1, %w2, …), axis=1)); strided_slice(%0, …); …
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.combine_parallel_conv2d import joined, sliced
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parallel_branches import Branch, Combiner
from pullback.relay.transform.parts import same_call
from pullback.relay.ty import TensorType


@dataclass(frozen=True)
class CombineParallelBatchMatmul(FunctionPass):
    """Combine at least ``min_num_branches`` batched products of the same first factor, second factors transposed.

    Checks: ``transpose_b`` is set and ``transpose_a`` not; second factors agree in batch, inner size and dtype. What
    else a branch reads depends neither on a Let inside nor on another such product.
    """

    min_num_branches: int = 3

    typed = True
    opt_level = 4
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Products(self.min_num_branches).run(function)


class _Products(Combiner):
    name = "nn.batch_matmul"

    def supports(self, call: Call) -> bool:
        return call.attrs.transpose_b and not call.attrs.transpose_a

    def together(self, a: Call, b: Call) -> bool:
        first, second = (c.args[1].checked_as(TensorType) for c in (a, b))
        same = first.shape[0] == second.shape[0] and first.shape[2] == second.shape[2]
        return same and first.dtype == second.dtype and a.attrs.out_dtype == b.attrs.out_dtype

    def combined(self, branches: list[Branch]) -> Call:
        first = branches[0][0]
        return same_call(first, [first.args[0], joined([branch[0].args[1] for branch in branches], 1)])

    def fits(self, a: Call, b: Call, index: int) -> bool:
        return False

    def following(self, data: Expr, calls: list[Call], parent: int) -> Call:
        return same_call(calls[0], [data])

    def parts(self, data: Expr, branches: list[Branch], depth: int) -> list[Expr]:
        found, start = [], 0
        for branch in branches:
            columns = branch[0].args[1].checked_as(TensorType).shape[1]
            found.append(sliced(data, 2, start, columns))
            start += columns
        return found
