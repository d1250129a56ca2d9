"""Samples: the inputs on which an op is tested, written beside its definition; tests/samples.py makes them concrete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Domain(NamedTuple):
    """The samples of a family: ``family`` knows the shapes; values are drawn from [low, high). Of unary ops,
    ``kinks`` are values at which the derivative jumps: one more sample, which is not smooth."""

    family: str
    low: float
    high: float
    dtypes: str  # a key of family.DTYPE_CLASSES
    kinks: tuple[float, ...] = ()


class Floats(NamedTuple):
    """Random floats of the shape in [low, high)."""

    shape: tuple[int, ...]
    low: float = -3.0
    high: float = 3.0


class Ints(NamedTuple):
    """Random integers of the shape in [low, high)."""

    shape: tuple[int, ...]
    low: int
    high: int
    dtype: str = "int64"


class Bools(NamedTuple):
    """Random truth values of the shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """One call of an op. ``args``: Floats, Ints, Bools, a plain shape (Floats of it), a list of numbers (exactly those
    values, as floats), or an array of integers. ``smooth``: derivatives exist around the sample, so that numeric
    differences may be taken."""

    args: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True


def sample(*args: Any, smooth: bool = True, **attrs: Any) -> Sample:
    """``sample((2, 3), (3,), axis=1)``."""
    return Sample(args, attrs, smooth)
