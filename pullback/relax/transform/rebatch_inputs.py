"""RebatchInputs: the same model for another batch size.

    def backbone(x: R.Tensor((64, 784)), w: …) …    with 32    →    def backbone(x: R.Tensor((32, 784)), w: …) …

All types are deduced anew from the new inputs. A model that writes its batch size out (``R.reshape(x, (64, -1))``)
cannot be rebatched: that is a ShapeError that says to make the size symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import CUSTOM, LOOP, given_to_region, with_floats
from pullback.relax.expr import Call, Function, Var
from pullback.relax.mutator import Emitter
from pullback.relax.recursion import RECURSE
from pullback.relax.regions import regions
from pullback.relax.struct_info import StructInfo, TensorStructInfo, fields_of, format_info


@dataclass(frozen=True)
class RebatchInputs(Pass):
    """Give the first ``input_num`` parameters of ``func_name`` (and those in ``also``) the leading size ``batch``.

    Args:
        batch: the number of rows, an int or an int64 expression.
        func_name: the name of the function.
        input_num: how many parameters are inputs, from the first.
        also: names of others that have the batch's size, such as states.

    Examples:
        >>> @R.function
        ... def backbone(a: R.Tensor((64, 16), "float32"), w: R.Tensor((16, 4), "float32")):
        ...     return R.matmul(a, w)
        >>> module = relax.transform.RebatchInputs(32)(pullback.IRModule({"backbone": backbone}))
        >>> module["backbone"].ret_struct_info
        Tensor((32, 4), float32)

    Checks: raises ShapeError for an input without axes, and where an op of the function does not take the new size, as
    a reshape to sizes that are written out.
    """

    batch: int
    func_name: str = "backbone"
    input_num: int = 1
    also: Sequence[str] = ()

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        result[self.func_name] = self.rebatched(module[self.func_name])
        return result

    def rebatched(self, function: Function) -> Function:
        infos, input_num, also = [], whole("input_num", self.input_num), set(map(str, sequence("also", self.also)))
        for i, param in enumerate(function.params):
            info = param.struct_info
            if i < input_num or param.name in also:
                if not isinstance(info, TensorStructInfo) or not info.shape:
                    raise ShapeError(f"input {param.name} is {format_info(info)}: it has no batch dimension")
                info = TensorStructInfo((self.batch, *info.shape[1:]), info.dtype)
            infos.append(info)
        try:
            return retyped(function, infos)
        except UserError as error:
            raise ShapeError(
                f"{self.func_name} cannot run on batches of {self.batch} rows: {error.message}",
                span=error.span,
                hint='make the batch dimension symbolic: x: R.Tensor(("n", …), …), and use -1 in reshapes',
            ) from error


def retyped(function: Function, infos: Sequence[StructInfo]) -> Function:
    """The function over parameters of these types; so are the regions of its branches and loops."""
    params = [Var(p.name, info, span=p.span) for p, info in zip(function.params, infos, strict=True)]
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    body = _Retyper(builder, dict(zip(function.params, params, strict=True))).branch(function.body)
    return Function(tuple(params), body, None, function.attrs, span=function.span)


class _Retyper(Emitter):
    def _call(self, call: Call) -> Call:
        found = dict(regions(call))
        if not found or call.op is RECURSE:  # what a recursive function gives is said where it calls itself
            return super()._call(call)
        args = tuple(self.expr(a) for a in call.args)
        infos, attrs = [a.struct_info for a in args], dict(call.attrs)
        for name, region in found.items():
            given = given_to_region(call.op, name, infos)
            if call.op is CUSTOM and name == "adjoint":
                given += with_floats(fields_of(attrs["function"].ret_struct_info))
            attrs[name] = retyped(region, given)
        if call.op is LOOP and args[2].fields:
            attrs["length"] = args[2].fields[0].shape[0]
        return Call(call.op, args, attrs, span=call.span)
