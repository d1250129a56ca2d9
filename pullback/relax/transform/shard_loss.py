"""The loss function of a trainer module on one shard of a batch, where it is another than that of the whole batch.

Batch norm takes the statistics of all shards (``sync_batch_norm.py``), and random ops draw the shard's part of what one
process would draw (``shard_draws.py``).
"""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.relax.convention import LOSS, Convention
from pullback.relax.expr import Function
from pullback.relax.transform.distribute_step import has_rows
from pullback.relax.transform.distributed import Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.shard_draws import shard_draws
from pullback.relax.transform.sync_batch_norm import SyncBatchNorm


def sharded_loss(module: IRModule) -> Function | None:
    """``backbone_loss`` on a shard; None where all shards have the whole batch, or there is but one."""
    distributed = Distributed.of(module)
    if distributed is None or distributed.batch == "same" or distributed.shards == 1:
        return None
    return sharded(inline_calls(module[LOSS], module), LOSS, module, distributed)


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
