"""Functions by registered name, called from graph functions: in the interpreter, and from native code.

A registered function of Python gets a :class:`Tensor` for each argument and returns a tensor or an array, or a tuple of
them. A function of C, which ctypes knows, has the signature

    int32_t function(const pb_array *arrays, int32_t inputs, int32_t outputs);

where the inputs come before the outputs, which it fills; it returns 0, or anything else where it failed:

    typedef struct pb_array { void *data; const int64_t *shape; int64_t ndim; const char *dtype; } pb_array;

Native code calls one C function for all of them, ``pb_call_packed(name, arrays, inputs, outputs)``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime.dtype import dtype_name, numpy_dtype
from pullback.runtime.registry import get_global_func
from pullback.runtime.tensor import Tensor, tensor

SYMBOL = "pb_call_packed"
_C_FUNCTION = type(ctypes.CFUNCTYPE(None)()).__mro__[1]  # the base of all functions that ctypes knows
Kind = tuple[tuple[int, ...], str]  # a shape and a dtype


class Array(ctypes.Structure):
    """``pb_array``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int64),
        ("dtype", ctypes.c_char_p),
    )

    @staticmethod
    def of(array: np.ndarray) -> Array:
        """The description of a dense array, which must outlive it."""
        shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        result = Array(array.ctypes.data, shape, array.ndim, dtype_name(array.dtype).encode())
        result.kept = (array, shape)
        return result

    def view(self) -> np.ndarray:
        """The elements, in place."""
        shape = tuple(self.shape[k] for k in range(self.ndim))
        kind = numpy_dtype(self.dtype.decode())
        count = math.prod(shape)
        if count == 0:
            return np.empty(shape, kind)
        memory = (ctypes.c_char * (count * kind.itemsize)).from_address(self.data)
        return np.frombuffer(memory, kind).reshape(shape)


def call(name: str, arguments: Sequence[np.ndarray], results: Sequence[Kind]) -> list[np.ndarray]:
    """What the function that is registered under ``name`` gives, of these types.

    Raises NameNotFound where there is none, and ArgumentError where it fails or gives something else.
    """
    outputs = [np.zeros(shape, numpy_dtype(dtype)) for shape, dtype in results]
    _run(name, [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arguments], outputs)
    return outputs


def _run(name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Fill the outputs with what the function gives."""
    function: Any = get_global_func(name)
    if isinstance(function, _C_FUNCTION):
        _run_c(name, function, inputs, outputs)
        return
    given = function(*(tensor(a, copy=True) for a in inputs))
    found = list(given) if isinstance(given, (tuple, list)) else [] if given is None else [given]
    if len(found) != len(outputs):
        message = f"the function {name!r} must give {len(outputs)} results, it gave {len(found)}"
        raise ArgumentError(message, hint="it returns a tensor or an array, or a tuple of them: see sinfo_args")
    for k, (result, output) in enumerate(zip(found, outputs, strict=True)):
        array = result.numpy() if isinstance(result, Tensor) else np.asarray(result)
        if array.shape != output.shape or array.dtype != output.dtype:
            wanted = f"{output.dtype} of shape {output.shape}"
            message = (
                f"result {k} of the function {name!r} must be {wanted}, it is {array.dtype} of shape {array.shape}"
            )
            raise ArgumentError(message, hint="sinfo_args of the call says which type the result has")
        output[...] = array


def _run_c(name: str, function: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    arrays = [Array.of(a) for a in (*inputs, *outputs)]
    described = (Array * max(1, len(arrays)))(*arrays)
    plain = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Array), ctypes.c_int32, ctypes.c_int32)
    status = ctypes.cast(function, plain)(described, len(inputs), len(outputs))
    if status:
        raise ArgumentError(f"the function {name!r} failed with status {status}", hint="0 says that it is done")


_failures = threading.local()


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(Array), ctypes.c_int32, ctypes.c_int32)
def _entry(name: bytes, arrays: Any, inputs: int, outputs: int) -> int:
    """What native code calls: 0, or 1 where it failed, and then :func:`take_failure` says why."""
    try:
        views = [arrays[k].view() for k in range(inputs + outputs)]
        _run(name.decode(), views[:inputs], views[inputs:])
    except BaseException as error:  # it must not go through native code
        _failures.error = error
        return 1
    return 0


@functools.cache
def address() -> int:
    """The address of ``pb_call_packed``."""
    found = ctypes.cast(_entry, ctypes.c_void_p).value
    assert found is not None
    return found


def take_failure() -> BaseException | None:
    """Why the last call from this thread's native code failed, once."""
    error = getattr(_failures, "error", None)
    _failures.error = None
    return error


def reported(error: BaseException, message: str) -> BaseException:
    """What a call of native code raises where a function failed: its own error, or one that says which it was."""
    if isinstance(error, UserError) or not isinstance(error, Exception):
        return error
    return ArgumentError(f"{message}: {type(error).__name__}: {error}", hint="the error above is the function's own")
