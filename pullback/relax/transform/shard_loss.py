"""The loss function of a trainer module on one shard of a batch: what it adds to the loss of the whole batch.

    def backbone_loss(x, w, targets):               def sharded(x, w, targets):
        …                                               d = R.sum(…)                      the loss's divisor
        loss = R.nn.nll_loss(…)              →          D = R.ccl.allreduce(d)
        return loss                                     …
                                                        return loss * (d / D)

Batch norm takes the statistics of all shards (``sync_batch_norm.py``), and random ops draw the shard's part of what one
process would draw (``shard_draws.py``). The sum of this over all shards is the loss of the whole batch, so the gradient
is the sum of theirs: what one shard weighs is part of it, since its rows take part in the losses of others by way of
their statistics. Where all shards have the same divisor, d / D is a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import LOSS, LOSS_VALUE, Convention, adds_up
from pullback.relax.expr import Expr, Function, Tuple, Var, const
from pullback.relax.mutator import emit_body
from pullback.relax.op.family import masked, narrowed
from pullback.relax.op.namespace import ops
from pullback.relax.transform.distribute_step import copies_of, has_rows
from pullback.relax.transform.distributed import Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.loss_divisor import is_number, loss_divisor
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.shard_draws import shard_draws
from pullback.relax.transform.sync_batch_norm import SyncBatchNorm


def sharded_loss(module: IRModule) -> Function | None:
    """``backbone_loss`` on a shard; None where a shard is the batch."""
    distributed = Distributed.of(module)
    if distributed is None or distributed.shards == 1:
        return None
    function = inline_calls(module[LOSS], module)
    if distributed.batch != "same":
        function = sharded(function, LOSS, module, distributed)
    return _weighed(function, module, distributed)


def sharded(function: Function, name: str, module: IRModule, distributed: Distributed) -> Function:
    """A function on a shard, with what it calls inlined; ``name`` is the one by which the module's convention says what
    it takes."""
    if distributed.sync_batch_norm:
        function = SyncBatchNorm(distributed.shards).function(function, module)
    if distributed.batch == "uneven":  # of a model that draws, all ranks compute such a batch
        return function
    convention = Convention.of(module)
    takes = zip(convention[name].takes, function.params, strict=True)
    rows = [param.name for value, param in takes if has_rows(module, convention, value)]
    return shard_draws(function, rows, distributed.shards)


def _weighed(function: Function, module: IRModule, distributed: Distributed) -> Function:
    """The loss times the shard's share of what the whole batch is divided by."""
    convention = Convention.of(module)
    number = convention[LOSS].returned(LOSS_VALUE)[0]
    params = {p: Var(p.name, p.struct_info, span=p.span) for p in function.params}
    builder = BlockBuilder()
    builder.begin([p.name for p in params.values()])
    with builder.dataflow():
        share, counts = _share(builder, module, convention, distributed, params)
        body = emit_body(function, params, builder)
        results = list(body.fields) if isinstance(body, Tuple) else [body]
        loss = results[number]
        if isinstance(share, Expr):
            dtype = loss.dtype
            product = builder.emit(ops.multiply(loss, narrowed(share, dtype)), "weighed")
            results[number] = builder.emit(masked(counts, product), "loss")
        elif share != 1.0:
            results[number] = builder.emit(ops.multiply(loss, const(share, loss.dtype)), "loss")
        outputs = [builder.emit_output(e) for e in results]
    returned = Tuple(tuple(outputs)) if isinstance(body, Tuple) else outputs[0]
    attrs = {"private": True}
    return Function(tuple(params.values()), builder.finish(returned), None, attrs, span=function.span)


def _share(
    builder: BlockBuilder, module: IRModule, convention: Convention, distributed: Distributed, params: Mapping[Var, Var]
) -> tuple[Any, Any]:
    """A shard's share of the divisor, as a number or a scalar, and whether it counts anything."""
    copies = copies_of(distributed)
    if adds_up(module):
        return 1.0 / copies, None
    divisor = loss_divisor(RaiseOps()(module), convention[LOSS])
    if is_number(divisor) and distributed.batch != "uneven":
        return 1.0 / distributed.shards if copies == 1 else 1.0 / copies, None
    arguments = dict(zip(divisor.params, params.values(), strict=True))
    own = builder.emit(emit_body(divisor, arguments, builder), "divisor")
    kind = own.dtype
    mine = builder.emit(ops.multiply(own, const(1 / copies, kind)), "divisor") if copies > 1 else own
    whole = builder.emit(ops.ccl.allreduce(mine), "divisor_of_all")
    safe = builder.emit(ops.where(ops.equal(whole, const(0, kind)), const(1, kind), whole), "divisor_safe")
    counts = builder.emit(ops.not_equal(own, const(0, kind)), "counts")
    return builder.emit(ops.divide(mine, safe), "share"), counts
