"""Functions of a trainer module on one shard of a batch, where they are others than those of the whole batch.

Batch norm takes the statistics of all shards (``sync_batch_norm.py``), and random ops draw the shard's part of what one
process would draw (``shard_draws.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.module import IRModule
from pullback.relax.convention import LOSS, Convention, Value
from pullback.relax.expr import Function
from pullback.relax.transform.distribute_step import has_rows
from pullback.relax.transform.distributed import Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.shard_draws import shard_draws
from pullback.relax.transform.sync_batch_norm import SyncBatchNorm


def sharded_loss(module: IRModule) -> Function | None:
    """``backbone_loss`` on a shard; None where all shards have the whole batch, or there is but one."""
    return sharded(module, inline_calls(module[LOSS], module), Convention.of(module)[LOSS].takes)


def sharded(module: IRModule, function: Function, takes: Sequence[Value]) -> Function | None:
    """A function that takes these values of the module's convention, on a shard; None where it is the same there. What
    it calls is inlined, and what it draws has states."""
    distributed = Distributed.of(module)
    if distributed is None or distributed.batch == "same" or distributed.shards == 1:
        return None
    if distributed.sync_batch_norm:
        function = SyncBatchNorm(distributed.shards).function(function, module)
    if distributed.batch == "uneven":  # of a model that draws, all ranks compute such a batch
        return function
    convention = Convention.of(module)
    pairs = zip(takes, function.params, strict=True)
    names = [param.name for value, param in pairs if has_rows(module, convention, value)]
    return shard_draws(function, names, distributed.shards)
