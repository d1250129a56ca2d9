"""The part of ``__step`` that ranks do together: between the adjoint and the optimizer, and around it.

    loss, (g0, g1) = adjoint(x, w0, w1, …)                   this rank's rows: see ``shard_loss.py``
    loss' = R.ccl.allreduce(loss)
    g1', g0' = R.ccl.reduce([g1, g0])                        a bucket, of the gradients in the order of their making
    (w0', w1') = optimizer((w0, w1), (g0', g1'))

That is the loss of the whole batch, and its gradient. By the stage of ZeRO (``distributed.py``), from 1 on the
optimizer updates pieces (``piecewise.py``), which are then gathered:

    stage 1    p = R.ccl.piece(g')
    stage 2    p = R.ccl.reduce_pieces([g])
    stage 3    the same, and parameters are pieces: w = R.ccl.gather_pieces([piece]) before the adjoint
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import (
    DIVISOR,
    DIVISOR_VALUE,
    GRADIENT,
    INPUT,
    LOSS,
    LOSS_VALUE,
    OUTPUT,
    STATE,
    TARGET,
    Convention,
    Value,
)
from pullback.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, const
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.family import masked
from pullback.relax.op.namespace import ops
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import TensorStructInfo, fields_of
from pullback.relax.transform.distributed import Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.loss_divisor import GUARDED, is_number
from pullback.relax.transform.micro_batches import on_shards
from pullback.tir.expr import FLOATS, nbytes
from pullback.tir.polynomial import same

Results = dict[Value, Expr]
Calls = Callable[[BlockBuilder, Mapping[Value, Expr]], Results]


def copies_of(distributed: Distributed) -> int:
    """How many ranks compute the same rows."""
    return distributed.ranks if distributed.batch == "same" else 1


def has_rows(module: IRModule, convention: Convention, value: Value) -> bool:
    """Whether an input or target of a trainer module has a row for each row of the batch."""
    params = dict(zip(convention[LOSS].takes, module[LOSS].params, strict=True))
    shared = module.attrs.get("training", {}).get("shared_targets", ())
    if value[0] not in (INPUT, TARGET) or (INPUT, 0) not in params or params[value].name in shared:
        return False
    sizes, own = (params[v].struct_info.sizes for v in ((INPUT, 0), value))
    return bool(sizes and own) and same(sizes[0], own[0])


@dataclass
class OnRanks:
    """Emits it into ``builder``. ``calls`` emits the calls of the module's functions on some rows."""

    builder: BlockBuilder
    module: IRModule
    convention: Convention
    distributed: Distributed
    calls: Calls

    def of_batch(self, variables: Mapping[Value, Expr]) -> Results:
        """The loss of the whole batch, its divisor, and states and outputs; gradients are those of the stage."""
        shards = self.shards(variables)
        first = shards[0]
        new: Results = {v: e for v, e in first.items() if v[0] not in (GRADIENT, LOSS_VALUE, DIVISOR_VALUE)}
        self.average_states(new, shards)
        for v in [v for v in first if v[0] == OUTPUT]:
            new[v] = self.together([s[v] for s in shards])
        new[LOSS_VALUE, 0] = self.loss(shards, new)
        return new | self.gradients(shards)

    # -- shards

    def shards(self, variables: Mapping[Value, Expr]) -> list[Results]:
        """What the functions give on each of the rank's shards."""
        count = self.distributed.micro_batches
        if count == 1:
            return [self.calls(self.builder, variables)]
        function, order, returns = self.of_one_shard(variables)
        arguments: list[dict[Var, Expr]] = [{} for _ in range(count)]
        for value, param in order.items():
            for k, given in enumerate(self.rows(value, variables[value], count)):
                arguments[k][param] = given
        found = on_shards(function, arguments, self.builder)
        return [dict(zip(returns, f.fields, strict=True)) for f in found]

    def of_one_shard(self, variables: Mapping[Value, Expr]) -> tuple[Function, dict[Value, Var], list[Value]]:
        """The calls on one shard as a function with nothing but ops."""
        own = dict(zip(self.convention[LOSS].takes, self.module[LOSS].params, strict=True))
        params = {
            v: Var(getattr(e, "name", v[0]), own[v].struct_info if v in own else e.struct_info)
            for v, e in variables.items()
        }
        builder = BlockBuilder()
        builder.begin([p.name for p in params.values()])
        with builder.dataflow():
            found = self.calls(builder, params)
            results = [builder.emit_output(e) for e in found.values()]
        function = Function(tuple(params.values()), builder.finish(Tuple(tuple(results))), None, {"private": True})
        return _with_collectives(inline_calls(function, self.module)), params, list(found)

    def rows(self, value: Value, given: Expr, count: int) -> list[Expr]:
        """The rows of each shard."""
        if not has_rows(self.module, self.convention, value):
            return [given] * count
        params = dict(zip(self.convention[LOSS].takes, self.module[LOSS].params, strict=True))
        size = params[value].struct_info.sizes[0]
        return [
            self.builder.emit(ops.strided_slice(given, [0], [k * size], [(k + 1) * size]), f"{value[0]}_{k}")
            for k in range(count)
        ]

    def together(self, values: Sequence[Expr]) -> Expr:
        return values[0] if len(values) == 1 else self.builder.emit(ops.concat(list(values), axis=0), "outputs")

    # -- loss

    def loss(self, shards: Sequence[Results], new: Results) -> Expr:
        """The loss of the whole batch, and its divisor, which joins ``new``."""
        loss = self.total([s[LOSS_VALUE, 0] for s in shards], "loss")
        if DIVISOR not in self.convention:
            return loss
        divisors, copies = [s[DIVISOR_VALUE, 0] for s in shards], copies_of(self.distributed)
        kind = divisors[0].dtype
        if is_number(inline_calls(self.module[DIVISOR], self.module)) and self.distributed.batch != "uneven":
            times = 1 if copies > 1 else self.distributed.shards
            new[DIVISOR_VALUE, 0] = self.times(divisors[0], times) if times > 1 else divisors[0]
            return loss
        mine = [self.times(d, 1 / copies) if copies > 1 else d for d in divisors]
        whole = new[DIVISOR_VALUE, 0] = self.total(mine, "divisor")
        counts = self.builder.emit(ops.not_equal(whole, const(0, kind)), "counts")
        nothing = const(np.nan, loss.dtype)
        return self.builder.emit(ops.where(counts, loss, nothing), "loss")

    def times(self, value: Expr, factor: float) -> Expr:
        return self.builder.emit(ops.multiply(value, const(factor, value.dtype)))

    def total(self, values: Sequence[Expr], name: str) -> Expr:
        """The sum over all shards of all ranks."""
        if len(values) == 1:
            return self.builder.emit(ops.ccl.allreduce(values[0]), name)
        return self.builder.emit(ops.ccl.reduce(list(values), shards=len(values)), name)

    # -- states

    def average_states(self, new: Results, shards: Sequence[Results]) -> None:
        """States that differ between ranks become their mean; those that don't, such as the statistics of a synced
        batch norm, stay."""
        differ = differing_states(self.module, self.convention)
        for value in [v for v in new if v[0] == STATE and v in differ]:
            info: Any = new[value].struct_info
            if info.dtype in FLOATS:
                share = 1 / self.distributed.shards
                new[value] = self.total([self.times(s[value], share) for s in shards], "state")

    # -- gradients

    def gradients(self, shards: Sequence[Results]) -> Results:
        """The gradient of the whole batch: whole for stages 0 and 1, else the rank's pieces. The last gradients of the
        parameters are made first."""
        guarded = DIVISOR in self.convention and not self.module[DIVISOR].attrs[GUARDED]
        found: dict[Value, list[Expr]] = {}
        for value in [v for v in shards[0] if v[0] == GRADIENT]:
            for shard in shards:
                gradient = shard[value]
                if guarded:  # 0 / 0 of a shard that counts nothing
                    counts = self.builder.emit(ops.not_equal(shard[DIVISOR_VALUE, 0], 0.0))
                    gradient = self.builder.emit(masked(counts, gradient))
                found.setdefault(value, []).append(gradient)
        result: Results = {}
        for bucket in buckets({v: e[0] for v, e in reversed(found.items())}, self.distributed.bucket_bytes):
            given = [e for v in bucket for e in found[v]]
            if self.distributed.stage >= 2:
                call = ops.ccl.reduce_pieces(given, self.distributed.ranks, shards=len(shards))
            else:
                call = ops.ccl.reduce(given, shards=len(shards))
            result |= zip(bucket, self.several(call, "gradients"), strict=True)
        if self.distributed.stage == 1:
            result = {v: self.piece(e) for v, e in result.items()}
        return result

    def several(self, call: Any, name: str) -> list[Expr]:
        """The results of a call, bound."""
        whole = self.builder.emit(call, name)
        count = len(fields_of(call.struct_info))
        return [whole] if call.struct_info is fields_of(call.struct_info)[0] else [
            self.builder.emit(TupleGetItem(whole, k), name) for k in range(count)
        ]  # fmt: skip

    def piece(self, value: Expr) -> Expr:
        return self.builder.emit(ops.ccl.piece(value, self.distributed.ranks), "piece")

    # -- parameters

    def gathered(self, pieces: Mapping[Value, Expr], infos: Mapping[Value, TensorStructInfo]) -> Results:
        """The whole values of which these are the rank's pieces, in buckets."""
        result: Results = {}
        for bucket in buckets(infos, self.distributed.bucket_bytes):
            shapes = tuple(tuple(infos[v].sizes) for v in bucket)
            call = ops.ccl.gather_pieces([pieces[v] for v in bucket], self.distributed.ranks, shapes)
            result |= zip(bucket, self.several(call, "gathered"), strict=True)
        return result


