"""JoinStep: forward, loss, backward and optimizer of a trainer module as one function.

    __step(inputs…, params…, states…, targets…, random state?, optimizer states…)
        -> (loss, divisor?, outputs…?, new params…, new states…, new random state?, new optimizer states…)

What the functions take is what ``relax/convention.py`` says. The new values take over the memory of the old ones when
the function is compiled (attribute ``donate``: of the flattened parameters those whose new values the last results
are). The divisor is what the loss is divided by (``loss_divisor.py``), if it is no sum; optimizer states that are a
batch's weight are set to it before the optimizer reads them. Outputs are what ``__outputs`` returns, where the module
has it. A random state is (seed, number of the step): the step
counts it on. What the adjoint takes of the optimizer's states, such as a loss scale, it gets from these. What ranks
do together, where the module is distributed over some, is in ``distribute_step.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import (
    ADJOINT,
    BATCH_WEIGHT,
    DIVISOR,
    DIVISOR_VALUE,
    GRADIENT,
    LOSS,
    OPTIMIZER,
    OUTPUTS,
    PARAMETER,
    RANDOM,
    STEP,
    Convention,
    Value,
    is_trainer_module,
)
from pullback.relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.op.family import masked, narrowed
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, flat_infos
from pullback.relax.transform.distribute_step import OnRanks, has_rows
from pullback.relax.transform.distributed import Distributed, held_as_pieces
from pullback.relax.transform.loss_divisor import GUARDED, loss_divisor
from pullback.relax.transform.piecewise import piecewise
from pullback.relax.transform.raise_ops import RaiseOps

PIECEWISE = "__optimizer_of_pieces"


@dataclass(frozen=True)
class JoinStep(Pass):
    """Add ``__step`` to a trainer module; other modules stay as they are.

        backbone_loss_adjoint, optimizer        →        __step(inputs…, params…, states…, targets…, optimizer states…)

    Checks: the module is what SetupTrainer made. The functions that it calls stay, so that it can be joined anew.
    """

    def run(self, module: IRModule) -> IRModule:
        if not is_trainer_module(module):
            return module
        convention = Convention.of(module)
        result = module.copy()
        if DIVISOR in convention:
            result[DIVISOR] = loss_divisor(RaiseOps()(module), convention[LOSS])
        result[STEP] = _joined(result, module if DIVISOR not in convention else result, convention)
        return result


def _joined(result: IRModule, module: IRModule, convention: Convention) -> Function:
    """The step; ``result`` gets what it calls besides the module's functions."""
    optimizer, step, distributed = convention[OPTIMIZER], convention[STEP], Distributed.of(module)
    pieces = held_as_pieces(module)
    variables = _variables(module, convention, distributed, pieces)
    builder = BlockBuilder()
    builder.begin([v.name for v in variables.values()])

    def calls(builder: BlockBuilder, given: Mapping[Value, Expr]) -> dict[Value, Expr]:
        return _on_rows(builder, result, convention, given)

    held: dict[Value, Expr]
    with builder.dataflow():
        if distributed is None:
            new = _masked(builder, module, calls(builder, variables))
            held, update = {**variables}, module.get_global_var(OPTIMIZER)
        else:
            ranks = OnRanks(builder, result, convention, distributed, calls)
            types = {v: i for v, i in _types(module, convention).items() if v[0] == PARAMETER}
            is_divided = distributed.stage == 3
            whole = ranks.gathered(variables, types) if is_divided else {}
            new = ranks.of_batch({**variables, **whole})
            held, update = {**variables}, _update(result, module, convention, distributed)
            if distributed.stage in (1, 2):
                held |= {v: ranks.piece(variables[v]) for v in types}
        given = {v: e for v, e in new.items() if v[0] == GRADIENT}
        if (DIVISOR_VALUE, 0) in new:
            divisor = new[DIVISOR_VALUE, 0]
            given |= {v: narrowed(divisor, s.dtype) for v, s in variables.items() if v[0] == BATCH_WEIGHT}
        arguments = _nested(optimizer.arrange(held | given), result[update])
        updated = builder.emit(update(*arguments), "updated")
        new |= dict(zip(optimizer.returns, _leaves(builder, updated), strict=True))
        if distributed is not None and distributed.stage in (1, 2):
            trained = {v: i for v, i in types.items() if (GRADIENT, v[1]) in given}
            new |= {v: variables[v] for v in types} | ranks.gathered(new, trained)
        one = Constant(np.array([0, 1], np.uint64))
        new |= {v: ops.add(variables[v], one) for v in step.takes if v[0] == RANDOM}
        values = [builder.emit_output(new[v], "out") for v in step.returns]
    body = builder.finish(Tuple(tuple(values)))
    attrs = {"private": True, "donate": step.donated}
    return Function(tuple(step.arrange(variables)), body, None, attrs, span=module[ADJOINT].span)


