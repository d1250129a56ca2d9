"""What the parameters of a graph function are declared to be: inputs, parameters that are trained, states.

    @R.function
    def backbone(
        w: R.Param((784, 10)), mean: R.State((784,), initial=0.5), x: R.Tensor(("n", 784)), c: R.Param((10,), trainable=False)
    ): …

is a function with the attribute

    {"declared": (("parameter", {}), ("state", {"initial": 0.5}), ("input", {}), ("parameter", {"trainable": False}))}

whose types are those of plain tensors, so nothing but who asks for it knows of it. Whoever adds or removes parameters
of a function keeps the attribute up to date (:func:`declared_of`, :func:`as_attribute`).
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError
from pullback.relax.expr import Function
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import FLOATS

DECLARED = "declared"  # the attribute of a function
INPUT, PARAMETER, STATE = "input", "parameter", "state"
_OPTIONS = {INPUT: (), PARAMETER: ("trainable", "initial"), STATE: ("initial",)}


@dataclass(frozen=True)
class Declared:
    """What one parameter of a function is. ``trainable``: whether a trainer changes it, of a parameter. ``initial``:
    the number that all elements begin with in a trainer; None: a trainer chooses it.

    Raises ArgumentError for a kind that there is not, and for options that are none of it.
    """

    kind: str = INPUT
    trainable: bool = True
    initial: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _OPTIONS:
            raise ArgumentError(f"a parameter is declared as {', '.join(_OPTIONS)}, not as {self.kind!r}")
        if not isinstance(self.trainable, bool):
            raise ArgumentError(f"trainable must be True or False, got {self.trainable!r}")
        number = self.initial
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, (int, float)) or math.isnan(number):
                hint = "other values are given to the trainer: trainer.load_states(…), trainer.load_params(…)"
                raise ArgumentError(f"initial must be a number, that of all elements, got {number!r:.60}", hint=hint)
            object.__setattr__(self, "initial", float(number))
        odd = [key for key in self.options if key not in _OPTIONS[self.kind]]
        if odd:
            raise ArgumentError(f"what is declared as {self.kind} has no {odd[0]}")

    @property
    def options(self) -> dict[str, Any]:
        """Those that are not the default, by name."""
        result: dict[str, Any] = {} if self.trainable else {"trainable": False}
        return result if self.initial is None else {**result, "initial": self.initial}


@dataclass(frozen=True)
class Annotation:
    """``R.Param(…)`` or ``R.State(…)``: a type, and what the parameter is."""

    info: TensorStructInfo
    declared: Declared

    def __post_init__(self) -> None:
        _check_initial(self.declared, self.info)


def declared_of(function: Function) -> tuple[Declared, ...] | None:
    """What a function's parameters are declared to be; None where nothing is. An ArgumentError for an attribute that
    does not fit the function."""
    given = function.attrs.get(DECLARED)
    if given is None:
        return None
    try:
        result = tuple(Declared(str(kind), **dict(options)) for kind, options in given)
    except (TypeError, ValueError) as error:
        message = f"the function attribute {DECLARED!r} is a tuple of (kind, options), one for each parameter: {error}"
        raise ArgumentError(message, span=function.span, hint=_HOW) from None
    if len(result) != len(function.params):
        message = f"the function has {len(function.params)} parameters, its attribute {DECLARED!r} is of {len(result)}"
        raise ArgumentError(message, span=function.span, hint=_HOW)
    for one, param in zip(result, function.params, strict=True):
        _check_initial(one, param.struct_info)
    return result


def _check_initial(declared: Declared, info: StructInfo) -> None:
    """Raise a DTypeError where a tensor of the type does not hold the initial number; floats are rounded."""
    if declared.initial is None or not isinstance(info, TensorStructInfo):
        return
    with np.errstate(all="ignore"):
        held = float(np.asarray(declared.initial).astype(numpy_dtype(info.dtype)))
    is_rounded = info.dtype in FLOATS and math.isfinite(held) == math.isfinite(declared.initial)
    if held != declared.initial and not is_rounded:
        raise DTypeError(f"initial is {declared.initial:g}, which {info.dtype} does not hold")


def as_attribute(declared: Sequence[Declared]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """As plain values, which can be printed."""
    return tuple((d.kind, d.options) for d in declared)


def with_declared(function: Function, declared: Sequence[Declared] | None) -> Function:
    """The function with other declarations of its parameters, or with none."""
    attrs = {k: v for k, v in function.attrs.items() if k != DECLARED}
    if declared is not None:
        attrs[DECLARED] = as_attribute(declared)
    return Function(function.params, function.body, function.ret_struct_info, attrs, span=function.span)


def new_declarations(annotations: Sequence[Any]) -> dict[str, Any]:
    """The function attribute of what parameters are annotated with: none where all are plain types."""
    if not any(isinstance(a, Annotation) for a in annotations):
        return {}
    found = [a.declared if isinstance(a, Annotation) else Declared() for a in annotations]
    return {DECLARED: as_attribute(found)}


_HOW = "R.Param and R.State write it; a pass that adds or removes parameters brings it up to date"
