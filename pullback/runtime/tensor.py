"""Tensors: the values that compiled functions take and return."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, NoAttribute, ShapeError
from pullback.ir.words import guided, no_attribute
from pullback.runtime.device import Device, cpu
from pullback.runtime.dtype import dtype_name, numpy_dtype
from pullback.runtime.interchange import CPU_DLPACK_DEVICE, array_of, is_python_data, to_dlpack
from pullback.runtime.memory import BorrowedMemory, Memory, OwnedMemory, ZeroMemory

_CPU = cpu()
_SCALAR = 8  # bytes
_SHOWN = 100  # elements that a notebook shows


def _refused(operator: str) -> Callable[..., Any]:
    """A method that says what to write instead of arithmetic on tensors; arrays and graph values do it themselves."""

    def method(self: Tensor, *others: Any) -> Any:
        if any(isinstance(v, np.generic) or not isinstance(v, (Tensor, int, float, complex)) for v in others):
            return NotImplemented
        raise TypeError(
            f"tensors do no arithmetic ({operator}): use float(tensor) of a scalar, such as a loss,"
            " and np.asarray(tensor) of any"
        )

    return method


def _ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Tensor, Any], bool]:
    """A comparison of scalars with each other and with numbers; of arrays, NumPy takes care."""

    def method(self: Tensor, other: Any) -> bool:
        if not isinstance(other, (Tensor, int, float)):
            return NotImplemented
        for value in (self, other):
            if isinstance(value, Tensor) and value.size != 1:
                raise TypeError(
                    f"only tensors with one element are ordered ({symbol}); this one has shape {value.shape}:"
                    " use np.asarray(tensor)"
                )
        return compare(self.item(), other.item() if isinstance(other, Tensor) else other)

    return method


@guided
class Tensor:
    """A C-contiguous array in memory of its own, or in memory borrowed from another library's array.

    ``Tensor(shape, dtype)`` is a new one with undefined contents; ``tensor(data)`` makes one from data.

    Args:
        shape: the sizes, or one size.
        dtype: of the elements.
        device: where it lives.
        memory: what it lies in; by default new memory.
    """

    __slots__ = ("__weakref__", "_memory", "_numpy_dtype", "device", "dtype", "shape")

    def __init__(
        self,
        shape: Sequence[int] | int,
        dtype: Any = "float32",
        device: Device | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.shape: tuple[int, ...] = _checked_shape(shape)
        self._numpy_dtype = numpy_dtype(dtype)
        self.dtype: str = dtype_name(self._numpy_dtype)
        self.device: Device = _checked_device(device)
        nbytes = math.prod(self.shape) * self._numpy_dtype.itemsize
        if memory is not None and memory.nbytes < nbytes:
            raise ArgumentError(f"a tensor of {nbytes} bytes does not fit in memory of {memory.nbytes} bytes")
        self._memory = OwnedMemory(nbytes) if memory is None else memory

    def _with_memory(self, memory: Memory) -> Tensor:
        """A tensor of the same type in other memory, which has room for it: made without a second look at the type."""
        result = Tensor.__new__(Tensor)
        result.shape, result._numpy_dtype, result.dtype = self.shape, self._numpy_dtype, self.dtype
        result.device, result._memory = self.device, memory
        return result

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            hint = f"x.numpy() is a NumPy array, which has {name}"
            raise NoAttribute(f"Tensor has no attribute {name!r}", hint=hint)
        raise no_attribute("Tensor", name, dir(Tensor))

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self.size * self._numpy_dtype.itemsize

    @property
    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._memory.address

    @property
    def writable(self) -> bool:
        """Whether the elements may change: not so if they are borrowed from an array that is read-only."""
        return self._memory.writable

    def is_pinned(self) -> bool:
        """Whether others may see these bytes: through a NumPy view or DLPack export that is alive, or as their lender.

        A compiled function does not overwrite a pinned tensor; it gives its result new memory instead.
        """
        return self._memory.is_pinned()

    # ---- values out ------------------------------------------------------------------------------

    def _view(self) -> np.ndarray:
        return self._memory.view(self.shape, self._numpy_dtype)

    def numpy(self) -> np.ndarray:
        """A copy as a NumPy array. (``np.asarray(tensor)`` is a view.)"""
        if 0 < self.nbytes <= _SCALAR:  # a loss, in each step: no other thread can come in between
            held = ctypes.string_at(self._memory.address, self.nbytes)
            return np.frombuffer(held, self._numpy_dtype).reshape(self.shape).copy()
        return self._view().copy()

    asnumpy = numpy

    def item(self) -> bool | int | float:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError(
                f"only a tensor with one element is a number; this one has shape {self.shape}",
                hint="take an element, x[0, 1], or all of them, x.numpy()",
            )
        value = self._view().item()
        return value if isinstance(value, (bool, int, float)) else float(value)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __round__(self, digits: int | None = None) -> int | float:
        return round(self.item(), digits)

    def __format__(self, spec: str) -> str:
        """A scalar as the Python number; of other tensors there is no format but the empty one."""
        if not self.shape:
            return format(self.item(), spec)
        if spec:
            raise TypeError(f"only a scalar has the format {spec!r}; this tensor has shape {self.shape}")
        return str(self)

    __lt__, __le__ = _ordering("<", operator.lt), _ordering("<=", operator.le)
    __gt__, __ge__ = _ordering(">", operator.gt), _ordering(">=", operator.ge)
    __add__ = __radd__ = _refused("+")
    __sub__ = __rsub__ = __neg__ = _refused("-")
    __mul__ = __rmul__ = _refused("*")
    __truediv__ = __rtruediv__ = _refused("/")
    __floordiv__ = __rfloordiv__ = _refused("//")
    __mod__ = __rmod__ = _refused("%")
    __pow__ = __rpow__ = _refused("**")
    __matmul__ = __rmatmul__ = _refused("@")
    __abs__ = _refused("abs")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        """A copy of the part that NumPy's indexing selects."""
        return _copy_of(np.asarray(self._view()[index]), self._numpy_dtype, self.device)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        values = np.array2string(self._view(), separator=", ", prefix="tensor(")
        return f"tensor({values}, shape={self.shape}, dtype={self.dtype})"

    def _repr_html_(self) -> str:
        """In a notebook: the type, and the values, of many those at the ends."""
        values = np.array2string(self._view(), threshold=_SHOWN, edgeitems=3)
        kind = f"Tensor {self.shape} {self.dtype}, {self.nbytes:,} bytes"
        style = "margin:2px 0 0 1.5em;background:none;color:inherit"
        return f'<div><b>{escape(kind)}</b><pre style="{style}">{escape(values)}</pre></div>'

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy_of, (self.numpy(), self._numpy_dtype, self.device)

    # ---- values in, and across -------------------------------------------------------------------

    def copyfrom(self, source: Any) -> Tensor:
        """Overwrites the elements with those of ``source``, which has the same shape; floats may be rounded."""
        if not self.writable:
            raise ArgumentError("this tensor borrows memory that is read-only", hint="use tensor(data, copy=True)")
        array = np.asarray(source) if isinstance(source, Tensor) else array_of(source, self._numpy_dtype)
        if array.shape != self.shape:
            raise ShapeError(
                f"cannot copy shape {array.shape} into a tensor of shape {self.shape}",
                hint="reshape it, or make a new tensor",
            )
        if not np.can_cast(array.dtype, self._numpy_dtype, "same_kind"):
            raise DTypeError(
                f"cannot copy {dtype_name(array.dtype)} into a tensor of {self.dtype} without losing values",
                hint="copy an array of that dtype: array.astype(…)",
            )
        np.copyto(self._view(), array, casting="same_kind")
        return self

    def copy(self) -> Tensor:
        """A tensor with the same elements in memory of its own; zeros that nobody has seen stay such."""
        if isinstance(self._memory, ZeroMemory) and self._memory.is_untouched:
            return zeros(self.shape, self._numpy_dtype, self.device)
        return _copy_of(self._view(), self._numpy_dtype, self.device)

    def copyto(self, target: Tensor | Device) -> Tensor:
        """Copies into another tensor of the same shape, or into a new one on a device; returns that tensor."""
        if isinstance(target, Device):
            return _copy_of(self._view(), self._numpy_dtype, target)
        if not isinstance(target, Tensor):
            raise ArgumentError(f"expected a Tensor or a Device to copy to, got {type(target).__name__}")
        return target.copyfrom(self)

    # ---- protocols -------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """NumPy's protocol: a view, which pins this tensor while it lives, or a copy if asked for or needed."""
        view = self._view()
        if dtype is None or np.dtype(dtype) == self._numpy_dtype:
            return view.copy() if copy else view
        if copy is False:
            raise ValueError(f"a tensor of {self.dtype} cannot become {np.dtype(dtype)} without a copy")
        return view.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """DLPack's protocol: exports the memory without a copy, and pins this tensor while the export lives."""
        if stream is not None:
            raise BufferError("a CPU tensor has no stream: stream must be None")
        if dl_device is not None and tuple(map(int, dl_device)) != CPU_DLPACK_DEVICE:
            raise BufferError(f"a CPU tensor cannot be exported to DLPack device {tuple(dl_device)}")
        return to_dlpack(self.numpy() if copy else self._view(), max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DLPACK_DEVICE


def tensor(data: Any, dtype: Any = None, device: Device | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor of data.

    Args:
        data: a Python number, (nested) lists, a NumPy array, or anything with DLPack or ``__array__``.
        dtype: of the elements; by default that of an array, float32 of Python floats, int64 of ints, bool of bools.
        device: where values live; ``pullback.cpu()`` by default.
        copy: as in NumPy: True always copies, None only where needed, False never. Where no copy is made the tensor and
            the array share their memory.

    Returns:
        the tensor.

    Examples:
        >>> pullback.tensor([[1.0, 2.0]])
        tensor([[1., 2.]], shape=(1, 2), dtype=float32)
    """
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy must be True, False or None, got {copy!r}")
    wanted = None if dtype is None else numpy_dtype(dtype)
    if isinstance(data, Tensor):
        if (wanted is None or wanted == data._numpy_dtype) and _checked_device(device) == data.device:
            return data.copy() if copy else data
        array = np.asarray(data)
    else:
        array = array_of(data, wanted)
    wanted = array.dtype if wanted is None else wanted
    if copy:
        return _copy_of(array, wanted, device)
    if not is_python_data(data) and array.dtype == wanted and array.flags.c_contiguous and array.flags.aligned:
        return Tensor(array.shape, wanted, device, BorrowedMemory(array))
    if copy is False:
        raise ArgumentError(
            f"cannot make a tensor of {dtype_name(wanted)} from this {type(data).__name__} without a copy",
            hint="only a C-contiguous, aligned array of the same dtype can be shared; copy=None copies where needed",
        )
    return _copy_of(array, wanted, device)


def empty(shape: Sequence[int] | int, dtype: Any = "float32", device: Device | None = None) -> Tensor:
    """A new tensor with undefined contents.

    Args:
        shape: the sizes, or one size.
        dtype: of the elements.
        device: where it lives; ``pullback.cpu()`` by default.

    Returns:
        the tensor.

    Raises:
        ShapeError: for sizes that are negative, or no ints.
        DTypeError: for an unknown dtype.
        ArgumentError: where ``device`` is no Device.
    """
    return Tensor(shape, dtype, device)


def zeros(shape: Sequence[int] | int, dtype: Any = "float32", device: Device | None = None) -> Tensor:
    """A new tensor of zeros; it takes no memory before somebody looks at it or writes to it.

    Args:
        shape: the sizes, or one size.
        dtype: of the elements.
        device: where it lives; ``pullback.cpu()`` by default.

    Returns:
        the tensor.

    Raises:
        ShapeError: for sizes that are negative, or no ints.
        DTypeError: for an unknown dtype.
        ArgumentError: where ``device`` is no Device.

    Examples:
        >>> pullback.nd.zeros((2, 3), "int32")
        tensor([[0, 0, 0],
                [0, 0, 0]], shape=(2, 3), dtype=int32)
    """
    shape, kind = _checked_shape(shape), numpy_dtype(dtype)
    return Tensor(shape, kind, device, ZeroMemory(math.prod(shape) * kind.itemsize))


def allocate_zeros(tensors: Iterable[Tensor]) -> None:
    """Have memory for those tensors of zeros that nobody has seen yet, all at once."""
    ZeroMemory.allocate(t._memory for t in tensors if isinstance(t._memory, ZeroMemory))


def _copy_of(array: np.ndarray, dtype: np.dtype, device: Device | None) -> Tensor:
    result = Tensor(array.shape, dtype, device)
    np.copyto(result._view(), array, casting="unsafe")
    return result


def _checked_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    try:
        sizes = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError as error:
        raise ShapeError(f"a shape must be a sequence of ints, got {shape!r}") from error
    if sizes and min(sizes) < 0:
        raise ShapeError(f"a shape has no negative sizes, got {shape!r}", hint="sizes are 0 or more")
    return sizes


def _checked_device(device: Device | None) -> Device:
    if device is None:
        return _CPU
    if not isinstance(device, Device):
        raise ArgumentError(f"expected a Device, got {device!r}", hint="pullback.cpu(0) is one")
    return device
