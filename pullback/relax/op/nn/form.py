"""The choice between a form for training and one for inference."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import DTypeError, ShapeError
from pullback.relax.op.family import composite, known_shape
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_info, same_shape


def _check(x: TensorStructInfo, alt: TensorStructInfo, *, training: bool) -> None:
    name = "nn.in_train_phase"
    if not same_shape(known_shape(name, x, "x"), known_shape(name, alt, "alt")):
        raise ShapeError(f"{name}: x and alt must have one shape, got {format_info(x)} and {format_info(alt)}")
    if x.dtype != alt.dtype:
        raise DTypeError(f"{name}: x and alt must have one dtype, got {x.dtype} and {alt.dtype}")


def _chosen(x: Any, alt: Any, *, training: bool) -> Any:
    return x if training else alt


composite(
    "nn.in_train_phase",
    "x, alt | training=True",
    expect=_check,
    decompose=_chosen,
    numpy=_chosen,
    gradient=lambda dy, y, x, alt, *, training: (dy, None) if training else (None, dy),
    precision="same",
    family="form",
    doc="x in training, and alt in inference, where trainers predict and evaluate: what is not taken is not computed.\n"
    "Both have one type. Keras's backend.in_train_phase.",
    samples=[
        sample((3, 17), (3, 17)),
        sample((2, 5), (2, 5), training=False),
        sample((), ()),
        sample(Ints((3,), 0, 9), Ints((3,), 0, 9)),
    ],
)
