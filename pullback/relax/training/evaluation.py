"""The function that evaluates a batch.

    __evaluate(inputs…, params…, states…, targets…) -> (loss, first output of the backbone)

It calls ``backbone_loss`` and ``backbone``: inlined, both in their form for inference, what they have in common is
computed once.
"""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import ADJOINT, BACKBONE, EVALUATE, LOSS, LOSS_VALUE, OPTIMIZER, OUTPUT, Convention
from pullback.relax.expr import Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.struct_info import TupleStructInfo


def evaluation(module: IRModule) -> IRModule:
    """A trainer module with ``__evaluate`` in place of what trains."""
    convention = Convention.of(module)
    result = module.copy()
    for name in (ADJOINT, OPTIMIZER):
        if name in result:
            del result[name]
    params = tuple(Var(p.name, p.struct_info, span=p.span) for p in module[LOSS].params)
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        loss = builder.emit(module.get_global_var(LOSS)(*params), "loss")
        given = dict(zip(convention[LOSS].takes, params, strict=True))
        outputs = builder.emit(module.get_global_var(BACKBONE)(*convention[BACKBONE].arrange(given)), "outputs")
        places = (loss, convention[LOSS].returned(LOSS_VALUE)), (outputs, convention[BACKBONE].returned(OUTPUT))
        results = [builder.emit_output(_result(value, numbers[0])) for value, numbers in places]
    body = builder.finish(Tuple(tuple(results)))
    result[EVALUATE] = Function(params, body, None, {"private": True}, span=module[BACKBONE].span)
    return result


def _result(value: Expr, number: int) -> Expr:
    return TupleGetItem(value, number) if isinstance(value.struct_info, TupleStructInfo) else value
