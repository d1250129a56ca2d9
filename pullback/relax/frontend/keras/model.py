"""Models of Keras as modules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import KerasTensor, Model, ops

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.frontend.converters import check_supported
from pullback.relax.frontend.imported import Imported
from pullback.relax.frontend.keras.losses import Penalized, loss_of
from pullback.relax.frontend.keras.optimizers import optimizer_of
from pullback.relax.frontend.keras.table import KERAS
from pullback.relax.frontend.keras.tensors import flat
from pullback.relax.frontend.keras.trace import Trace
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.tir.expr import Var as Size

__all__ = ["KerasModel"]


class KerasModel(Imported):
    """A model of Keras: what :func:`from_keras` returns.

    ``source``: the model that it was made from, whose weights stay as they are until
    :func:`~pullback.relax.frontend.keras.to_keras` sets them.
    """

    def __init__(self, model: Any, example: Any = None) -> None:
        if not isinstance(model, Model):
            raise ArgumentError(
                f"from_keras takes a model of Keras, got {type(model).__name__}",
                hint="a layer becomes one: keras.Sequential([keras.Input((4,)), layer])",
            )
        super().__init__(_example_of(model, example))
        self.source = model
        self.layer_names: dict[int, str] = {}
        self.paths: dict[str, str] = {}  # Keras's paths of weights, by our names
        self._names: dict[int, str] = {}
        for name, variable, is_state in weights_of(model, self.layer_names):
            value = np.asarray(ops.convert_to_numpy(variable))
            self.hold(name, Buffer(value) if is_state else Parameter(value, requires_grad=bool(variable.trainable)))
            self._names[id(variable)], self.paths[name] = name, variable.path
        self.has_mask = self.has_penalty = False  # whether outputs have masks; whether it adds terms to the loss
        self.outputs = 0
        _check_constraints(model)
        try:
            self.export(*self.example)  # finds all that cannot be converted
        except ShapeError:
            alike = _alike(self.example)
            if alike == self.example or example is not None:
                raise
            self.example = alike
            self.export(*alike)

    def forward(self, *inputs: Any) -> Any:
        """What the model computes, in the order of its outputs."""
        trace = Trace(self.source, self, self._names)
        try:
            found = trace(*inputs)
        except Exception:
            check_supported(KERAS, trace.missing)
            raise
        check_supported(KERAS, trace.missing)
        outputs = flat(found)
        self.has_mask = any(getattr(t, "_keras_mask", None) is not None for t in outputs)
        values = tuple(trace.unwrapped(t) for t in outputs)
        self.outputs = len(values)
        for value in values:
            if not isinstance(value, Expr):
                raise UserError(f"the model returns {type(value).__name__}, not a tensor")
        self.has_penalty = bool(trace.penalties)
        if trace.penalties:
            values = (*values, self._penalty(trace.penalties, inputs[0]))
        return values[0] if len(values) == 1 else values

    def _penalty(self, terms: Sequence[Expr], like: Any) -> Expr:
        """What the model adds to the loss, for each row of the batch."""
        total = sum(terms[1:], terms[0])
        return op.broadcast_to(op.reshape(total, (1,)), (like.shape[0],))

    # ---- what Keras compiled ---------------------------------------------------------------------------------------

    @property
    def loss(self) -> Any:
        """The loss with which the model is compiled, by Keras's formula; a UserError where it cannot be taken over."""
        return loss_of(self.source, self.outputs, self.has_mask)

    @property
    def targets(self) -> list[StructInfo]:
        """The types of the targets of :attr:`loss`, one for each output that has one."""
        module = self.export(*self.example)
        info = module["backbone"].ret_struct_info
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        found: list[StructInfo] = self.loss.targets(fields[: self.outputs])
        return found

    @property
    def optimizer(self) -> Any:
        """The optimizer with which the model is compiled, by Keras's formula, without its states; a UserError where it
        cannot be taken over."""
        return optimizer_of(self.source)

    def to_keras(self, model: Any = None) -> Any:
        """Set the weights of the model of Keras to what they are here: ``relax.frontend.keras.to_keras``."""
        from pullback.relax.frontend.keras.weights import to_keras

        return to_keras(self, model)

    def _own_loss(self, loss: Any) -> Any:
        """A loss together with what the model adds to it: regularizers, ``add_loss``."""
        return Penalized(loss, self.outputs) if self.has_penalty else loss


