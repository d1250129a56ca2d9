"""Hooks: while a trace is open, operations and layers of Keras that get graph tensors belong to it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from types import FunctionType
from typing import TYPE_CHECKING, Any

from keras import StatelessScope
from keras import ops as operations
from keras.src.activations import activations
from keras.src.backend import Variable as KerasVariable
from keras.src.layers import layer as layer_module
from keras.src.layers.layer import Layer
from keras.src.ops.operation import Operation
from keras.src.random.seed_generator import SeedGenerator
from keras.src.utils import traceback_utils

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.forks import renewed
from pullback.relax.frontend.keras.tensors import GraphTensor, Weight, flat, mapped, plain

if TYPE_CHECKING:
    from pullback.relax.frontend.keras.trace import Trace

_trace: ContextVar[Trace | None] = ContextVar("pullback_keras_trace", default=None)


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
    return any(isinstance(v, GraphTensor) for v in flat(values))


@contextlib.contextmanager
def hooked(trace: Trace) -> Iterator[None]:
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
        plain_check(self, *mapped(args, plain))  # sizes that are symbols are None to Keras

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

    return mapped(value, one)
