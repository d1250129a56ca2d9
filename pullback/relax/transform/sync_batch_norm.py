"""SyncBatchNorm: batch norms in training take the statistics of all ranks' rows.

    y = R.nn.batch_norm(x, gamma, beta, mean, var)
        →
    y = R.nn.sync_batch_norm(x, gamma, beta, mean, var, num_workers=4)

Those for inference (``training=False``) stay as they are. It runs before ``Gradient``, on functions that hold the ops
as they were written.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Call, Expr, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op


@dataclass(frozen=True)
class SyncBatchNorm(FunctionPass):
    """Take the statistics of batch norms in training over the rows of all ranks.

    Args:
        num_workers: the number of ranks, an int of at least 1.

    Checks: raises ArgumentError for fewer than one rank. Norms with ``training=False`` stay. It comes before Gradient.
    """

    num_workers: int

    def run(self, module: IRModule) -> IRModule:
        if whole("num_workers", self.num_workers) < 1:
            raise ArgumentError(f"{self.name}: num_workers must be at least 1, got {self.num_workers}")
        return super().run(module)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Synchronize(self.num_workers).function(function)


class _Synchronize(ExprMutator):
    def __init__(self, num_workers: int) -> None:
        super().__init__()
        self.num_workers = num_workers

    def rewrite_call(self, call: Call) -> Expr:
        if not is_op(call, "nn.batch_norm") or not call.attrs["training"]:
            return call
        attrs = {"num_workers": self.num_workers, **call.attrs}
        return Call(Op.get("nn.sync_batch_norm"), call.args, attrs, span=call.span)
