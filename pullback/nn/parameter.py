"""Parameters and buffers: the tensors that a module owns.

A parameter is a shape, a dtype, a way to begin and, once it is needed, a value. While a module is exported it stands
for a variable of the program (``trace.py``). Once a trainer trains it, its value is the trainer's.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.words import guided
from pullback.relax.training.initializers import Constant, Initializer, initializer
from pullback.runtime.dtype import NUMPY_DTYPES, dtype_name, numpy_dtype
from pullback.runtime.interchange import array_of
from pullback.runtime.tensor import Tensor, tensor

__all__ = ["Buffer", "Parameter"]

_values_left_out: ContextVar[bool] = ContextVar("pullback_values_left_out", default=False)


_numbers = itertools.count()  # of those made so far: two that are drawn by themselves begin differently


@contextlib.contextmanager
def values_left_out() -> Iterator[None]:
    """Copies made inside have no values of what a trainer holds."""
    token = _values_left_out.set(True)
    try:
        yield
    finally:
        _values_left_out.reset(token)


@guided
class Variable:
    """What parameters and buffers have in common.

    ``data``: an array, which is copied, or a shape (a tuple of ints) whose values ``init`` draws when they are first
    needed. ``dtype`` is that of the array, or else float32.
    """

    kind = "variable"

    def __init__(self, data: Any, init: Any, dtype: str | None) -> None:
        self._number = next(_numbers)
        self._value: np.ndarray | None = None
        self._held_by: tuple[Any, str] | None = None  # a trainer, and the name there
        self.init: Initializer | None = None
        if _is_shape(data):
            self.shape = tuple(int(size) for size in data)
            self.dtype = dtype_name(_dtype(dtype))
            self.init = initializer(init)
            return
        if init is not None:
            raise ArgumentError(f"a {self.kind} made of values takes no init=", hint="give its shape instead")
        array = _array(data, dtype)
        self.shape, self.dtype, self._value = array.shape, dtype_name(array.dtype), array

    # ---- the value ---------------------------------------------------------------------------------------------------

    @property
    def has_value(self) -> bool:
        """Whether its value is known: it was given, drawn, loaded, or a trainer has it."""
        return self._held_by is not None or self._value is not None

    @property
    def data(self) -> Tensor:
        """The value: a copy. A parameter that has none yet draws it, each from numbers of its own."""
        if self._held_by is not None:
            trainer, name = self._held_by
            value: Tensor = trainer.value_of(name)
            return value
        if self._value is None:
            self.draw(np.random.Generator(np.random.PCG64([0, 0, self._number])))
        assert self._value is not None  # what is made of a shape has an initializer
        return tensor(self._value.copy())

    @data.setter
    def data(self, value: Any) -> None:
        """Replace the value by another of the same shape, in the parameter's dtype; in the trainer too that has it."""
        array = _array(value, self.dtype)
        if array.shape != self.shape:
            raise ShapeError(f"a {self.kind} of shape {self.shape} cannot take a value of shape {array.shape}")
        if self._held_by is None:
            self._value = array
            return
        trainer, name = self._held_by
        trainer.load_state_dict({name: array}, strict=False)

    def draw(self, generator: np.random.Generator, init: Initializer | None = None) -> None:
        """Draw the value anew, by its own initializer or another one. A trainer that had it keeps its own: the next one
        begins with what is drawn."""
        chosen = init or self.init
        if chosen is None:
            return
        values = np.asarray(chosen(generator, self.shape), np.float64)
        self._held_by, self._value = None, np.ascontiguousarray(values.astype(numpy_dtype(self.dtype)))

    def own(self, value: np.ndarray) -> None:
        """Have this value from now on; a trainer that had the old one keeps it."""
        self._held_by, self._value = None, np.ascontiguousarray(value)

    def begin(self, init: Initializer) -> None:
        """Let ``init`` draw the value anew when it is next needed, as in :meth:`draw`."""
        self.init, self._value, self._held_by = init, None, None

    def convert(self, dtype: str) -> None:
        """Change the dtype, and the value with it."""
        value = self.numpy() if self.has_value else None
        self.dtype, self._held_by = dtype_name(_dtype(dtype)), None
        self._value = None if value is None else value.astype(numpy_dtype(self.dtype))

    def hold(self, trainer: Any, name: str) -> None:
        """Say which trainer has the value from now on, and under which name."""
        self._value, self._held_by = None, (trainer, name)

    def numpy(self) -> np.ndarray:
        """The value as a NumPy array: a copy."""
        from pullback.nn.trace import is_tracing

        if is_tracing():
            raise UserError(
                f"a {self.kind} of shape {self.shape} is used in forward, but no module holds it",
                hint="make it an attribute of the module, or put it in a ParameterList: self.scale = nn.Parameter(…)",
            )
        return self.data.numpy()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def numel(self) -> int:
        """The number of elements, as PyTorch calls it."""
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have a value of their own: who holds the original's does not hold theirs."""
        state = dict(vars(self))
        if self._held_by is not None:
            state["_value"] = None if _values_left_out.get() else self.data.numpy()
            state["_held_by"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype!r})"


