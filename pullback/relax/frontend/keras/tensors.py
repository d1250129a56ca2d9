"""Tensors of Keras that stand for graph values, and structures of such."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras import KerasTensor
from keras.src import tree
from keras.src.backend import Variable as KerasVariable

from pullback.ir.errors import InternalError, UserError
from pullback.nn.functional.form import in_train_phase
from pullback.relax.expr import Expr
from pullback.relax.frontend.keras.table import cast
from pullback.relax.struct_info import TensorStructInfo, format_info

if TYPE_CHECKING:
    from pullback.relax.frontend.keras.trace import Trace


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


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, function) for v in value))
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return function(value)


def flat(value: Any) -> list[Any]:
    return list(tree.flatten(value))


def structured(model: Any, tensors: list[Any]) -> Any:
    """Inputs in the structure that a model takes."""
    struct = getattr(model, "_inputs_struct", None)
    if struct is None and getattr(model, "_functional", None) is not None:
        struct = model._functional._inputs_struct
    if struct is not None:
        return tree.pack_sequence_as(struct, tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def plain(value: Any) -> Any:
    """What stands for a tensor where only its type counts."""
    if isinstance(value, GraphTensor):
        shape = tuple(s if isinstance(s, int) else None for s in value.shape)
        return KerasTensor(shape, value.dtype, record_history=False)
    if isinstance(value, Phase):
        return False
    return value


def joined(trained: Any, predicted: Any) -> Any:
    """Two forms of a layer's results as one, with the masks of the first."""
    if isinstance(trained, (list, tuple)):
        return type(trained)(joined(a, b) for a, b in zip(trained, predicted, strict=True))
    if isinstance(trained, dict):
        return {k: joined(trained[k], predicted[k]) for k in trained}
    if not isinstance(trained, GraphTensor) or trained.graph is predicted.graph:
        return trained
    return with_value(trained, in_train_phase(trained.graph, predicted.graph))


def renamed(value: Any, bound: Callable[[Any, str], Any], name: str) -> Any:
    """A tensor whose value is bound to a variable of that name; anything else as it is."""
    return with_value(value, bound(value.graph, name)) if isinstance(value, GraphTensor) else value


def with_value(tensor: GraphTensor, value: Expr) -> GraphTensor:
    if value is tensor.graph:
        return tensor
    made = GraphTensor(value)
    mask = getattr(tensor, "_keras_mask", None)
    if mask is not None:
        made._keras_mask = mask
    return made
