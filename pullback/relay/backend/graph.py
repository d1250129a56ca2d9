"""The executors of kind "graph" and "aot": a whole function as native code.

What the function does besides dataflow is computed when it is lowered (``relay/staging/``). What is left is an error,
a :class:`NotDataflow`, that names the first construct which has no native form, and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.struct_info import StructInfo, TupleStructInfo
from pullback.relay.backend.interpreter import Executor
from pullback.relay.backend.native import NativeFunction, native_function
from pullback.relay.evaluate.interpreter import arranged, checked
from pullback.relay.expr import Function, Let, Var, const
from pullback.relay.infer import infer_module
from pullback.relay.lower import NotDataflow, UnknownType, lower, type_of_param
from pullback.relay.ty import TupleType, Type
from pullback.runtime.container import ADT
from pullback.runtime.tensor import Tensor, tensor
from pullback.target import Target

NAMED = {"graph": 'the executor "graph"', "aot": 'the executor "aot"', "build": "relay.build"}


def lowered(function: Function, module: IRModule, kind: str) -> tuple[Function, IRModule]:
    """The function, with types, and its module of the graph IR.

    Raises NotDataflow, which says who refuses the function: ``kind`` is a key of ``NAMED``.
    """
    try:
        try:
            return function, lower(function, module=module)
        except UnknownType:
            function, module = typed(function, module)
            return function, lower(function, module=module)
    except NotDataflow as error:
        message = f"{NAMED[kind]} runs dataflow only; {error.message}"
        raise NotDataflow(message, span=error.span, hint=error.hint) from None


def typed(function: Function, module: IRModule) -> tuple[Function, IRModule]:
    """The function and the module with the types that inference finds."""
    name = module.unique_name("lowered")
    whole = module.copy()
    whole[name] = function
    found = infer_module(whole)
    return found[name], found


class GraphFunction:
    """A function compiled as a whole: arrays, tensors and tuples of them in, tensors out; several results come as a
    list."""

    def __init__(self, function: Function, module: IRModule, target: Target, kind: str, name: str) -> None:
        function, self.lowered = lowered(function, module, kind)
        self.name = name
        self.params = [(p.name, type_of_param(p)) for p in function.params]
        self.result: StructInfo = self.lowered["main"].ret_struct_info
        main = self.lowered["main"]
        self.names = flat_names([p.name for p in main.params], [p.struct_info for p in main.params])
        self.native: NativeFunction = native_function(self.lowered, target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = arranged(self.name, [name for name, _ in self.params], args, kwargs)
        flat: list[Tensor] = []
        for (name, declared), value in zip(self.params, given, strict=True):
            flatten(name, declared, value, flat)
        return nested(self.result, iter(self.native(flat)))

    def __repr__(self) -> str:
        return f"<{self.name}, compiled>"


def flatten(name: str, declared: Type, given: Any, flat: list[Tensor]) -> None:
    """Append the tensors of an argument, whose types are checked."""
    if isinstance(declared, TupleType):
        if not isinstance(given, (tuple, list)) or len(given) != len(declared.fields):
            what = f"{len(given)} values" if isinstance(given, (tuple, list)) else type(given).__name__
            raise UserError(f"%{name} must be a tuple of {len(declared.fields)} values, got {what}")
        for k, (field, value) in enumerate(zip(declared.fields, given, strict=True)):
            flatten(f"{name}.{k}", field, value, flat)
    else:
        value = checked(name, declared, given)
        flat.append(value if isinstance(value, Tensor) else tensor(value))


def nested(info: StructInfo, results: Iterator[Tensor]) -> Any:
    """Flat results as lists of lists."""
    if isinstance(info, TupleStructInfo):
        return ADT(0, [nested(field, results) for field in info.fields])
    return next(results)


class GraphExecutor(Executor):
    """Compiles whole functions; ``kind`` is "graph" or "aot", for messages."""

    def __init__(self, mod: IRModule, target: Target, kind: str) -> None:
        super().__init__(mod)
        self.target, self.kind = target, kind

    def _function(self, function: Any) -> Callable[..., Any]:
        if isinstance(function, GlobalVar):
            return GraphFunction(self.mod[function], self.mod, self.target, self.kind, f"@{function.name}")
        return GraphFunction(function, self.mod, self.target, self.kind, "the function")

    def _value(self, expr: Any, binds: Mapping[Var, Any]) -> Any:
        body: Any = expr
        for var, value in reversed(list(binds.items())):
            body = Let(var, const(checked(var.name, var.type_annotation, value)), body)
        return self._function(Function((), body))()


def flat_names(names: Sequence[str], infos: Sequence[StructInfo]) -> list[str]:
    """The names of the tensors of parameters: ``x``, and ``t.0``, ``t.1`` of a tuple."""
    found: list[str] = []

    def add(name: str, info: StructInfo) -> None:
        if isinstance(info, TupleStructInfo):
            for k, field in enumerate(info.fields):
                add(f"{name}.{k}", field)
        else:
            found.append(name)

    for name, info in zip(names, infos, strict=True):
        add(name, info)
    return found
