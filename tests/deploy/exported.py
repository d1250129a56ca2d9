"""An exported shared library from Python: what its manifest says is how its functions are called."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy

from pullback.runtime.dtype import numpy_dtype
from tests.deploy.fake import DTYPES, OK, Column, Progress, Refused, aligned, compiler, pointers

STRICT = ("-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


class Options(ctypes.Structure):
    """``NAME_run_options``."""

    _fields_ = (
        ("epochs", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("order", ctypes.c_void_p),
        ("progress", Progress),
        ("context", ctypes.c_void_p),
        ("loss", ctypes.c_double),
        ("steps_done", ctypes.c_int64),
    )


def dtype_name(array: np.ndarray) -> str:
    return array.dtype.name


class Instance:
    """An instance of an exported library, with NumPy's arrays."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.name = self.manifest["name"]
        self.library = ctypes.CDLL(str(folder / f"lib{self.name}.so"))
        self._function("bytes").restype = ctypes.c_size_t
        self._function("last_error").restype = ctypes.c_char_p
        for name in ("steps", "epochs", "parameter_count", "checkpoint_bytes"):
            self._function(name).restype = ctypes.c_int64
        self.memory = aligned(self._function("bytes")(threads))
        self.memory[:] = 0xA5  # what is not written is not zero
        self.handle = ctypes.c_void_p()
        size = ctypes.c_size_t(self.memory.size)
        assert self._function("init")(pointer(self.memory), size, threads, ctypes.byref(self.handle)) == OK

    def _function(self, name: str):
        return getattr(self.library, f"{self.name}_{name}")

    def close(self) -> None:
        self._function("close")(self.handle)
        self.handle = None

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def call(self, name: str, *arguments: object) -> None:
        status = self._function(name)(self.handle, *arguments)
        if status != OK:
            raise Refused(status, self._function("last_error")(self.handle).decode())

    def number(self, name: str) -> int:
        """What ``steps`` and its sisters return."""
        return self._function(name)(self.handle)

    def step(self, *arrays: np.ndarray) -> float:
        loss = ctypes.c_double()
        self.call("step", *(pointer(a) for a in arrays), ctypes.byref(loss))
        return loss.value

    def predict(self, *inputs: np.ndarray, rows: int | None = None) -> list[np.ndarray]:
        count = len(inputs[0]) if rows is None else rows
        outputs = [np.empty((count, *t["shape"][1:]), numpy_dtype(t["dtype"])) for t in self.manifest["outputs"]]
        self.call("predict", *(pointer(a) for a in inputs), ctypes.c_int64(count), *(pointer(o) for o in outputs))
        return outputs

    def evaluate(self, *arrays: np.ndarray) -> tuple[float, float]:
        loss, accuracy = ctypes.c_double(), ctypes.c_double()
        rows = ctypes.c_int64(len(arrays[0]))
        self.call("evaluate", columns(arrays), rows, ctypes.byref(loss), ctypes.byref(accuracy))
        return loss.value, accuracy.value

    def run(
        self,
        *arrays: np.ndarray,
        epochs: int = 0,
        steps: int = 0,
        shuffle: bool = True,
        progress: Callable[[int, int, int, float], int] | None = None,
    ) -> Options:
        order = np.zeros(len(arrays[0]), np.int32)
        called = Progress(lambda _, *told: progress(*told)) if progress else Progress()
        options = Options(epochs, steps, order.ctypes.data if shuffle else None, called)
        self.call("run", columns(arrays), ctypes.c_int64(len(arrays[0])), ctypes.byref(options))
        return options

    def get(self, name: str) -> np.ndarray:
        """What is kept under a name."""
        entry = next(t for t in self.manifest["kept"] if t["name"] == name)
        found = np.empty(entry["shape"], numpy_dtype(entry["dtype"]))
        number = self._function("find")(self.handle, name.encode())
        self.call("get", number, pointer(found), ctypes.c_size_t(found.nbytes))
        return found

    def set(self, name: str, values: np.ndarray) -> None:
        """Give what is kept under a name other values."""
        number, given = self._function("find")(self.handle, name.encode()), np.ascontiguousarray(values)
        self.call("set", number, pointer(given), ctypes.c_size_t(given.nbytes))

    def save(self, path: Path) -> None:
        self.call("save", str(path).encode())

    def load(self, path: Path) -> None:
        self.call("load", str(path).encode())


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def columns(arrays: Sequence[np.ndarray]) -> ctypes.Array:
    return (Column * len(arrays))(*(Column(a.ctypes.data, DTYPES.index(dtype_name(a))) for a in arrays))


def kept(path: Path) -> dict[str, bytes]:
    """All tensors of a checkpoint: their dtypes, shapes and bits."""
    found = safetensors.numpy.load_file(path)
    return {key: f"{a.dtype}{a.shape}".encode() + a.tobytes() for key, a in found.items()}


def run_command(*command: str | Path, cwd: Path | None = None, **options: object) -> str:
    """What a command prints; it succeeds."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


__all__ = ["STRICT", "Instance", "Options", "Refused", "columns", "compiler", "kept", "pointers", "run_command"]
