"""Exported functions that are loaded: what ``pullback.deploy.function`` writes, as something to call.

Loading a shared library runs its code: load those only that you trust as you do a program.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, NameNotFound, UserError
from pullback.runtime.device import Device
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.files import path_of
from pullback.runtime.graph_module import GraphModule, Slot
from pullback.runtime.tensor import Tensor, empty, tensor

_VERSION = 1
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Table(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int64),
        ("about", ctypes.c_char_p),
        ("call", _CALL),
        ("error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    )


class LoadedFunction:
    """The function of a library: a program for a :class:`GraphModule`."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            self._library.pullback_function_library.restype = ctypes.POINTER(_Table)
            table = self._library.pullback_function_library().contents
        except OSError as error:
            raise UserError(f"{path} cannot be loaded: {error}") from None
        except AttributeError:
            hint = "lib.export_library(path) of what relay.build returns writes one"
            raise UserError(f"{path} is no library of a function of pullback's", hint=hint) from None
        if table.version != _VERSION:
            raise UserError(f"{path} was written by another version of pullback", hint="export it again")
        self._table = table
        about = json.loads(table.about)
        self.name: str = about["name"]
        self.inputs, self.outputs = ([_slot(s) for s in about[key]] for key in ("inputs", "outputs"))
        names = about["about"].get("names")
        if names is not None:
            self.inputs = [Slot(n, s.shape, s.dtype) for n, s in zip(names, self.inputs, strict=True)]
        self.text: str = about["about"].get("graph", "{}")
        self.values = {k: self._value(k) for k in range(len(self.inputs)) if table.values[k]}

    def _value(self, number: int) -> Tensor:
        slot = self.inputs[number]
        dtype = NUMPY_DTYPES[slot.dtype]
        count = math.prod(s or 0 for s in slot.shape)
        held = ctypes.string_at(self._table.values[number], count * dtype.itemsize)
        return tensor(np.frombuffer(held, dtype).reshape(slot.shape), copy=True)

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        outputs = [empty(s.sizes, s.dtype) for s in self.outputs]
        if self._table.call(_pointers(tensors), _pointers(outputs)):
            raise ArgumentError(f"{self.name}: {self._table.error().decode()}")
        return outputs


def _slot(entry: dict[str, Any]) -> Slot:
    return Slot(entry["name"], tuple(entry["shape"]), entry["dtype"])


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(t.data_ptr for t in tensors))


class LoadedLibrary:
    """What :func:`load_module` returns: ``lib["default"](device)`` is a :class:`GraphModule`."""

    def __init__(self, program: LoadedFunction) -> None:
        self.program = program

    def __getitem__(self, name: str) -> Any:
        if name not in ("default", self.program.name):
            raise NameNotFound(f"the library has no function {name!r}", hint='it has "default"')
        return lambda device=None: GraphModule(self.program, device)

    def get_graph_json(self) -> str:
        return self.program.text

    def get_params(self) -> dict[str, Tensor]:
        """The values that inputs have from the beginning, by name."""
        return {self.program.inputs[k].name: value for k, value in self.program.values.items()}

    get_lib = lambda self: self  # noqa: E731


def load_module(path: str | os.PathLike[str], fmt: str = "") -> LoadedLibrary:
    """A library that ``lib.export_library(path)`` has written. It runs the library's code: see the text of the module.

    Raises UserError where the file is no such library.

    >>> module = load_module("net.so")["default"](pullback.cpu())
    """
    file = Path(path_of(path)).absolute()
    if not file.is_file():
        raise UserError(f"there is no file {file}")
    return LoadedLibrary(LoadedFunction(file))


def device_of(device: Any) -> Device | None:
    """A device, or None; lists of one are that one."""
    if isinstance(device, (list, tuple)) and len(device) == 1:
        device = device[0]
    if device is not None and not isinstance(device, Device):
        raise ArgumentError(f"expected a Device, got {device!r:.60}", hint="pullback.cpu() is one")
    return device