def _check_constraints(model: Any) -> None:
    """Raise for weights that Keras projects after each step."""
    found = [v.path for v in model.trainable_variables if getattr(v, "constraint", None) is not None]
    if found:
        raise UserError(
            f"weights with constraints are not converted: {', '.join(found)}",
            hint="train without: for each of these variables, variable.constraint = None",
        )


def weights_of(model: Any, layer_names: dict[int, str] | None = None) -> Iterator[tuple[str, Any, bool]]:
    """(name, variable, whether it is a state) of each weight of a model, once. Names are those of layers from the model
    inwards, with dots between them; ``layer_names`` becomes those of the layers, by identity."""
    layer_names = {} if layer_names is None else layer_names
    taken: set[str] = set()
    seen: set[int] = set()

    def free(name: str) -> str:
        numbered = (name if n == 0 else f"{name}_{n}" for n in itertools.count())
        return next(n for n in numbered if n not in taken)

    def walk(layer: Any, prefix: str) -> Iterator[tuple[str, Any, bool]]:
        if id(layer) in layer_names:
            return
        layer_names[id(layer)] = prefix
        own = [(v, False) for v in layer._trainable_variables] + [(v, True) for v in layer._non_trainable_variables]
        for variable, is_state in own:
            if id(variable) in seen or variable.path.endswith("seed_generator_state"):
                continue
            seen.add(id(variable))
            name = free(f"{prefix}.{_word(variable.name)}" if prefix else _word(variable.name))
            taken.add(name)
            yield name, variable, is_state
        for inner in layer._layers:
            name = free(f"{prefix}.{_word(inner.name)}" if prefix else _word(inner.name))
            if id(inner) not in layer_names:
                taken.add(name)
                yield from walk(inner, name)

    yield from walk(model, "")


def _word(name: str) -> str:
    return name.replace(".", "_").replace("/", "_")


def _example_of(model: Any, example: Any) -> list[TensorStructInfo]:
    """The types of a model's inputs: as the model says them, or of an example, which builds a model that is not yet."""
    if example is None:
        inputs = getattr(model, "inputs", None)
        if not inputs:
            raise ArgumentError(
                f"the model {model.name} does not say what its inputs are",
                hint="give an example of them: from_keras(model, example=x[:1])",
            )
        return _types([(tuple(t.shape), str(t.dtype)) for t in inputs])
    given = list(example) if isinstance(example, (list, tuple)) else [example]
    found = [e for e in given if isinstance(e, TensorStructInfo)]
    if len(found) < len(given):
        arrays = [np.asarray(e) for e in given]
        shapes = [(None, *a.shape[1:]) for a in arrays]
        found = _types([(s, _dtype(a)) for s, a in zip(shapes, arrays, strict=True)])
    if not model.built:
        sizes = [tuple(s if isinstance(s, int) else None for s in t.shape or ()) for t in found]
        tensors = [KerasTensor(s, t.dtype) for s, t in zip(sizes, found, strict=True)]
        model(tensors[0] if len(tensors) == 1 else tensors)
    return found


def _dtype(array: np.ndarray) -> str:
    return "float32" if array.dtype == np.float64 else array.dtype.name


def _alike(types: Sequence[TensorStructInfo]) -> tuple[TensorStructInfo, ...]:
    """The types with one symbol for the open sizes of each axis, whatever the input."""
    by_axis: dict[int, Any] = {}
    return tuple(
        TensorStructInfo(
            tuple(s if isinstance(s, int) else by_axis.setdefault(axis, s) for axis, s in enumerate(t.shape or ())),
            t.dtype,
        )
        for t in types
    )


def _types(given: Sequence[tuple[tuple[Any, ...], str]]) -> list[TensorStructInfo]:
    """Types with a symbol for each size that is None: the first axis is the batch, n, of all inputs."""
    batch = Size("n", "int64")
    types = []
    for k, (shape, dtype) in enumerate(given):
        sizes = [
            s if s is not None else batch if axis == 0 else Size(f"size{k}_{axis}", "int64")
            for axis, s in enumerate(shape)
        ]
        types.append(TensorStructInfo(tuple(sizes), dtype))
    return types