def _on_rows(
    builder: BlockBuilder, module: IRModule, convention: Convention, variables: Mapping[Value, Expr]
) -> dict[Value, Expr]:
    """What adjoint, divisor and outputs give on some rows."""
    adjoint = convention[ADJOINT]
    result = builder.emit(module.get_global_var(ADJOINT)(*adjoint.arrange(variables)), "adjoint")
    new = dict(zip(adjoint.returns, _leaves(builder, result), strict=True))
    if DIVISOR in convention:
        divisor = builder.emit(module.get_global_var(DIVISOR)(*convention[DIVISOR].arrange(variables)), "divisor")
        new[DIVISOR_VALUE, 0] = divisor
    if OUTPUTS in convention:
        outputs = builder.emit(module.get_global_var(OUTPUTS)(*convention[OUTPUTS].arrange(variables)), "outputs")
        new |= dict(zip(convention[OUTPUTS].returns, _leaves(builder, outputs), strict=True))
    return new


def _masked(builder: BlockBuilder, module: IRModule, new: dict[Value, Expr]) -> dict[Value, Expr]:
    """The gradients of a batch that counts nothing, 0 / 0, are 0."""
    if (DIVISOR_VALUE, 0) in new and not module[DIVISOR].attrs[GUARDED]:
        counts = builder.emit(ops.not_equal(new[DIVISOR_VALUE, 0], 0.0))
        return {v: masked(counts, e) if v[0] == GRADIENT else e for v, e in new.items()}
    return new


def _update(result: IRModule, module: IRModule, convention: Convention, distributed: Distributed) -> GlobalVar:
    """The optimizer's function, over pieces where ranks hold these."""
    if distributed.stage == 0:
        return module.get_global_var(OPTIMIZER)
    takes = convention[OPTIMIZER].takes
    pieces = {*held_as_pieces(module), *(v for v in takes if v[0] in (PARAMETER, GRADIENT))}
    name = str(module.attrs.get("training", {}).get("optimizer") or "the optimizer")
    result[PIECEWISE] = piecewise(module[OPTIMIZER], takes, pieces, distributed, name, module)
    return result.get_global_var(PIECEWISE)


def _types(module: IRModule, convention: Convention) -> dict[Value, Any]:
    """The types of what the optimizer takes."""
    infos = [info for p in module[OPTIMIZER].params for info in flat_infos(p.struct_info)]
    return dict(zip(convention[OPTIMIZER].takes, infos, strict=True))


def _variables(
    module: IRModule, convention: Convention, distributed: Distributed | None, pieces: Mapping[Value, TensorStructInfo]
) -> dict[Value, Var]:
    """A variable for each value that the step takes: the rows of all of a rank's shards, pieces where it has these."""
    adjoint, optimizer = module[ADJOINT], module[OPTIMIZER]
    if not all(isinstance(p.struct_info, TupleStructInfo) for p in optimizer.params):
        message = "the optimizer takes three tuples: parameters, gradients, and states"
        raise UserError(message, span=optimizer.span)

    def info(value: Value, own: StructInfo) -> StructInfo:
        if value in pieces:
            return pieces[value]
        count = 1 if distributed is None else distributed.micro_batches
        if count == 1 or not has_rows(module, convention, value):
            return own
        assert isinstance(own, TensorStructInfo)
        return TensorStructInfo((own.sizes[0] * count, *own.sizes[1:]), own.dtype)

    named = zip(convention[ADJOINT].takes, adjoint.params, strict=True)
    mine = {v: Var(p.name, info(v, p.struct_info), span=p.span) for v, p in named}
    types = _types(module, convention)
    kept = {v: Var(f"optim_state_{k}", info(v, types[v])) for k, v in enumerate(convention.optimizer_states)}
    return mine | kept


def _nested(flat: list[Expr], function: Function) -> list[Expr]:
    """Arguments that are tuples, as the function's parameters are."""
    rest = iter(flat)

    def value(info: StructInfo) -> Expr:
        return Tuple(tuple([value(f) for f in info.fields])) if isinstance(info, TupleStructInfo) else next(rest)

    return [value(p.struct_info) for p in function.params]


def _leaves(builder: BlockBuilder, expr: Expr) -> list[Expr]:
    """The tensors in what a call returned."""
    info = expr.struct_info
    if not isinstance(info, TupleStructInfo):
        return [expr]
    fields = [TupleGetItem(expr, k) for k in range(len(info.fields))]
    return [leaf for f in fields for leaf in _leaves(builder, f)]
