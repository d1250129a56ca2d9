"""From a module to an IRModule, and from arrays to the types of its inputs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, UserError
from pullback.ir.module import IRModule
from pullback.nn.container import Sequential
from pullback.nn.frozen import in_form_for_inference
from pullback.nn.parameter import Buffer, Variable
from pullback.nn.trace import Trace, current_trace, tracing
from pullback.nn.updates import attributes, updated
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import BACKBONE
from pullback.relax.expr import Constant, Expr, Function, Tuple, Var
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.interface import Slot
from pullback.relax.training.summary import Layer
from pullback.relax.training.values import as_array
from pullback.runtime.dtype import dtype_name, numpy_dtype
from pullback.runtime.interchange import array_of, is_python_data
from pullback.runtime.tensor import Tensor
from pullback.tir.expr import Var as Size

if TYPE_CHECKING:
    from pullback.nn.module import Module

FROZEN, ALIASES = "frozen", "aliases"  # module attributes: names of parameters that are not trained; other names
NESTED = "nested"  # how a forward groups its results, where they are no flat tuple: numbers of results
_NARROW = ("uint8", "bool")  # dtypes of images and masks
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def export(module: Module, example: Sequence[Any], any_batch: bool = True) -> IRModule:
    """The IRModule of a module: see :meth:`Module.export`. Without ``any_batch``, for the rows of the example."""
    return export_layers(module, example, any_batch)[0]


def export_layers(module: Module, example: Sequence[Any], any_batch: bool = True) -> tuple[IRModule, list[Layer]]:
    """:func:`export`, and the calls of modules on the way."""
    if current_trace() is not None:
        raise UserError("export is called in forward", hint="call the module itself: self.layer(x)")
    if not example:
        raise ArgumentError("export needs an example of each input", hint="net.export(x[:1]), only its type counts")
    if len(example) == 1 and isinstance(example[0], (tuple, list)) and _are_inputs(example[0]):
        example = example[0]
    if len(example) == 1 and isinstance(example[0], Mapping):
        example = _by_name(module, example[0])
    given = _Inputs.of(module, example, any_batch)
    refused: UserError | None = None
    for types in given.candidates(_float_dtype(module, "float32" if any_batch else None)):
        try:
            return _exported(module, given.names, types)
        except DTypeError as error:
            refused = refused or error
    assert refused is not None
    raise refused


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a forward: their names, and their types as the example says."""

    names: list[str]
    types: list[TensorStructInfo]
    free: list[bool]  # whether the dtype is that of an array, not one that was asked for

    @staticmethod
    def of(module: Module, example: Sequence[Any], any_batch: bool) -> _Inputs:
        names = _input_names(module, len(example))
        types: list[TensorStructInfo] = []
        batch: Any = None
        size = Size("n", "int64")
        for name, value in zip(names, example, strict=True):
            if isinstance(value, StructInfo):
                if not isinstance(value, TensorStructInfo) or value.shape is None:
                    raise ArgumentError(f"input {name} must be a tensor of known shape, got {value}")
                types.append(value)
                continue
            shape, dtype = _type_of(name, value)
            if any_batch and shape and batch is None:
                batch = shape[0]
            shape = (size, *shape[1:]) if shape and shape[0] == batch else shape
            types.append(TensorStructInfo(shape, dtype))
        return _Inputs(names, types, [not isinstance(value, StructInfo) for value in example])

    def candidates(self, float_dtype: str | None) -> list[list[TensorStructInfo]]:
        """The types to try, one after the other: integers as they are, then those of images as floats, then all.
        Without a ``float_dtype``, all as they are."""
        if float_dtype is None:
            return [self.types]
        found: list[list[TensorStructInfo]] = []
        for converted in (_FLOATS, (*_FLOATS, *_NARROW), None):
            types = [
                TensorStructInfo(t.shape, float_dtype) if free and (converted is None or t.dtype in converted) else t
                for t, free in zip(self.types, self.free, strict=True)
            ]
            if not any(all(a.dtype == b.dtype for a, b in zip(types, f, strict=True)) for f in found):
                found.append(types)
        return found


