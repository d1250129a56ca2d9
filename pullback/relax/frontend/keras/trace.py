"""Tracing a model of Keras: its layers and operations run on tensors that stand for graph values.

Keras decides by the class of an argument whether an operation is computed or only noted: ``KerasTensor`` stands for a
tensor without values. :class:`GraphTensor` is one that holds a graph value, and while a trace is open each operation of
one gives another, by the table of conversions. So what Keras itself does between layers stays Keras's: masks, casts,
names, shared layers, models in models. Weights are tensors of that kind too, in the attributes of their layers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any

import numpy as np
from keras import KerasTensor, StatelessScope
from keras import ops as operations
from keras.src import tree
from keras.src.activations import activations
from keras.src.backend import Variable as KerasVariable
from keras.src.backend.common.dtypes import result_type
from keras.src.layers import layer as layer_module
from keras.src.layers.layer import Layer
from keras.src.ops.operation import Operation
from keras.src.random.seed_generator import SeedGenerator
from keras.src.utils import traceback_utils

from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.forks import renewed
from pullback.ir.node import Span, span_scope
from pullback.nn.functional.form import in_train_phase
from pullback.nn.trace import current_trace
from pullback.relax import op
from pullback.relax.expr import Expr, as_relax
from pullback.relax.frontend.converters import Use
from pullback.relax.frontend.keras.regularizers import regularization
from pullback.relax.frontend.keras.table import KERAS, Call, cast, run_call
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.relax.training.summary import Layer as Line

__all__ = ["GraphTensor", "Phase", "Trace"]


class GraphTensor(KerasTensor):
    """A tensor of Keras that holds a graph value; sizes may be symbolic."""

    def __init__(self, value: Expr) -> None:  # the base checks that sizes are numbers
        info = value.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise InternalError(f"a tensor of Keras cannot be {format_info(info)}")
        self.value_in_graph = value
        self._describe(tuple(info.shape), info.dtype)

    def _describe(self, shape: tuple[Any, ...], dtype: str) -> None:
        self._shape, self._dtype, self.name = shape, dtype, "tensor"
        self._sparse = self._ragged = self.record_history = False
        self._ragged_rank = self._row_splits_dtype = None

    __array_ufunc__ = None  # operators of arrays with a tensor on their right are the tensor's

    @property
    def __jax_array__(self) -> Any:
        raise AttributeError("__jax_array__")

    @property
    def graph(self) -> Expr:
        return self.value_in_graph

    def __bool__(self) -> bool:
        raise UserError(
            "the truth of a tensor is known only when the program runs: Python's if and while cannot decide by it",
            hint="keras.ops.where chooses element by element",
        )


class Weight(GraphTensor):
    """A weight of the model: what it holds at this point of the program."""

    def __init__(self, trace: Trace, variable: KerasVariable, name: str, dtype: str) -> None:
        self._describe(tuple(variable.shape), dtype)
        self.trace, self.variable, self.name, self.path = trace, variable, name, variable.path

    @property
    def graph(self) -> Expr:
        return cast(self.trace.module.value(self.name), self._dtype)

    @property
    def value(self) -> Weight:
        return self

    def assign(self, value: Any) -> Any:
        self.trace.assign(self, value)
        return self

    def assign_add(self, value: Any) -> Any:
        return self.assign(self + value)

    def assign_sub(self, value: Any) -> Any:
        return self.assign(self - value)


class Phase:
    """``training`` of a call, before it is known whether a step trains: it tells whether somebody asked."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        self.asked = True
        return True


_trace: ContextVar[Trace | None] = ContextVar("pullback_keras_trace", default=None)


