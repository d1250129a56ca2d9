"""A function on several shards of a batch, one after another, between what all shards compute together.

    def f(x, w):                                      y1 = x1 @ w; t1 = R.sum(y1)
        y = x @ w; t = R.sum(y)                       y2 = x2 @ w; t2 = R.sum(y2)
        u = R.ccl.allreduce(t)             →          u = R.ccl.reduce([t1, t2], shards=2)
        return R.sum(y * u)                           v1 = R.sum(y1 * u)
                                                      v2 = R.sum(y2 * u)

A rank with k shards does what k ranks with one each would do, with the same sums in the same order. ``R.ccl.rank()``
is the number of the shard among those of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.errors import InternalError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, Function, Var, const
from pullback.relax.mutator import Emitter
from pullback.relax.op.namespace import ops
from pullback.relax.op_calls import is_collective, is_op


def on_shards(function: Function, arguments: Sequence[Mapping[Var, Expr]], builder: BlockBuilder) -> list[Any]:
    """What a function, with all that it calls inlined, returns on each shard; ``arguments`` are those of each."""
    shards = [Emitter(builder, given, flatten=True) for given in arguments]
    waiting: list[Any] = []
    for binding in function.bindings:
        if not is_collective(binding.value):
            waiting.append(binding)
            continue
        _run(shards, waiting)
        _together(shards, binding.var, binding.value, builder)
        waiting = []
    _run(shards, waiting)
    return [shard.expr(function.body.body) for shard in shards]


def _run(shards: Sequence[Emitter], bindings: Sequence[Any]) -> None:
    """All of these on the first shard, then on the next."""
    for shard in shards:
        for binding in bindings:
            shard.rewrite_binding(binding)


def _together(shards: Sequence[Emitter], var: Var, call: Call, builder: BlockBuilder) -> None:
    count = len(shards)
    if is_op(call, "ccl.rank"):
        first = builder.emit(ops.multiply(ops.ccl.rank(), const(count, "int64")), var.name)
        for k, shard in enumerate(shards):
            shard.env[var] = builder.emit(ops.add(first, const(k, "int64")), var.name)
        return
    given = [shard.expr(call.args[0]) for shard in shards]
    if is_op(call, "ccl.allreduce"):
        result = builder.emit(ops.ccl.reduce(given, op_type=call.attrs["op_type"], shards=count), var.name)
    elif is_op(call, "ccl.allgather"):
        own = builder.emit(ops.concat(given, axis=0), var.name)
        result = builder.emit(ops.ccl.allgather(own, call.attrs["num_workers"] // count), var.name)
    else:
        raise InternalError(f"{call.op} is not computed on several shards of a rank")
    for shard in shards:
        shard.env[var] = result