def _exported(
    module: Module, names: list[str], types: list[TensorStructInfo]
) -> tuple[IRModule, list[Layer]]:  # fmt: skip
    params, buffers = list(module.named_parameters()), list(module.named_buffers())
    inputs = [Var(free_name(module, name), t) for name, t in zip(names, types, strict=True)]
    results: list[Any] = []

    def run() -> Any:
        results.append(module(*inputs))
        return results[0]

    function, states, layers = traced(module, inputs, run)
    attrs: dict[str, Any] = {"param_num": len(params), "state_num": len(states)}
    frozen = tuple(name for name, p in params if not p.requires_grad)
    aliases = _aliases(module, {id(v): name for name, v in (*params, *buffers)})
    attrs |= {FROZEN: frozen} if frozen else {}
    attrs |= {ALIASES: aliases} if aliases else {}
    attrs |= attributes(module)
    nested = _grouped(results[0], itertools.count())
    attrs |= {NESTED: nested} if any(isinstance(part, tuple) for part in nested) else {}
    return IRModule({BACKBONE: function}, attrs), layers


def free_name(module: Module, name: str) -> str:
    """A name for an input, which no parameter or buffer has."""
    taken = {n for n, _ in (*module.named_parameters(), *module.named_buffers())}
    return name if name not in taken else f"{name}_input"


def traced(
    module: Module, inputs: Sequence[Var], run: Callable[[], Any]
) -> tuple[Function, list[Buffer], list[Layer]]:  # fmt: skip
    """The function of inputs, parameters and states, which returns what ``run`` returns and the new states; the buffers
    that are states; and the calls of modules."""
    params, buffers = list(module.named_parameters()), list(module.named_buffers())
    variables = {id(v): Var(name, TensorStructInfo(v.shape, v.dtype)) for name, v in (*params, *buffers)}
    values: dict[int, Expr] = dict(variables)
    constants = {id(b) for _, b in buffers if not b.persistent}
    values |= {id(b): Constant(np.asarray(b.data)) for _, b in buffers if id(b) in constants}
    builder = BlockBuilder()
    builder.begin([v.name for v in (*inputs, *variables.values())])
    trace = Trace(builder, {id(m): name for name, m in reversed(list(module.named_modules()))}, values)
    with tracing(trace), builder.opened(), builder.dataflow():
        outputs = _outputs(run())
        _check_constants(trace, buffers, constants)
        states = [b for _, b in buffers if id(b) not in constants]
        results = [builder.emit_output(output, "output") for output in outputs]
        results += [builder.emit_output(trace.value(b), f"{variables[id(b)].name}_new") for b in states]
    body = builder.finish(results[0] if len(results) == 1 else Tuple(tuple(results)))
    arguments = (*inputs, *(variables[id(v)] for v in (*(p for _, p in params), *states)))
    frozen = {name for name, m in module.named_modules() if m.is_frozen}
    function = in_form_for_inference(Function(arguments, body), frozen)
    return updated(function, module, variables, len(states)), states, trace.layers


def _check_constants(trace: Trace, buffers: list[tuple[str, Buffer]], constants: set[int]) -> None:
    for name, buffer in buffers:
        if id(buffer) in trace.assigned & constants:
            raise UserError(
                f"buffer {name} is assigned in forward, so it is a state", hint="make it persistent: Buffer(value)"
            )


def _aliases(module: Module, names: dict[int, str]) -> dict[str, str]:
    """Other names of parameters and buffers that are held in several places."""
    return {name: names[id(v)] for name, v in module._variables() if names[id(v)] != name}


def _grouped(result: Any, numbers: Iterator[int]) -> tuple[Any, ...]:
    """The numbers of a forward's results, in the tuples that it returns."""
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(_grouped(p, numbers) if isinstance(p, (tuple, list)) else next(numbers) for p in parts)


def _as_grouped(results: Sequence[Any], groups: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_as_grouped(results, g) if isinstance(g, tuple) else results[g] for g in groups)


def _outputs(result: Any) -> list[Expr]:
    """The tensors that a forward returns."""
    if isinstance(result, dict):
        raise UserError("forward returns a dict", hint="return a tuple: the trainer gives outputs in that order")
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    flat: list[Expr] = []
    for output in outputs:
        flat += _outputs(output) if isinstance(output, (tuple, list)) else [output]
    for output in flat:
        if not isinstance(output, Expr):
            raise UserError(
                f"forward returns {'None' if output is None else type(output).__name__}, not a tensor",
                hint="does every path of forward end in return?",
            )
    return flat


