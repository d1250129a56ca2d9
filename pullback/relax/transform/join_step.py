"""JoinStep: forward, loss, backward and optimizer of a trainer module as one function.

    __step(inputs…, params…, states…, targets…, random state?, optimizer states…)
        -> (loss, new params…, new states…, new random state?, new optimizer states…)

The new values take over the memory of the old ones when the function is compiled (attribute ``donate``: number of the
flattened result → number of the flattened parameter). A model that draws random numbers has a random state (attribute
``random_state_num``), (seed, number of the step): the step counts it on. Where the attribute ``loss_scale_state`` says
which optimizer state is the loss scale, the adjoint takes it as its last parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TupleStructInfo

ADJOINT, OPTIMIZER, STEP = "backbone_loss_adjoint", "optimizer", "__step"
LOSS_SCALE_STATE = "loss_scale_state"


def is_trainer_module(module: IRModule) -> bool:
    """Whether SetupTrainer made the module (or somebody with the same names and attributes)."""
    attrs = all(k in module.attrs for k in ("param_num", "state_num", "input_num"))
    return attrs and all(isinstance(module.functions.get(n), Function) for n in (ADJOINT, OPTIMIZER))


@dataclass(frozen=True)
class JoinStep(Pass):
    """Add ``__step`` to a trainer module; other modules stay as they are."""

    def run(self, module: IRModule) -> IRModule:
        if not is_trainer_module(module):
            return module
        result = module.copy()
        result[STEP] = _joined(module)
        return result


def _joined(module: IRModule) -> Function:
    adjoint, optimizer = module[ADJOINT], module[OPTIMIZER]
    inputs, params, states = (module.attrs[k] for k in ("input_num", "param_num", "state_num"))
    scale = module.attrs.get(LOSS_SCALE_STATE)
    own = adjoint.params if scale is None else adjoint.params[:-1]
    variables = [Var(p.name, p.struct_info, span=p.span) for p in own]
    kept = variables[inputs : inputs + params]
    random = variables[len(variables) - module.attrs.get("random_state_num", 0) :]
    optim_info = optimizer.params[2].struct_info
    if not isinstance(optim_info, TupleStructInfo):
        raise UserError("the optimizer's third parameter must be a tuple of states", span=optimizer.span)
    optim_states = [Var(f"optim_state_{k}", f) for k, f in enumerate(optim_info.fields)]
    builder = BlockBuilder()
    builder.begin([v.name for v in (*variables, *optim_states)])
    with builder.dataflow():
        scales = [] if scale is None else [optim_states[scale]]
        result = builder.emit(module.get_global_var(ADJOINT)(*variables, *scales), "adjoint")
        original, gradients = builder.emit(TupleGetItem(result, 0)), builder.emit(TupleGetItem(result, 1))
        updated = builder.emit(
            module.get_global_var(OPTIMIZER)(Tuple(tuple(kept)), gradients, Tuple(tuple(optim_states))), "updated"
        )
        outputs = _fields(original)
        loss, new_states = outputs[0], outputs[len(outputs) - states :]
        advanced = [ops.add(state, Constant(np.array([0, 1], np.uint64))) for state in random]
        news = [*_fields(TupleGetItem(updated, 0)), *new_states, *advanced, *_fields(TupleGetItem(updated, 1))]
        values = [builder.emit_output(e, "out") for e in (loss, *news)]
    body = builder.finish(Tuple(tuple(values)))
    first_state = inputs + params
    first_random = len(variables) - len(random)
    donated = [*range(inputs, first_state + states), *range(first_random, len(variables) + len(optim_states))]
    attrs = {"private": True, "donate": tuple(donated)}
    return Function((*variables, *optim_states), body, None, attrs, span=adjoint.span)


def _fields(expr: Expr) -> list[Expr]:
    info = expr.struct_info
    return [TupleGetItem(expr, k) for k in range(len(info.fields))] if isinstance(info, TupleStructInfo) else [expr]
