"""Values of hyperparameters: numbers, schedules, and values that may be set while training runs.

A number is a constant of the compiled step. Whatever else is a float64 scalar of the graph, computed once a step: a
:class:`Schedule` from the number of the step, a :class:`RunTime` value from a state. Arithmetic on hyperparameters is
written once for both: Python's operators take floats and expressions alike, in float64, as PyTorch computes on the
host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.ir.words import guided
from pullback.relax import op
from pullback.relax.expr import Expr, as_relax, const
from pullback.relax.struct_info import TensorStructInfo, format_info

Scalar = float | Expr  # a constant, or a float64 scalar of the graph


class Schedule:
    """A hyperparameter that follows from the number of steps made before: override :meth:`value`.

    Schedules are numbers of the graph, so they change at every step without any work in Python, and resume with the
    step count of a checkpoint.
    """

    def __init_subclass__(cls) -> None:
        guided(cls)

    def value(self, step: Expr) -> Scalar:
        """The value in the step number ``step`` (int64 scalar, 0 in the first): a float64 scalar."""
        raise NotImplementedError

    def __repr__(self) -> str:
        public = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({public})"


class LambdaLR(Schedule):
    """Any function of the step: it takes an int64 scalar, the number of steps made before, and returns a float scalar
    built of ops, or a number.

    The function itself may be given in place of the schedule.

    Args:
        function: takes an int64 scalar, the number of steps made before, and returns a float scalar built of ops, or a
            number.

    Examples:
        >>> optimizer = optim.Adam(optim.LambdaLR(lambda step: 0.1 / (1.0 + 0.01 * step.astype("float64"))))
    """

    def __init__(self, function: Callable[[Expr], Any]) -> None:
        if not callable(function) or isinstance(function, type):
            raise ArgumentError(f"LambdaLR takes a function of the step, got {function!r}", hint=_OF_STEP)
        try:
            inspect.signature(function).bind(0)
        except TypeError as error:
            message = f"LambdaLR takes a function of one argument, the step: {error} in {function!r}"
            raise ArgumentError(message, hint=_OF_STEP) from None
        except ValueError:  # a built-in function that does not say what it takes
            pass
        self._function = function

    def value(self, step: Expr) -> Scalar:
        given = self._function(step)
        if isinstance(given, (int, float)):
            return float(given)
        if not isinstance(given, Expr):
            raise UserError(f"{self!r} must return a number or a scalar built of ops, it returned {given!r}")
        info = given.struct_info
        if not isinstance(info, TensorStructInfo) or info.ndim != 0:
            raise ShapeError(f"{self!r} must return a scalar, it returned {format_info(info)}", span=given.span)
        if "float" not in info.dtype:
            hint = 'cast the step: step.astype("float64")'
            raise DTypeError(f"{self!r} must return a float, it returned {info.dtype}", span=given.span, hint=hint)
        return cast(given, "float64")

    def __repr__(self) -> str:
        return f"LambdaLR({getattr(self._function, '__name__', type(self._function).__name__)})"


_OF_STEP = 'such as lambda step: 0.1 / (1.0 + 0.01 * step.astype("float64"))'


@dataclass(frozen=True)
class RunTime:
    """A hyperparameter that ``trainer.set_hyperparameter(name, value)`` changes without compiling anew.

    It begins as ``initial`` and is a state of the optimizer: checkpoints hold it. The name is that of the argument it
    is given for (``Adam(lr=RunTime(1e-3))``: "lr"), unless one is given. Values of the same name are set together.

    Args:
        initial: the first value.
        name: by which it is set; by default that of the argument it is given for.
        least: the least value that is allowed.
        below: all values have to be less than this.

    Examples:
        >>> trainer = pullback.trainer(net, "cross_entropy", optim.Adam(optim.RunTime(1e-3)), example=x)
        >>> trainer.set_hyperparameter("lr", 1e-4)
        >>> trainer.hyperparameters["lr"]
        0.0001
    """

    initial: float
    name: str = ""
    least: float | None = None  # its bounds, as the optimizer states them
    below: float | None = None

    def checked(self, value: Any) -> float:
        """A number for it, or an ArgumentError."""
        return number(self.name, value, self.least, self.below)

    def __repr__(self) -> str:
        return f"RunTime({self.initial!r})"


Hyperparameter = float | Schedule | RunTime | Callable[[Expr], Any]


def hyperparameter(name: str, value: Any, least: float | None = None, below: float | None = None) -> Any:
    """What a user gives for a hyperparameter: a float, a Schedule, or a RunTime value with its name and bounds.

    Raises ArgumentError for anything else, and for numbers that are not finite, < ``least``, or ≥ ``below``.
    """
    if isinstance(value, RunTime):
        value = replace(value, name=value.name or name, least=least, below=below)
        return replace(value, initial=value.checked(value.initial))
    if isinstance(value, Schedule):
        return value
    if isinstance(value, type) and issubclass(value, Schedule):
        raise ArgumentError(
            f"{name} must be a number or a schedule, got the class {value.__name__}",
            hint="make one: CosineAnnealingLR(0.1, T_max=100)",
        )
    if callable(value):
        return LambdaLR(value)
    return number(name, value, least, below)


def number(name: str, value: Any, least: float | None = None, below: float | None = None) -> float:
    """A finite float within its bounds."""
    try:
        result = None if isinstance(value, (str, bytes, bool, np.bool_)) else float(value)
    except (TypeError, ValueError):
        result = None
    except OverflowError:
        message = f"{name} must be a number that a float64 can hold, got a larger one"
        raise ArgumentError(message, hint="such as 0.01") from None
    if result is None:
        raise ArgumentError(
            f"{name} must be a number, got {value!r}",
            hint="such as 0.01, a schedule from relax.training.lr_schedule, or RunTime(0.01)",
        )
    if not np.isfinite(result) or (least is not None and result < least):
        bound = "" if least is None else f" ≥ {least:g}"
        raise ArgumentError(f"{name} must be a finite number{bound}, got {value!r}", hint="such as 0.01")
    if below is not None and result >= below:
        raise ArgumentError(f"{name} must be less than {below:g}, got {value!r}")
    return result


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """Two values."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentError(f"{name} must be a pair of numbers, got {value!r}", hint="such as betas=(0.9, 0.999)")
    return value[0], value[1]


