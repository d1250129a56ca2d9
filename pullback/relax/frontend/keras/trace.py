"""Tracing a model of Keras: its layers and operations run on tensors that stand for graph values.

Keras decides by the class of an argument whether an operation is computed or only noted: ``KerasTensor`` stands for a
tensor without values. :class:`GraphTensor` is one that holds a graph value, and while a trace is open each operation of
one gives another, by the table of conversions. So what Keras itself does between layers stays Keras's: masks, casts,
names, shared layers, models in models. Weights are tensors of that kind too, in the attributes of their layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import KerasTensor
from keras import ops as operations
from keras.src.backend import Variable as KerasVariable
from keras.src.backend.common.dtypes import result_type
from keras.src.layers.layer import Layer

from pullback.ir.errors import InternalError, UserError
from pullback.ir.node import Span, span_scope
from pullback.nn.trace import current_trace
from pullback.relax import op
from pullback.relax.expr import Expr, as_relax
from pullback.relax.frontend.converters import Use
from pullback.relax.frontend.keras.hooks import hooked
from pullback.relax.frontend.keras.regularizers import regularization
from pullback.relax.frontend.keras.table import KERAS, Call, cast, run_call
from pullback.relax.frontend.keras.tensors import (
    GraphTensor,
    Phase,
    Weight,
    flat,
    joined,
    mapped,
    plain,
    renamed,
    structured,
)
from pullback.relax.struct_info import as_tensor, format_info
from pullback.relax.training.summary import Layer as Line


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
        with hooked(self):
            given = [GraphTensor(x) for x in inputs]
            found = self.model(structured(self.model, given), training=Phase())
            self.penalties += [
                regularization(v.regularizer, self.unwrapped(v), self)
                for v in self.model.trainable_variables
                if getattr(v, "regularizer", None) is not None
            ]
        return found

    def function(self, function: Callable[..., Any], *inputs: Expr) -> Any:
        """What a function of tensors gives for graph values, such as a loss or a schedule."""
        with hooked(self):
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
        return joined(trained, predicted)

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
        return mapped(value, lambda v: GraphTensor(v) if isinstance(v, Expr) else v)

    def unwrapped(self, value: Any) -> Any:
        """Graph values for tensors of Keras; constants for arrays."""
        return mapped(value, self._graph_value)

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
        types = tuple(t.graph.struct_info for t in flat(found) if isinstance(t, GraphTensor))
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
                    return mapped(self.by_call(or_else, args, kwargs), lambda v: renamed(v, self._bound, source.name))
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
        return found if trace is None else mapped(found, lambda v: trace.bind(v, name) if isinstance(v, Expr) else v)

    def _types(self, source: Any, args: Any, kwargs: Any) -> list[tuple[Any, str]]:
        """Shapes, with None for what is symbolic, and dtypes that Keras expects of a call."""
        found = source.compute_output_spec(*mapped(args, plain), **mapped(kwargs, plain))
        return [(t.shape, str(t.dtype)) for t in flat(found) if isinstance(t, KerasTensor)]

    def _check(self, name: str, kind: str, found: Any, call: Call) -> None:
        """Compare results with their types in Keras."""
        try:
            wanted = call._wanted()
        except Exception:  # Keras's rules of shapes do not know sizes that are symbols
            return
        for mine, (shape, dtype) in zip((v for v in flat(found) if isinstance(v, Expr)), wanted, strict=False):
            info = as_tensor(mine.struct_info)
            pairs = zip(info.sizes, shape, strict=False)
            fits = info.dtype == dtype and len(info.sizes) == len(shape)
            if not fits or any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
                raise InternalError(f"{name} ({kind}) gives {format_info(info)}, not {dtype}{tuple(shape)}")

    def _placeholders(self, source: Any, args: Any, kwargs: Any) -> Any:
        """Values of the types that Keras expects, in place of what cannot be converted, so that all of it is found."""
        size = next((s for t in flat((args, kwargs)) if isinstance(t, GraphTensor) for s in t.shape
                     if not isinstance(s, int)), 1)  # fmt: skip
        found = source.compute_output_spec(*mapped(args, plain), **mapped(kwargs, plain))
        return mapped(
            found,
            lambda t: GraphTensor(op.zeros(tuple(size if s is None else s for s in t.shape), str(t.dtype)))
            if isinstance(t, KerasTensor) else t,
        )  # fmt: skip

    def _regularize(self, layer: Any, outputs: Any) -> None:
        """The activity regularizer of a layer, as ``Layer.__call__`` adds it: of each output, over the batch size."""
        if getattr(layer, "activity_regularizer", None) is None:
            return
        for output in flat(outputs):
            if isinstance(output, GraphTensor):
                term = regularization(layer.activity_regularizer, output.graph, self)
                rows = op.astype(op.take(op.shape_to_tensor(output.graph.shape), as_relax(0), 0), term.dtype)
                self.penalties.append(term / rows)

    def add_loss(self, loss: Any) -> None:
        """A term of the loss that a layer adds in its call."""
        if not self._predicts:
            self.penalties += [self.unwrapped(x) for x in flat(loss)]


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
