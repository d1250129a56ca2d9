"""JoinStep: forward, loss, backward and optimizer of a trainer module as one function.

    __step(inputs…, params…, states…, targets…, random state?, optimizer states…)
        -> (loss, divisor?, outputs…?, new params…, new states…, new random state?, new optimizer states…)

What the functions take is what ``relax/convention.py`` says. The new values take over the memory of the old ones when
the function is compiled (attribute ``donate``: of the flattened parameters those whose new values the last results
are). The divisor is what the loss is divided by (``loss_divisor.py``), if it is no sum; optimizer states that are a
batch's weight are set to it before the optimizer reads them. Outputs are what ``__outputs`` returns, where the module
has it. A random state is (seed, number of the step): the step
counts it on. What the adjoint takes of the optimizer's states, such as a loss scale, it gets from these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
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
    RANDOM,
    STEP,
    Convention,
    Value,
    is_trainer_module,
)
from pullback.relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.op.family import masked, narrowed
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import StructInfo, TupleStructInfo, flat_infos
from pullback.relax.transform.loss_divisor import GUARDED, loss_divisor
from pullback.relax.transform.raise_ops import RaiseOps


@dataclass(frozen=True)
class JoinStep(Pass):
    """Add ``__step`` to a trainer module; other modules stay as they are."""

    def run(self, module: IRModule) -> IRModule:
        if not is_trainer_module(module):
            return module
        convention = Convention.of(module)
        result = module.copy()
        if DIVISOR in convention:
            result[DIVISOR] = loss_divisor(RaiseOps()(module), convention[LOSS])
        result[STEP] = _joined(result, convention)
        return result


def _joined(module: IRModule, convention: Convention) -> Function:
    adjoint, optimizer, step = convention[ADJOINT], convention[OPTIMIZER], convention[STEP]
    variables = _variables(module, convention)
    builder = BlockBuilder()
    builder.begin([v.name for v in variables.values()])
    with builder.dataflow():
        result = builder.emit(module.get_global_var(ADJOINT)(*adjoint.arrange(variables)), "adjoint")
        new = dict(zip(adjoint.returns, _leaves(builder, result), strict=True))
        given = {v: e for v, e in new.items() if v[0] == GRADIENT}
        if DIVISOR in convention:
            divisor = builder.emit(module.get_global_var(DIVISOR)(*convention[DIVISOR].arrange(variables)), "divisor")
            new[DIVISOR_VALUE, 0] = divisor
            if not module[DIVISOR].attrs[GUARDED]:  # 0 / 0 of a batch that counts nothing
                counts = builder.emit(ops.not_equal(divisor, 0.0))
                given = {v: masked(counts, gradient) for v, gradient in given.items()}
            given |= {v: narrowed(divisor, s.dtype) for v, s in variables.items() if v[0] == BATCH_WEIGHT}
        if OUTPUTS in convention:
            outputs = builder.emit(module.get_global_var(OUTPUTS)(*convention[OUTPUTS].arrange(variables)), "outputs")
            new |= dict(zip(convention[OUTPUTS].returns, _leaves(builder, outputs), strict=True))
        arguments = _nested(optimizer.arrange(variables | given), module[OPTIMIZER])
        updated = builder.emit(module.get_global_var(OPTIMIZER)(*arguments), "updated")
        new |= dict(zip(optimizer.returns, _leaves(builder, updated), strict=True))
        one = Constant(np.array([0, 1], np.uint64))
        new |= {v: ops.add(variables[v], one) for v in step.takes if v[0] == RANDOM}
        values = [builder.emit_output(new[v], "out") for v in step.returns]
    body = builder.finish(Tuple(tuple(values)))
    attrs = {"private": True, "donate": step.donated}
    return Function(tuple(step.arrange(variables)), body, None, attrs, span=module[ADJOINT].span)


def _variables(module: IRModule, convention: Convention) -> dict[Value, Var]:
    """A variable for each value that the step takes."""
    adjoint, optimizer = module[ADJOINT], module[OPTIMIZER]
    if not all(isinstance(p.struct_info, TupleStructInfo) for p in optimizer.params):
        message = "the optimizer takes three tuples: parameters, gradients, and states"
        raise UserError(message, span=optimizer.span)
    named = zip(convention[ADJOINT].takes, adjoint.params, strict=True)
    own = {v: Var(p.name, p.struct_info, span=p.span) for v, p in named}
    infos = [info for p in optimizer.params for info in flat_infos(p.struct_info)]
    types = dict(zip(convention[OPTIMIZER].takes, infos, strict=True))
    kept = {v: Var(f"optim_state_{k}", types[v]) for k, v in enumerate(convention.optimizer_states)}
    return own | kept


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
