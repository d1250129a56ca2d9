"""An exported library, called through ctypes: the tests' view of NAME.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
PROGRESS = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_double
)


class Column(ctypes.Structure):
    """NAME_column"""

    _fields_ = (("data", ctypes.c_void_p), ("dtype", ctypes.c_int))


class RunOptions(ctypes.Structure):
    """NAME_run_options"""

    _fields_ = (
        ("epochs", ctypes.c_int64), ("steps", ctypes.c_int64), ("order", ctypes.c_void_p), ("progress", PROGRESS),
        ("context", ctypes.c_void_p), ("loss", ctypes.c_double), ("steps_done", ctypes.c_int64),
    )  # fmt: skip


class LibraryError(Exception):
    """A status that is not OK, with the library's words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Instance:
    """An instance of a library, in memory of NumPy's."""

    def __init__(self, exported: Any, threads: int = 1) -> None:
        self.name, manifest = exported.name, exported.manifest
        self.library = ctypes.CDLL(str(next(Path(exported.folder).glob("*.so"))))
        self.outputs = [(o["shape"], o["dtype"]) for o in manifest["outputs"]]
        self.kept = {k["name"]: (k["shape"], k["dtype"]) for k in manifest["kept"]}
        size = self.function("bytes", ctypes.c_size_t)(threads)
        self.memory = np.zeros(size + 64, np.uint8)
        self.self = ctypes.c_void_p()
        address = -(-self.memory.ctypes.data // 64) * 64
        status = self.function("init")(
            ctypes.c_void_p(address), ctypes.c_size_t(size), threads, ctypes.byref(self.self)
        )
        if status:
            raise LibraryError(status, self.function("status_text", ctypes.c_char_p)(status).decode())

    def function(self, name: str, result: Any = ctypes.c_int) -> Callable[..., Any]:
        """NAME_name"""
        found = getattr(self.library, f"{self.name}_{name}")
        found.restype = result
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """A function that returns a status; a LibraryError where it is not OK."""
        status = self.function(name)(self.self, *arguments)
        if status:
            raise LibraryError(status, self.function("last_error", ctypes.c_char_p)(self.self).decode())

    def step(self, *arrays: np.ndarray) -> float:
        loss = ctypes.c_double()
        self.call("step", *map(pointer, arrays), ctypes.byref(loss))
        return loss.value

    def predict(self, inputs: Sequence[np.ndarray], rows: int) -> list[np.ndarray]:
        found = [np.empty((rows, *shape[1:]), dtype) for shape, dtype in self.outputs]
        self.call("predict", *map(pointer, inputs), ctypes.c_int64(rows), *map(pointer, found))
        return found

    def evaluate(self, *arrays: np.ndarray) -> tuple[float, float]:
        loss, accuracy = ctypes.c_double(), ctypes.c_double()
        rows = ctypes.c_int64(len(arrays[0]))
        self.call("evaluate", columns(arrays), rows, ctypes.byref(loss), ctypes.byref(accuracy))
        return loss.value, accuracy.value

    def run(self, *arrays: np.ndarray, shuffle: bool = True, **options: Any) -> RunOptions:
        order = np.zeros(len(arrays[0]), np.int32)
        given = RunOptions(order=order.ctypes.data if shuffle else None, **options)
        self.call("run", columns(arrays), ctypes.c_int64(len(arrays[0])), ctypes.byref(given))
        return given

    def get(self, name: str) -> np.ndarray:
        shape, dtype = self.kept[name]
        found = np.empty(shape, dtype)
        number = self.function("find")(self.self, name.encode())
        self.call("get", number, pointer(found), ctypes.c_size_t(found.nbytes))
        return found

    def save(self, path: Path) -> None:
        self.call("save", str(path).encode())

    def load(self, path: Path) -> None:
        self.call("load", str(path).encode())

    def close(self) -> None:
        self.function("close", None)(self.self)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def columns(arrays: Sequence[np.ndarray]) -> Any:
    return (Column * len(arrays))(*(Column(a.ctypes.data, DTYPES.index(a.dtype.name)) for a in arrays))