class Trace:
    """A run of a model on graph values. ``module``: holds the weights under ``names``, by the identity of variables.

    ``missing``: what has no converter. ``penalties``: terms of the loss that layers add.
    """

    def __init__(self, model: Any = None, module: Any = None, names: Mapping[int, str] | None = None) -> None:
        self.model, self.module, self.names = model, module, names or {}
        self.missing: list[Use] = []
        self.penalties: list[Expr] = []
        self._places: list[str] = []  # names of the layers that run
        self._predicts = False  # whether the form for inference of a layer is traced beside that for training
        self._count = 0

    # ---- running -----------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Expr) -> Any:
        """What the model gives: graph values in the structure of its outputs."""
        with _hooked(self):
            given = [GraphTensor(x) for x in inputs]
            found = self.model(_structured(self.model, given), training=Phase())
            self.penalties += [
                regularization(v.regularizer, self.unwrapped(v), self)
                for v in self.model.trainable_variables
                if getattr(v, "regularizer", None) is not None
            ]
        return found

    def function(self, function: Callable[..., Any], *inputs: Expr) -> Any:
        """What a function of tensors gives for graph values, such as a loss or a schedule."""
        with _hooked(self):
            return self.run(function, inputs, {})

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a layer or function of tensors gives, as graph values."""
        return self.unwrapped(function(*self.wrapped(args), **self.wrapped(kwargs)))

    def by_call(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """What a layer's ``call`` gives, tensors with their masks; where it asks whether it trains, in both forms."""
        args, kwargs = self.wrapped(args), self.wrapped(kwargs)
        if not isinstance(kwargs.get("training"), Phase):
            return self._called(layer, args, kwargs)
        phase = Phase()
        trained = self._called(layer, args, {**kwargs, "training": phase})
        if not phase.asked:
            return trained
        before, self._predicts = self._predicts, True
        context = layer._get_call_context()
        outer = context.get_value("training")
        context.set_value("training", False)
        try:
            predicted = self._called(layer, args, {**kwargs, "training": False})
        finally:
            self._predicts = before
            context.set_value("training", outer)
        return _joined(trained, predicted)

    def _called(self, layer: Any, args: Any, kwargs: Any) -> Any:
        try:
            return layer.call(*args, **kwargs)
        except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
            if isinstance(error, UserError) or self.missing:
                raise
            raise UserError(
                f"the call of the layer {layer.name} ({type(layer).__name__}) cannot be traced: {_first_line(error)}",
                hint="it must be made of keras.ops; for another one there is"
                f' @pullback.relax.frontend.register_converter("keras", "{keys_of(layer)[0]}")',
            ) from error

    # ---- values ------------------------------------------------------------------------------------------------------

    def wrapped(self, value: Any) -> Any:
        """Tensors of Keras for graph values, in tuples, lists and dicts."""
        return _mapped(value, lambda v: GraphTensor(v) if isinstance(v, Expr) else v)

    def unwrapped(self, value: Any) -> Any:
        """Graph values for tensors of Keras; constants for arrays."""
        return _mapped(value, self._graph_value)

    def _graph_value(self, value: Any) -> Any:
        if isinstance(value, Expr):
            return value
        if isinstance(value, GraphTensor):
            return value.graph
        if isinstance(value, KerasVariable):
            if id(value) not in self.names:
                raise UserError(f"the variable {value.path} is used, but it is no weight of the model")
            return cast(self.module.value(self.names[id(value)]), str(value.dtype))
        if isinstance(value, KerasTensor):
            raise UserError(f"{value} is no tensor of this model", hint="a layer keeps no tensor from call to call")
        if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and hasattr(value, "dtype")):
            return as_relax(_numpy(value))
        return value

    def common_dtype(self, values: Sequence[Any]) -> str:
        """The dtype to which Keras promotes values; Python's numbers take that of the others where they can."""
        kinds = [v.dtype if hasattr(v, "dtype") else type(v) for v in values]
        return str(result_type(*(kind if isinstance(kind, type) else str(kind) for kind in kinds)))

    def assign(self, variable: Any, value: Any) -> None:
        name = variable.name if isinstance(variable, Weight) else self.names[id(variable)]
        held = self.module.held[name]
        if held.kind == "parameter":
            raise UserError(f"a layer assigns {name}, which is trained", hint="add_weight(…, trainable=False)")
        if not self._predicts:
            self.module.assign(name, cast(self.unwrapped(value), held.dtype))

    # ---- what the hooks call -----------------------------------------------------------------------------------------

    def operation(self, source: Any, args: Any, kwargs: Any) -> Any:
        """The results of an operation of ``keras.ops``."""
        call = Call(source, self, _once(lambda: self._types(source, args, kwargs)))
        return self._converted(call, f"{self._place()}{source.name}", args, kwargs)

    def layer(self, source: Any, args: Any, kwargs: Any) -> Any:
        """The results of a layer."""
        name = self.layer_name(source)
        if getattr(source, "quantization_mode", None) is not None:
            raise UserError(
                f"the layer {name} is quantized ({source.quantization_mode}), and is not converted",
                hint="import the model before model.quantize",
            )
        self._places.append(name)
        trace = current_trace()
        lines: list[Any] = trace.layers if trace is not None and name else []  # the model itself has a line already
        place = len(lines)
        lines.append(Line(name, type(source).__name__))
        try:
            call = Call(source, self, _once(lambda: self._types(source, args, kwargs)))
            found = self._converted(call, name, args, kwargs, or_else=source)
        finally:
            self._places.pop()
        types = tuple(t.graph.struct_info for t in _flat(found) if isinstance(t, GraphTensor))
        lines[place] = Line(name, type(source).__name__, outputs=types)
        self._regularize(source, found)
        return found

    def layer_name(self, layer: Any) -> str:
        """Its dotted name; of the model itself nothing."""
        return self.module.layer_names.get(id(layer), layer.name)

    def _place(self) -> str:
        return f"{self._places[-1]}." if self._places and self._places[-1] else ""

    def _converted(self, call: Call, name: str, args: Any, kwargs: Any, or_else: Any = None) -> Any:
        source = call.source
        keys = keys_of(source)
        converter = KERAS.find(*keys)
        self._count += 1
        span = Span(
            self._file(),
            self._count,
            text=f"{name or 'the model'} = {keys[0]}(…)",
            layer=self._layer(),
        )
        is_traced = converter is None or converter.function is run_call
        with span_scope(span):
            try:
                if is_traced and or_else is not None:  # its tensors have masks
                    return _mapped(self.by_call(or_else, args, kwargs), lambda v: _renamed(v, self._bound, source.name))
                if converter is None or converter.function is None:
                    self.missing.append(Use(keys[0], keys, node=name))
                    return self._placeholders(source, args, kwargs)
                found = converter.function(call, *self.unwrapped(args), **self.unwrapped(kwargs))
            except UserError as error:
                if error.span is None:
                    raise type(error)(
                        f"{name or 'the model'} ({keys[0]}): {error.message}", span=span, hint=error.hint
                    ) from error
                raise
            found = self._bound(found, source.name)
        if keys[0] not in _UNSURE and type(source).__module__.startswith("keras."):
            self._check(name, keys[0], found, call)
        return self.wrapped(found)

    def _file(self) -> str:
        return "<Keras>" if self.model is None else f"<Keras model {self.model.name}>"

    def _layer(self) -> str:
        return self._places[-1] if self._places else ""

    def _bound(self, found: Any, name: str) -> Any:
        trace = current_trace()  # there is none where a loss or a schedule is traced
        return found if trace is None else _mapped(found, lambda v: trace.bind(v, name) if isinstance(v, Expr) else v)

    def _types(self, source: Any, args: Any, kwargs: Any) -> list[tuple[Any, str]]:
        """Shapes, with None for what is symbolic, and dtypes that Keras expects of a call."""
        found = source.compute_output_spec(*_mapped(args, _plain), **_mapped(kwargs, _plain))
        return [(t.shape, str(t.dtype)) for t in _flat(found) if isinstance(t, KerasTensor)]

    def _check(self, name: str, kind: str, found: Any, call: Call) -> None:
        """Compare results with their types in Keras."""
        try:
            wanted = call._wanted()
        except Exception:  # Keras's rules of shapes do not know sizes that are symbols
            return
        for mine, (shape, dtype) in zip((v for v in _flat(found) if isinstance(v, Expr)), wanted, strict=False):
            info = mine.struct_info
            pairs = zip(info.shape, shape, strict=False)
            fits = info.dtype == dtype and len(info.shape) == len(shape)
            if not fits or any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
                raise InternalError(f"{name} ({kind}) gives {format_info(info)}, not {dtype}{tuple(shape)}")

    def _placeholders(self, source: Any, args: Any, kwargs: Any) -> Any:
        """Values of the types that Keras expects, in place of what cannot be converted, so that all of it is found."""
        size = next((s for t in _flat((args, kwargs)) if isinstance(t, GraphTensor) for s in t.shape
                     if not isinstance(s, int)), 1)  # fmt: skip
        found = source.compute_output_spec(*_mapped(args, _plain), **_mapped(kwargs, _plain))
        return _mapped(
            found,
            lambda t: GraphTensor(op.zeros(tuple(size if s is None else s for s in t.shape), str(t.dtype)))
            if isinstance(t, KerasTensor) else t,
        )  # fmt: skip

    def _regularize(self, layer: Any, outputs: Any) -> None:
        """The activity regularizer of a layer, as ``Layer.__call__`` adds it: of each output, over the batch size."""
        if getattr(layer, "activity_regularizer", None) is None:
            return
        for output in _flat(outputs):
            if isinstance(output, GraphTensor):
                term = regularization(layer.activity_regularizer, output.graph, self)
                rows = op.astype(op.take(op.shape_to_tensor(output.graph.shape), as_relax(0), 0), term.dtype)
                self.penalties.append(term / rows)

    def add_loss(self, loss: Any) -> None:
        """A term of the loss that a layer adds in its call."""
        if not self._predicts:
            self.penalties += [self.unwrapped(x) for x in _flat(loss)]


