"""Joining a backbone and a loss to one function.

def backbone(x, w):                     def backbone_loss(x, w, targets):
    with R.dataflow():                      with R.dataflow():
        out = R.matmul(x, w)                    out = R.matmul(x, w)
        R.output(out)                →          lv = R.subtract(out, targets)
    return out                                  lv1 = R.multiply(lv, lv)
                                                loss = R.mean(lv1)
MSELoss()(…)                                    R.output(loss)
                                            return loss
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import DataflowVar, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.matching import bind_sizes, match_info
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.register import register_te_gradient  # noqa: F401  a public name of this module
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, format_info
from pullback.tir.expr import FLOATS
from pullback.tir.expr import Var as SizeVar


@dataclass(frozen=True)
class AppendLoss(Pass):
    """Add the function ``new_func_name``, by default ``<func_name>_loss``: the backbone with the loss on top.

        def backbone(x, w): … return out        →        def backbone_loss(x, w, targets): … return loss

    See :func:`append_loss`; ``loss_function`` is commonly what a :class:`~pullback.relax.training.loss.Loss` returns.

    Args:
        func_name: of the backbone.
        loss_function: the loss, commonly what a Loss returns.
        num_backbone_outputs: how many of the backbone's results it takes.
        new_func_name: by default ``<func_name>_loss``.

    Checks: raises ArgumentError where ``func_name`` is a kernel, or the backbone's results do not fit the loss, and
    where the loss is no float scalar.
    """

    func_name: str
    loss_function: Function
    num_backbone_outputs: int = 1
    new_func_name: str | None = None

    def run(self, module: IRModule) -> IRModule:
        backbone = module[self.func_name]
        if not isinstance(backbone, Function):
            raise ArgumentError(
                f"{self.func_name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        result = module.copy()
        joined = append_loss(backbone, self.loss_function, self.num_backbone_outputs)
        result[self.new_func_name or f"{self.func_name}_loss"] = joined
        return result


def append_loss(orig_func: Function, loss_func: Function, num_backbone_outputs: int = 1) -> Function:
    """A function that runs ``orig_func`` and gives its first ``num_backbone_outputs`` results to ``loss_func``.

    Its parameters are fresh ones: the backbone's, then the loss's remaining ones. It returns the loss, or, when the
    backbone has more results (states), ``(loss, rest…)``. All bindings lie in one dataflow block, however many blocks
    the two functions have. Symbolic sizes of the loss take the values they have in the backbone.

    Args:
        orig_func: the backbone.
        loss_func: the loss.
        num_backbone_outputs: how many results the loss takes.

    Returns:
        the function, with fresh parameters.

    Raises:
        ArgumentError, ShapeError: when the backbone's result is neither a tensor nor a tuple of tensors, has too few
            results, they do not fit the loss's parameters, or the loss is no float scalar.
    """
    _check_functions(orig_func, loss_func)
    outputs = _results(orig_func)
    sizes = _match(outputs, loss_func, num_backbone_outputs)
    _check_scalar(loss_func)
    builder = BlockBuilder()
    params = [Var(p.name, p.struct_info, span=p.span) for p in orig_func.params]
    builder.begin([p.name for p in params])
    with builder.dataflow():
        rest = outputs[num_backbone_outputs:]
        backbone = _Emitter(builder, dict(zip(orig_func.params, params, strict=True)), rest)
        backbone.emit(orig_func)
        values = [backbone.expr(output) for output in outputs]
        targets = [
            Var(builder.unique(p.name), bind_sizes(p.struct_info, sizes), span=p.span)
            for p in loss_func.params[num_backbone_outputs:]
        ]
        arguments = dict(zip(loss_func.params, [*values[:num_backbone_outputs], *targets], strict=True))
        appended = _Emitter(builder, arguments, [loss_func.body.body], sizes)
        appended.emit(loss_func)
        results = [appended.expr(loss_func.body.body), *values[num_backbone_outputs:]]
        results = [_leaving(builder, r) for r in results]
    body = builder.finish(Tuple(tuple(results)) if rest else results[0])
    return Function((*params, *targets), body, span=orig_func.span)


def _check_functions(backbone: Any, loss: Any) -> None:
    """Both are graph functions."""
    if not isinstance(backbone, Function):
        hint = 'take it out of its module, mod["backbone"], or use the pass AppendLoss("backbone", loss_function)(mod)'
        raise ArgumentError(f"the backbone must be a graph function, not {type(backbone).__name__}", hint=hint)
    if not isinstance(loss, Function):
        hint = "call the loss on the types of its arguments: MSELoss()(prediction_info, target_info)"
        raise ArgumentError(f"AppendLoss takes the loss as a graph function, not {type(loss).__name__}", hint=hint)


class _Emitter(ExprMutator):
    """Emits a function's bindings into the builder's open dataflow block; the variables ``leaving`` outlive it."""

    def __init__(
        self,
        builder: BlockBuilder,
        arguments: Mapping[Var, Expr],
        leaving: Sequence[Expr],
        sizes: Mapping[SizeVar, Any] | None = None,
    ) -> None:
        super().__init__(sizes)
        self.builder, self.env = builder, dict(arguments.items())
        self.leaving = {e for e in leaving if isinstance(e, Var)}

    def emit(self, function: Function) -> None:
        for block in function.body.blocks:
            self.block(block)

    def bind(self, var: Var, value: Expr) -> None:
        emit = self.builder.emit_output if var in self.leaving else self.builder.emit
        self.env[var] = emit(value, var.name)


def _leaving(builder: BlockBuilder, value: Expr) -> Expr:
    """A result under a variable that may leave the dataflow block."""
    if isinstance(value, (TupleGetItem, DataflowVar)):
        return builder.emit_output(value, getattr(value, "name", "gv"))
    return value


def _results(function: Function) -> list[Expr]:
    """The results of the backbone, one expression each."""
    result, info = function.body.body, function.ret_struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if not all(isinstance(i, TensorStructInfo) for i in infos):
        raise ArgumentError(
            f"the backbone must return a tensor or a tuple of tensors, it returns {format_info(info)}",
            span=function.span,
            hint="return the predictions, then the states, all in one flat tuple",
        )
    if not isinstance(info, TupleStructInfo):
        return [result]
    return list(result.fields) if isinstance(result, Tuple) else [TupleGetItem(result, i) for i in range(len(infos))]


def _match(outputs: Sequence[Expr], loss: Function, count: int) -> dict[SizeVar, Any]:
    """Check that the first outputs fit the loss's first parameters; returns the loss's symbolic sizes."""
    if count > len(outputs):
        raise ArgumentError(
            f"the loss takes {count} outputs of the backbone, which has {len(outputs)}",
            hint="the loss's arguments are the backbone's outputs, then the targets: return as many from the backbone",
        )
    if count > len(loss.params):
        raise ArgumentError(f"num_backbone_outputs is {count}, but the loss has {len(loss.params)} parameters")
    sizes: dict[SizeVar, Any] = {}
    for i, (param, output) in enumerate(zip(loss.params, outputs[:count], strict=False)):
        if not match_info(param.struct_info, output.struct_info, sizes):
            raise ShapeError(
                f"the loss takes {param.name} as {format_info(param.struct_info)},"
                f" output {i} of the backbone is {format_info(output.struct_info)}",
                hint="make the loss for the types that the backbone returns",
            )
    return sizes


def _check_scalar(loss: Function) -> None:
    info: StructInfo = loss.ret_struct_info
    if not isinstance(info, TensorStructInfo) or info.ndim != 0 or info.dtype not in FLOATS:
        raise ShapeError(
            f"the loss must be one floating-point scalar, it is {format_info(info)}",
            span=loss.span,
            hint='a loss with reduction "none" cannot be trained on: take "mean" or "sum"',
        )