class _Collectives(ExprMutator):
    """Writes what ranks compute together within an op as ops of its own."""

    def rewrite_call(self, call: Call) -> Expr:
        if not is_op(call, "nn.sync_batch_norm"):
            return call
        assert isinstance(call.op, Op) and call.op.decompose is not None
        written: Expr = call.op.decompose(*call.args, **{**call.attrs, "training": True})
        return written


def _with_collectives(function: Function) -> Function:
    return _Collectives().function(function)


def buckets(values: Mapping[Value, Any], most: int) -> list[list[Value]]:
    """Values, or their types, that are sent together: neighbours of one dtype, until they have so many bytes."""
    result: list[list[Value]] = []
    size, dtype = 0, ""
    for value, given in values.items():
        info: Any = getattr(given, "struct_info", given)
        own = math.prod(info.sizes) * nbytes(info.dtype)
        if not result or size + own > most or info.dtype != dtype:
            result.append([])
            size, dtype = 0, info.dtype
        result[-1].append(value)
        size += own
    return result


def differing_states(module: IRModule, convention: Convention) -> set[Value]:
    """The states whose new values depend on the rank's own rows by more than what all ranks compute together."""
    function = inline_calls(module[LOSS] if SHARDED not in module else module[SHARDED], module)
    roles = convention[LOSS]
    differs = {p for p, v in zip(function.params, roles.takes, strict=True) if v[0] in (INPUT, TARGET)}
    for binding in function.bindings:
        value: Any = binding.value
        if differs.isdisjoint(used_vars(value)) and not is_op(value, "ccl.rank"):
            continue
        if is_op(value, "ccl.allreduce") or is_op(value, "ccl.allgather"):
            continue
        if isinstance(value, TupleGetItem) and value.index > 0 and _is_synced(value.tuple_value, function):
            continue  # moving statistics
        differs.add(binding.var)
    body: Any = function.body.body
    fields = body.fields if isinstance(body, Tuple) else (body,)
    found = set()
    for value, field in zip(roles.returns, fields, strict=True):
        if isinstance(field, TupleGetItem) and field.index > 0 and _is_synced(field.tuple_value, function):
            continue
        if value[0] == STATE and not differs.isdisjoint(used_vars(field)):
            found.add(value)
    return found


def _is_synced(expr: Any, function: Function) -> bool:
    value = next((b.value for b in function.bindings if b.var is expr), None)
    return is_op(value, "nn.sync_batch_norm")


SHARDED = "__sharded_loss"  # backbone_loss on one shard, where it differs from that of a whole batch