def _input_names(module: Module, count: int) -> list[str]:
    """The names of the first ``count`` inputs of a forward; an ArgumentError when it takes more or fewer."""
    while isinstance(module, Sequential) and len(module):  # it takes what its first module takes
        module = module[0]
    named = module._own_input_names()
    if named is not None and count == len(named):
        return list(named)
    parameters = list(inspect.signature(module.forward).parameters.values())
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in places)
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if count < required or (count > len(places) and not many):
        taken = ", ".join(p.name for p in places) or "none"
        raise ArgumentError(
            f"{type(module).__name__}.forward takes the inputs ({taken}), got an example of {count}",
            hint="several inputs are a tuple of arrays: example=(x1, x2); of a batch (x, y) the example is x",
        )
    names = [p.name for p in places[:count]]
    return names + (["x"] if count == 1 and not names else [f"x{i}" for i in range(len(names), count)])


def _by_name(module: Module, example: Mapping[str, Any]) -> list[Any]:
    """An example by the names of inputs, in their order."""
    names = _input_names(module, len(example))
    if set(names) != set(example):
        raise ArgumentError(
            f"the example has the inputs {', '.join(map(str, example))}, the model takes {', '.join(names)}",
            hint="the names are those of forward's parameters",
        )
    return [example[name] for name in names]


def _type_of(name: str, value: Any) -> tuple[tuple[Any, ...], str]:
    """Shape and dtype of an array, without a copy of it."""
    if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
        raise ArgumentError(
            f"the example of input {name} is the shape {value}, not an array",
            hint=f"np.zeros({value}), or the type TensorStructInfo({value}, 'float32') for a fixed batch",
        )
    if hasattr(value, "columns") and hasattr(value, "iloc"):  # a data frame
        value = as_array(value, Slot("the example of input", name, TensorStructInfo((), "float32")))
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        is_array = is_python_data(value) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")
        if isinstance(value, Iterable) and not is_array and not isinstance(value, (str, bytes)):
            raise ArgumentError(
                f"the example of input {name} is a {type(value).__name__}, not an array",
                hint="it is one batch of inputs; of a DataLoader of (x, y): example=next(iter(loader))[0]",
            )
        try:
            value = np.asarray(value) if isinstance(value, Tensor) else array_of(value, None)
        except UserError as error:
            raise type(error)(f"the example of input {name}: {error.message}", hint=error.hint) from None
    dtype = str(value.dtype).rpartition(".")[2]  # torch.float32
    try:
        return tuple(int(size) for size in value.shape), dtype_name(numpy_dtype(dtype))
    except UserError as error:
        raise type(error)(f"the example of input {name}: {error.message}", hint=error.hint) from None


def _are_inputs(values: Any) -> bool:
    """Whether a tuple holds one value for each input, not the numbers of one."""
    return all(isinstance(v, StructInfo) or getattr(v, "shape", None) is not None for v in values)


def _float_dtype(module: Module, otherwise: str | None) -> str | None:
    """That of the parameters, if they all have the same."""
    found = {p.dtype for p in module.parameters() if p.dtype in _FLOATS}
    return found.pop() if len(found) == 1 else otherwise


def run(module: Module, inputs: Sequence[Any]) -> Any:
    """The results of a module for arrays, in the form for inference, with its present values."""
    from pullback.driver import compile
    from pullback.relax.convention import OUTPUT, Convention
    from pullback.relax.transform import DeadCodeElimination, DecomposeOpsForInference
    from pullback.runtime.tensor import tensor

    arrays = [np.asarray(v) if isinstance(v, Tensor) else array_of(v, None) for v in inputs]
    exported = export(module, arrays, any_batch=False)
    function = compile(DeadCodeElimination()(DecomposeOpsForInference(BACKBONE)(exported))).function(BACKBONE)
    declared = exported[BACKBONE].params
    given = [tensor(a.astype(numpy_dtype(v.dtype), copy=False)) for a, v in zip(arrays, declared, strict=False)]
    module.init_parameters(keep=True)
    kept: list[Variable] = [*module.parameters(), *(b for b in module.buffers() if b.persistent)]
    results = function(*given, *(v.data for v in kept))
    results = results if isinstance(results, tuple) else (results,)
    found = tuple(results[i] for i in Convention.of(exported)[BACKBONE].returned(OUTPUT))
    if NESTED in exported.attrs:
        return _as_grouped(found, exported.attrs[NESTED])
    return found[0] if len(found) == 1 else found
