"""RebatchInputs: the same model for another batch size.

    def backbone(x: R.Tensor((64, 784)), w: …) …    with 32    →    def backbone(x: R.Tensor((32, 784)), w: …) …

All types are deduced anew from the new inputs. A model that writes its batch size out (``R.reshape(x, (64, -1))``)
cannot be rebatched: that is a ShapeError that says to make the size symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Function, Var
from pullback.relax.mutator import inline_body
from pullback.relax.struct_info import TensorStructInfo, format_info


@dataclass(frozen=True)
class RebatchInputs(Pass):
    """Give the first ``input_num`` parameters of ``func_name`` (and those in ``also``) the leading size ``batch``."""

    batch: int
    func_name: str = "backbone"
    input_num: int = 1
    also: Sequence[str] = ()

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        result[self.func_name] = self.rebatched(module[self.func_name])
        return result

    def rebatched(self, function: Function) -> Function:
        arguments: dict[Var, Expr] = {}
        for i, param in enumerate(function.params):
            info = param.struct_info
            if i < self.input_num or param.name in self.also:
                if not isinstance(info, TensorStructInfo) or not info.shape:
                    raise ShapeError(f"input {param.name} is {format_info(info)}: it has no batch dimension")
                info = TensorStructInfo((self.batch, *info.shape[1:]), info.dtype)
            arguments[param] = Var(param.name, info, span=param.span)
        builder = BlockBuilder()
        builder.begin([p.name for p in function.params])
        try:
            body = inline_body(function, arguments, builder)
            return Function(tuple(arguments.values()), body, None, function.attrs, span=function.span)  # type: ignore[arg-type]
        except UserError as error:
            raise ShapeError(
                f"{self.func_name} cannot run on batches of {self.batch} rows: {error.message}",
                span=error.span,
                hint='make the batch dimension symbolic: x: R.Tensor(("n", …), …), and use -1 in reshapes',
            ) from error