def momenta(betas: Any) -> tuple[Any, Any]:
    """Two weights of averages, ≥ 0 and < 1; a run-time value is called beta1 or beta2."""
    given = [_named(value, f"beta{i + 1}") for i, value in enumerate(pair("betas", betas))]
    first, second = (hyperparameter(f"betas[{i}]", value, 0.0) for i, value in enumerate(given))
    if any(isinstance(b, float) and b >= 1 for b in (first, second)):
        raise ArgumentError(f"betas must be less than 1, got {betas!r}", hint="such as betas=(0.9, 0.999)")
    return tuple(hyperparameter(f"betas[{i}]", value, 0.0, 1.0) for i, value in enumerate((first, second)))


def _named(value: Any, name: str) -> Any:
    return replace(value, name=value.name or name) if isinstance(value, RunTime) else value


def count(name: str, value: Any, least: int = 1) -> int:
    """An int ≥ ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"{name} must be an int ≥ {least}, got {value!r}", hint="such as 1, 2 or 4")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """A bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def cast(value: Scalar, dtype: str) -> Expr:
    """A scalar as an expression of a dtype."""
    if not isinstance(value, Expr):
        return const(value, dtype)
    return value if value.dtype == dtype else op.astype(value, dtype)


def as_scalar(value: Scalar) -> Expr:
    """A float64 scalar of the graph."""
    return as_relax(value) if isinstance(value, Expr) else const(float(value), "float64")


def complement(value: Scalar) -> Scalar:
    """1 - value; of a number, as exact as the decimal digits that the user wrote: 1 - 0.9 is 0.1."""
    return 1.0 - value if isinstance(value, Expr) else float(1 - Decimal(str(value)))


def is_zero(value: Scalar) -> bool:
    """Whether a hyperparameter is the constant zero, so that what it multiplies is left out."""
    return not isinstance(value, Expr) and value == 0
