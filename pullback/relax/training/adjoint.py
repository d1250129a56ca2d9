"""The adjoint of a trainer module's loss function, with a loss scale where its optimizer keeps one.

    def backbone_loss_adjoint(x, w, targets, loss_scale):
        y = R.matmul(x, w)
        …
        loss_adjoint = R.multiply(R.ones(()), loss_scale)
        …
        inverse_scale = R.divide(R.const(1), loss_scale)
        w_adjoint_unscaled = R.multiply(w_adjoint, inverse_scale)
        return (loss, (w_adjoint_unscaled,))

What it returns are the gradients of the loss itself. They are not finite where a half-precision value between was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.module import IRModule
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import ADJOINT, LOSS
from pullback.relax.expr import Expr, Function, Tuple, TupleGetItem, Var, const
from pullback.relax.mutator import ExprMutator, emit_body
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, as_tensor, as_tuple
from pullback.relax.training.optimizer.value import cast
from pullback.relax.transform import Gradient, UnroundedProducts
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.distribute_step import SHARDED
from pullback.relax.transform.shard_loss import sharded_loss

SCALED = "scaled_loss"


def with_adjoint(module: IRModule, params: Sequence[int], has_scale: bool, is_mixed: bool) -> IRModule:
    """The module with ``backbone_loss_adjoint``, which gives the gradients of some parameters of ``backbone_loss``, by
    their numbers. ``has_scale``: its last parameter is the loss scale. ``is_mixed``: ``backbone_loss`` was rewritten by
    ``MixedPrecision``.
    """
    sharded = sharded_loss(module)
    work = module if sharded is None else _with(module, LOSS, sharded)
    result = _with_adjoint(work, params, has_scale)
    if is_mixed:
        result[ADJOINT] = UnroundedProducts().function(result[ADJOINT], result)
    if sharded is not None:
        result[SHARDED], result[LOSS] = sharded, module[LOSS]
    return result


def _with(module: IRModule, name: str, function: Function) -> IRModule:
    result = module.copy()
    result[name] = function
    return result


def with_gradients_of(trained: Sequence[int], optimizer: Function) -> Function:
    """The optimizer function without the gradients that it does not look at: of the tuple that it takes, those of
    other parameters than the ``trained`` ones."""
    values, gradients, states = optimizer.params
    infos: Sequence[StructInfo] = as_tuple(gradients.struct_info).fields
    if len(trained) == len(infos):
        return optimizer
    fewer = Var(gradients.name, TupleStructInfo(tuple(infos[i] for i in trained)), span=gradients.span)
    function = _FewerGradients(gradients, fewer, {i: k for k, i in enumerate(trained)}).function(optimizer)
    return Function((values, fewer, states), function.body, None, function.attrs, span=function.span)


class _FewerGradients(ExprMutator):
    def __init__(self, old: Var, new: Var, places: Mapping[int, int]) -> None:
        super().__init__()
        self.old, self.new, self.places = old, new, places

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, TupleGetItem) and expr.tuple_value is self.old:
            return TupleGetItem(self.new, self.places[expr.index], span=expr.span)
        return super().expr(expr)


def _with_adjoint(module: IRModule, params: Sequence[int], has_scale: bool) -> IRModule:
    function = module[LOSS]
    if not has_scale:
        return Gradient(LOSS, require_grads=[function.params[i] for i in params], target_index=0)(module)
    work = module.copy()
    work[SCALED] = scaled = _scaled(module)
    work = Gradient(SCALED, require_grads=[scaled.params[i] for i in params], target_index=0)(work)
    result = module.copy()
    for name, kernel in work.items():
        if name not in module and not isinstance(kernel, Function):
            result[name] = kernel  # an adjoint of a kernel
    result[ADJOINT] = _unscaled(work[f"{SCALED}_adjoint"], isinstance(function.ret_struct_info, TupleStructInfo))
    return result


def _scaled(module: IRModule) -> Function:
    """(parameters of backbone_loss…, loss_scale) -> (loss · loss_scale, what backbone_loss returns…)."""
    function = module[LOSS]
    params = [Var(p.name, p.struct_info, span=p.span) for p in function.params]
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    scale = Var(builder.unique("loss_scale"), TensorStructInfo((), "float32"))
    with builder.dataflow():
        results = _fields(emit_body(function, dict(zip(function.params, params, strict=True)), builder))
        loss = op.multiply(results[0], cast(scale, as_tensor(results[0].struct_info).dtype))
        outputs = [builder.emit_output(e) for e in (loss, *results)]
    return Function((*params, scale), builder.finish(Tuple(tuple(outputs))), None, {}, span=function.span)


def _unscaled(adjoint: Function, has_states: bool) -> Function:
    """((loss, states…) or the loss, gradients divided by the scale)."""
    builder = BlockBuilder()
    builder.begin([p.name for p in adjoint.params])
    scale = adjoint.params[-1]
    with builder.dataflow():
        forward, gradients = emit_body(adjoint, {p: p for p in adjoint.params}, builder).fields
        inverse = builder.emit(op.divide(const(1.0, "float32"), scale), "inverse_scale")
        loss, *states = [builder.emit_output(e, _name(e)) for e in _fields(forward)[1:]]
        unscaled = [
            builder.emit_output(
                op.multiply(g, cast(inverse, as_tensor(g.struct_info).dtype)), _name(g).replace("_out", "_unscaled")
            )
            for g in _fields(gradients)
        ]
    original = Tuple((loss, *states)) if has_states else loss
    body = builder.finish(Tuple((original, Tuple(tuple(unscaled)))))
    return remove_dead_bindings(Function(adjoint.params, body, None, adjoint.attrs, span=adjoint.span))


def _name(value: Expr) -> str:
    return getattr(value, "name", "out")


def _fields(value: Expr) -> list[Expr]:
    if isinstance(value, Tuple):
        return list(value.fields)
    info = value.struct_info
    return [TupleGetItem(value, i) for i in range(len(info.fields))] if isinstance(info, TupleStructInfo) else [value]