# Whose types Keras says wrongly of tensors without values.
_UNSURE = ("ops.AdaptiveAveragePool", "ops.AdaptiveMaxPool", "ops.DotProductAttention")


def keys_of(source: Any) -> tuple[str, ...]:
    """The names under which a layer or operation stands in the table.

    Of a class of the user, its name, and that under which it is registered; a layer that inherits its ``call`` from one
    of Keras stands for that.
    """
    kind = type(source)
    if not isinstance(source, Layer):
        return (f"ops.{kind.__name__}",) if kind.__module__.startswith("keras.") else (kind.__name__,)
    names = [] if kind.__module__.startswith("keras.") else [kind.__name__]
    owner = next(c for c in kind.__mro__ if "call" in vars(c))
    if kind.__module__.startswith("keras."):
        names.append(f"layers.{kind.__name__}")
    elif owner.__module__.startswith("keras.") and not owner.__module__.startswith("keras.src.models"):
        names.append(f"layers.{owner.__name__}")
    return tuple(names)


# -- structures


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(_mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(v, function) for k, v in value.items()}
    return function(value)


def _flat(value: Any) -> list[Any]:
    return list(tree.flatten(value))


def _structured(model: Any, tensors: list[Any]) -> Any:
    """Inputs in the structure that a model takes."""
    struct = getattr(model, "_inputs_struct", None)
    if struct is None and getattr(model, "_functional", None) is not None:
        struct = model._functional._inputs_struct
    if struct is not None:
        return tree.pack_sequence_as(struct, tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def _plain(value: Any) -> Any:
    """What stands for a tensor where only its type counts."""
    if isinstance(value, GraphTensor):
        shape = tuple(s if isinstance(s, int) else None for s in value.shape)
        return KerasTensor(shape, value.dtype, record_history=False)
    if isinstance(value, Phase):
        return False
    return value


def _joined(trained: Any, predicted: Any) -> Any:
    """Two forms of a layer's results as one, with the masks of the first."""
    if isinstance(trained, (list, tuple)):
        return type(trained)(_joined(a, b) for a, b in zip(trained, predicted, strict=True))
    if isinstance(trained, dict):
        return {k: _joined(trained[k], predicted[k]) for k in trained}
    if not isinstance(trained, GraphTensor) or trained.graph is predicted.graph:
        return trained
    return _with_value(trained, in_train_phase(trained.graph, predicted.graph))


def _renamed(value: Any, bound: Callable[[Any, str], Any], name: str) -> Any:
    """A tensor whose value is bound to a variable of that name; anything else as it is."""
    return _with_value(value, bound(value.graph, name)) if isinstance(value, GraphTensor) else value


def _with_value(tensor: GraphTensor, value: Expr) -> GraphTensor:
    if value is tensor.graph:
        return tensor
    made = GraphTensor(value)
    mask = getattr(tensor, "_keras_mask", None)
    if mask is not None:
        made._keras_mask = mask
    return made


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(". ")[0]


def _numpy(value: Any) -> np.ndarray:
    """A constant in the dtype that Keras gives it."""
    tensor = operations.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
    return np.asarray(operations.convert_to_numpy(tensor))


def _once(compute: Callable[[], Any]) -> Callable[[], Any]:
    found: list[Any] = []

    def get() -> Any:
        if not found:
            found.append(compute())
        return found[0]

    return get


# -- hooks


_LOCK = threading.RLock()
renewed(sys.modules[__name__], "_LOCK")
_KEPT = {  # lists of Keras's own, in which weights stay weights
    "_trainable_variables", "_non_trainable_variables", "_tracker", "_layers", "_metrics", "_seed_generators",
    "_losses", "_inbound_nodes", "_outbound_nodes",
}  # fmt: skip


# Activations that Keras computes with its backend, without a look at what they get.
_AS_OPERATIONS = {
    activations.mish: lambda x: activations.Mish()(x),
    activations.sparsemax: operations.sparsemax,
    activations.hard_silu: operations.hard_silu,
}


def _of_graph(*values: Any) -> bool:
    return any(isinstance(v, GraphTensor) for v in _flat(values))


@contextlib.contextmanager
def _hooked(trace: Trace) -> Iterator[None]:
    """While it is open, operations and layers of Keras that get graph tensors belong to the trace, in this thread; all
    others run as ever. Weights in the attributes of the model's layers are graph tensors."""
    plain_operation, plain_layer, plain_node = Operation.symbolic_call, Layer.symbolic_call, layer_module.Node
    plain_next, plain_loss = SeedGenerator.next, Layer.add_loss
    plain_check = Layer._assert_input_compatibility

    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _trace.get() is trace and _of_graph(args, kwargs):
            return trace.operation(self, args, kwargs)
        return plain_operation(self, *args, **kwargs)

    def layer(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _trace.get() is trace and _of_graph(args, kwargs):
            return trace.layer(self, args, kwargs)
        return plain_layer(self, *args, **kwargs)

    def node(*args: Any, **kwargs: Any) -> Any:
        return None if _of_graph(kwargs.get("outputs")) else plain_node(*args, **kwargs)

    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _trace.get() is trace:
            raise UserError(
                "a layer draws random numbers with keras.random, which would be the same in every step",
                hint="layers of Keras such as Dropout and GaussianNoise are converted; for one of your own write a"
                ' converter: @pullback.relax.frontend.register_converter("keras", "MyNoise")',
            )
        return plain_next(self, *args, **kwargs)

    def add_loss(self: Any, loss: Any) -> None:
        if _trace.get() is trace:
            trace.add_loss(loss)
        else:
            plain_loss(self, loss)

    def check_inputs(self: Any, *args: Any) -> None:
        plain_check(self, *_mapped(args, _plain))  # sizes that are symbols are None to Keras

    replaced = [
        (Operation, "symbolic_call", operation), (Layer, "symbolic_call", layer), (layer_module, "Node", node),
        (SeedGenerator, "next", draw), (Layer, "add_loss", add_loss),
        (Layer, "_assert_input_compatibility", check_inputs),
    ]  # fmt: skip
    with _LOCK:
        if _trace.get() is not None:
            raise ArgumentError("a model of Keras is traced within another one")
        kept = [(owner, name, vars(owner)[name]) for owner, name, _ in replaced]
        filters = traceback_utils.is_traceback_filtering_enabled()
        token = _trace.set(trace)
        try:
            for owner, name, value in replaced:
                setattr(owner, name, value)
            traceback_utils.disable_traceback_filtering()  # it makes other errors of errors
            with StatelessScope(), _weights_as_tensors(trace):
                yield
        finally:
            for owner, name, value in kept:
                setattr(owner, name, value)
            if filters:
                traceback_utils.enable_traceback_filtering()
            _trace.reset(token)


@contextlib.contextmanager
def _weights_as_tensors(trace: Trace) -> Iterator[None]:
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for layer in [] if trace.model is None else trace.model._flatten_layers():
            casts = layer.autocast and layer.compute_dtype is not None
            for name, value in list(vars(layer).items()):
                if isinstance(value, FunctionType) and value in _AS_OPERATIONS:
                    changed.append((vars(layer), name, value))
                    vars(layer)[name] = _AS_OPERATIONS[value]
                if name in _KEPT or not any(id(v) in trace.names for v in _members(value)):
                    continue
                changed.append((vars(layer), name, value))
                vars(layer)[name] = _with_weights(trace, value, str(layer.compute_dtype) if casts else None)
        yield
    finally:
        for attributes, name, value in changed:
            attributes[name] = value


def _members(value: Any) -> list[Any]:
    """The weights in an attribute: itself, or those in lists and dicts."""
    if isinstance(value, KerasVariable):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [v for item in inner for v in _members(item)]


def _with_weights(trace: Trace, value: Any, dtype: str | None) -> Any:
    def one(v: Any) -> Any:
        if not isinstance(v, KerasVariable) or id(v) not in trace.names:
            return v
        own = str(v.dtype)
        return Weight(trace, v, trace.names[id(v)], dtype if dtype and "float" in own and "float" in dtype else own)

    return _mapped(value, one)
