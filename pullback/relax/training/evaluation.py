"""The function that evaluates a batch.

    __evaluate(inputs…, params…, states…, targets…) -> (loss, divisor?, first output of the backbone)

It calls ``backbone_loss`` and ``backbone``: inlined, both in their form for inference, what they have in common is
computed once. The divisor is what the loss is divided by, if it is no sum: see ``relax/transform/loss_divisor.py``.
"""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import (
    ADJOINT,
    BACKBONE,
    DIVISOR,
    EVALUATE,
    LOSS,
    OPTIMIZER,
    Convention,
    Value,
)
from pullback.relax.expr import Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.struct_info import TupleStructInfo
from pullback.relax.transform import RaiseOps
from pullback.relax.transform.loss_divisor import loss_divisor


def evaluation(module: IRModule) -> IRModule:
    """A trainer module with ``__evaluate`` in place of what trains."""
    convention = Convention.of(module)
    result, called = module.copy(), [LOSS, BACKBONE]
    if DIVISOR in convention:
        result[DIVISOR] = loss_divisor(RaiseOps()(module), convention[LOSS])
        called.append(DIVISOR)
    for name in (ADJOINT, OPTIMIZER):
        if name in result:
            del result[name]
    params = tuple(Var(p.name, p.struct_info, span=p.span) for p in module[LOSS].params)
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        given = dict(zip(convention[LOSS].takes, params, strict=True))
        found: dict[Value, Expr] = {}
        for name in called:
            value = builder.emit(result.get_global_var(name)(*convention[name].arrange(given)))
            found |= {v: _result(value, number) for number, v in enumerate(convention[name].returns)}
        results = [builder.emit_output(found[v]) for v in convention[EVALUATE].returns]
    body = builder.finish(Tuple(tuple(results)))
    result[EVALUATE] = Function(params, body, None, {"private": True}, span=module[BACKBONE].span)
    return result


def _result(value: Expr, number: int) -> Expr:
    return TupleGetItem(value, number) if isinstance(value.struct_info, TupleStructInfo) else value