class Parameter(Variable):
    """A tensor that is trained: an attribute of a :class:`Module`.

    Args:
        data: its initial values, an array that is copied, or its shape, a tuple of ints.
        requires_grad: whether it is trained: else no gradient is computed for it.
        init: an initializer of ``nn.init`` or its name, which draws the values of a shape when they are first needed;
            by default zeros.
        dtype: by default that of the data, or float32.

    Raises:
        DTypeError: for a dtype that is none.
        ArgumentError: for an unknown initializer.

    Examples:
        >>> scale = nn.Parameter(np.ones(3, "float32"))
        >>> nn.Parameter((64, 32), init="kaiming_normal").shape
        (64, 32)
    """

    kind = "parameter"
    frozen_by_update = False  # whether it is not trained because an update is: see nn/lora.py

    def __init__(self, data: Any, requires_grad: bool = True, *, init: Any = None, dtype: str | None = None) -> None:
        super().__init__(data, init, dtype)
        self.requires_grad = requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Parameter:
        """Set whether it is trained; returns it."""
        self.requires_grad = requires_grad
        return self


class Buffer(Variable):
    """A tensor of a module that is not trained: a constant, or a state that ``forward`` assigns anew.

    Args:
        data: its initial values, or its shape.
        persistent: whether it is part of ``state_dict``; where nothing assigns one that is not, it becomes a constant
            of the program.
        init: an initializer of ``nn.init`` or its name, where data is a shape.
        dtype: by default that of the data, or float32.

    Examples:
        >>> class Counting(nn.Module):
        ...     def __init__(self):
        ...         self.count = nn.Buffer(np.zeros((), "int64"))
        ...
        ...     def forward(self, x):
        ...         self.count = self.count + 1            # takes effect in training steps
        ...         return x
    """

    kind = "buffer"

    def __init__(self, data: Any, persistent: bool = True, *, init: Any = None, dtype: str | None = None) -> None:
        super().__init__(data, init, dtype)
        self.persistent = persistent


def _is_shape(data: Any) -> bool:
    """``()`` and ``(3, 4)`` are shapes; lists of numbers are values."""
    return isinstance(data, tuple) and all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in data)


def _dtype(dtype: Any) -> np.dtype:
    """A dtype from its name, or NumPy's or PyTorch's object for it; float32 by default."""
    if dtype is None:
        return np.dtype(np.float32)
    name = str(dtype).rpartition(".")[2]  # torch.float32
    return numpy_dtype(name if name in NUMPY_DTYPES else dtype)


def _array(data: Any, dtype: str | None) -> np.ndarray:
    """An own, contiguous copy. Python numbers and float64 arrays become float32 unless a dtype is given."""
    if isinstance(data, Variable):
        data = data.numpy()
    is_python = not hasattr(data, "dtype")
    array = np.asarray(data) if isinstance(data, Tensor) else array_of(data, None)
    if dtype is None and is_python and array.dtype == np.float64:
        dtype = "float32"
    wanted = array.dtype if dtype is None else _dtype(dtype)
    return np.array(array, wanted, order="C", copy=True)


def shape_of(*sizes: int | Sequence[int]) -> tuple[int, ...]:
    """A shape from sizes or one sequence of them; an ArgumentError for a size below 0."""
    shape: Any = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(f"a size must be an int ≥ 0, got {size!r}", hint="such as nn.Linear(784, 10)")
    return tuple(int(size) for size in shape)


ZEROS, ONES = Constant(0.0), Constant(1.0)
