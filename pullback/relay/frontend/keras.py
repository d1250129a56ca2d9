"""Models of Keras as modules of relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.ir.optional import all_known
from pullback.relax.struct_info import TensorStructInfo
from pullback.relay.analysis import free_vars
from pullback.relay.expr import Expr, Function, Tuple, Var, call_op
from pullback.relay.frontend.common import Body, Module, Spelling, computed, in_relay
from pullback.relay.infer import infer_expr
from pullback.relay.ty import TensorType

LAYOUTS = ("NCHW", "NHWC", "NDHWC")


def from_keras(model: Any, shape: Mapping[str, Sequence[int]] | None = None, layout: str = "NCHW") -> Module:
    """A module of relay, and its parameters, of a model of Keras 3, in the form for inference.

    ``shape``: shapes of the inputs by name, where Keras leaves sizes open; a batch that is open is 1. With the layout
    "NCHW" inputs and outputs that are images come channels first, as relay has them; with "NHWC" as Keras has them.
    Parameters are ``_param_1`` and so on, in the order of Keras's weights.

    >>> mod, params = relay.frontend.from_keras(keras_model, {"input_1": (1, 784)})

    Raises what :func:`pullback.from_keras` raises; NameNotFound for an input that the model lacks.
    """
    from pullback.relax.frontend.keras import from_keras as imported

    if layout not in LAYOUTS:
        raise ArgumentError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}", hint="write layout='NCHW'")
    names = [str(t.name) for t in model.inputs]
    given = dict(shape or {})
    unknown = [name for name in given if name not in names]
    if unknown:
        raise NameNotFound(f"the model has no input {unknown[0]!r}", hint=f"its inputs are {', '.join(names)}")
    first = layout == "NCHW"
    example = tuple(
        TensorStructInfo(_keras_shape(name, given.get(name), tensor.shape, first), str(tensor.dtype))
        for name, tensor in zip(names, model.inputs, strict=True)
    )
    made = imported(model, example if len(example) > 1 else example[0])
    function = computed(made)
    renamed = {name: f"_param_{k}" for k, name in enumerate(made.paths, 1)}
    return in_relay(made, function, names, Spelling(renamed), _channels_first if first else None)


def _keras_shape(name: str, given: Sequence[int] | None, own: Sequence[Any], first: bool) -> tuple[int, ...]:
    """The shape in Keras's layout: ``given`` is in relay's."""
    sizes = list(given) if given is not None else [s if s is not None else None for s in own]
    if given is not None and len(sizes) == 4 and first:
        sizes = [sizes[0], sizes[2], sizes[3], sizes[1]]
    if sizes and sizes[0] is None:
        sizes[0] = 1
    known = all_known(sizes)
    if known is None:
        raise ArgumentError(f"input {name} has sizes that are not known: {tuple(own)}", hint="give its shape")
    return tuple(int(s) for s in known)


def _channels_first(inputs: list[Var], body: Body) -> Function:
    """The body, whose images are channels-last, as a function of images that are channels-first on both sides."""
    own = [_turned(x) for x in inputs]
    result = body([call_op("transpose", x, axes=(0, 2, 3, 1)) if x not in inputs else x for x in own])
    type_ = infer_expr(Function((*own, *(v for v in free_vars(result) if v not in own)), result)).body.checked_type
    if isinstance(result, Tuple):
        fields = zip(result.fields, type_.fields, strict=True)
        return Function(tuple(own), Tuple(tuple(_first(field, t) for field, t in fields)))
    return Function(tuple(own), _first(result, type_))


def _turned(x: Var) -> Var:
    """An input of images with its channels first."""
    type_ = x.type_annotation
    if not isinstance(type_, TensorType) or type_.ndim != 4:
        return x
    batch, height, width, channels = type_.shape
    return Var(x.name, TensorType((batch, channels, height, width), type_.dtype))


def _first(x: Expr, type_: TensorType) -> Expr:
    return call_op("transpose", x, axes=(0, 3, 1, 2)) if type_.ndim == 4 else x
