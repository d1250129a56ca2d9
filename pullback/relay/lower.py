"""Lowering: a function of relay as a module of the graph IR.

    fn (%x: Tensor[(3), float32]) {            @R.function
      let %y = multiply(%x, %x);       →       def main(x: R.Tensor((3,), "float32")):
      add(%y, 1f)                                  y = R.multiply(x, x)
    }                                              return R.add(y, R.const(1, "float32"))

What the function does besides dataflow is computed meanwhile, as ``staging/`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import relax, tir
from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relay.expr import Function, Var
from pullback.relay.staging.errors import NotDataflow, UnknownType
from pullback.relay.staging.stager import Stager
from pullback.relay.staging.values import nested_of, to_graph
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType, Type

__all__ = ["NotDataflow", "UnknownType", "lower"]


def lower(
    program: Function | IRModule,
    entry: str = "main",
    module: IRModule | None = None,
    types: Sequence[Type] | None = None,
) -> IRModule:
    """A module of the graph IR whose function ``main`` computes the function, or the function ``entry`` of a module.

    Its parameters have relay's names and types; sizes that are not known become symbolic. ``module`` has the functions
    that the function calls; ``types`` are of the arguments, where they are known better than the parameters say.

    Raises NotDataflow, which names the first construct that has no form in the graph IR and its place, and UserError
    where a parameter's type is not known.

    >>> x = relay.var("x", shape=(3,))
    >>> pullback.compile(lower(relay.Function([x], x * x)))["main"](np.ones(3, "float32"))
    """
    if isinstance(program, IRModule):
        module, program = program, program[entry]
    if not isinstance(program, Function):
        hint = "pass relay.Function([], expression)"
        raise ArgumentError(f"a function of relay is lowered, not {type(program).__name__}", hint=hint)
    return _lower(program, IRModule() if module is None else module, types)


@deep
def _lower(function: Function, module: IRModule, types: Sequence[Type] | None) -> IRModule:
    builder = relax.BlockBuilder()
    infos = Infos()
    declared = [type_of_param(p) for p in function.params] if types is None else types
    for param in function.params:
        builder.reserve(param.name)
    params = [relax.Var(p.name, infos.of(t)) for p, t in zip(function.params, declared, strict=True)]
    with builder.function("main", params):
        stager = Stager(module, builder)
        result = stager.call_function(function, [nested_of(p) for p in params])
        builder.emit_func_output(to_graph(result, "the result", function.span))
    return builder.get()


def type_of_param(param: Var) -> Type:
    """The type of a parameter: its annotation, or what inference found.

    Raises UnknownType where it is not known.
    """
    found = param.checked_type_ if param.type_annotation is None else param.type_annotation
    if found is None:
        hint = f'give it one: relay.var("{param.name}", shape=(2, 3)), or run relay.transform.InferType() first'
        raise UnknownType(f"the type of parameter %{param.name} is not known", span=param.span, hint=hint)
    return found


class Infos:
    """Types of relay as those of the graph IR; each size that is not known gets a name of its own."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, type_: Type) -> StructInfo:
        """The graph IR's type.

        Raises NotDataflow where there is none.
        """
        if isinstance(type_, TensorType):
            return TensorStructInfo([self._size(s) for s in type_.shape], type_.dtype)
        if isinstance(type_, TupleType):
            return TupleStructInfo(tuple(self.of(f) for f in type_.fields))
        kind = {"FuncType": "closure", "RefType": "reference"}.get(type(type_).__name__, "data type")
        hint = 'the executors "vm" and "debug" take such arguments'
        raise NotDataflow(f"{kind}: a parameter of such a type has no form in the graph IR", hint=hint)

    def _size(self, size: Any) -> Any:
        if not isinstance(size, AnySize):
            return size
        self.count += 1
        return tir.Var(f"any_{self.count}", "int64")
