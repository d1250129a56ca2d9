"""A trainer module whose step returns the model's prediction too.

    __outputs(inputs…, params…, states…, random state?) -> first output of the backbone

It is the backbone as a step runs it: batch norm takes the statistics of the batch, and dropout drops what it drops in
``backbone_loss``, whose first sites are the backbone's. ``JoinStep`` calls it in ``__step``; inlined, what it has in
common with the adjoint is computed once.
"""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import ATTRIBUTE, BACKBONE, OUTPUT, OUTPUTS, RANDOM, Convention, Roles
from pullback.relax.expr import Function, TupleGetItem, Var
from pullback.relax.mutator import emit_body
from pullback.relax.struct_info import TupleStructInfo
from pullback.relax.transform import AddRandomState, RaiseOps
from pullback.relax.transform.distribute_step import SHARDED
from pullback.relax.transform.distributed import Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.shard_loss import sharded


def observed(module: IRModule) -> IRModule:
    """The trainer module with ``__outputs``."""
    convention = Convention.of(module)
    raised = RaiseOps()(module)
    function = _first_output(inline_calls(raised[BACKBONE], raised))
    work = AddRandomState(OUTPUTS)(IRModule({**raised.functions, OUTPUTS: function}, raised.attrs))
    result = module.copy()
    result[OUTPUTS] = work[OUTPUTS]
    draws = len(work[OUTPUTS].params) > len(function.params)
    takes = (*convention[BACKBONE].takes, *([(RANDOM, 0)] if draws else []))
    made = {name: roles for name, roles in convention.functions.items() if name in module}
    roles = Convention({**made, OUTPUTS: Roles(takes, ((OUTPUT, 0),))})
    result = result.with_attrs({ATTRIBUTE: roles.attribute})
    distributed = Distributed.of(module)
    if distributed is not None and SHARDED in module:
        result[OUTPUTS] = sharded(result[OUTPUTS], OUTPUTS, result, distributed)
    return result


def _first_output(backbone: Function) -> Function:
    params = tuple(Var(p.name, p.struct_info, span=p.span) for p in backbone.params)
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        value = emit_body(backbone, dict(zip(backbone.params, params, strict=True)), builder)
        is_tuple = isinstance(value.struct_info, TupleStructInfo)
        output = builder.emit_output(TupleGetItem(value, 0) if is_tuple else value)
    return Function(params, builder.finish(output), None, {"private": True}, span=backbone.span)
