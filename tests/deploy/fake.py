"""The trainer of fake_model.c from Python: its library's functions, its instances, and what it computes, in NumPy."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy

from pullback.relax.training.checkpoint_file import digest

HERE = Path(__file__).parent
OK, ARGUMENT, MEMORY, ENVIRONMENT, STATE, STEP, VALUE, BUSY, FILE, CHECKPOINT = range(10)
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32")
DTYPES += ("float64", "bfloat16")  # in the order of pb_dtype
BATCH = 4

Write = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
Read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)
Progress = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_double
)


class Column(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("dtype", ctypes.c_int32))


class Run(ctypes.Structure):
    _fields_ = (
        ("columns", ctypes.POINTER(Column)),
        ("rows", ctypes.c_int64),
        ("epochs", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("in_order", ctypes.c_int32),
        ("order", ctypes.c_void_p),
        ("progress", Progress),
        ("context", ctypes.c_void_p),
        ("loss", ctypes.c_double),
        ("steps_done", ctypes.c_int64),
    )


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("key", ctypes.c_char_p),
        ("announced", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("row_elements", ctypes.c_int64),
        ("kind", ctypes.c_uint8),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("is_label", ctypes.c_uint8),
        ("constant", ctypes.c_void_p),
    )


class Random(ctypes.Structure):
    """The ``pb_random`` of instance.h."""

    _fields_ = (
        ("state", ctypes.c_uint64 * 2),
        ("increment", ctypes.c_uint64 * 2),
        ("has_word", ctypes.c_uint32),
        ("word", ctypes.c_uint32),
    )


_P, _I, _L, _D = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_double
_SIGNATURES = {
    "fake_program": (_P,),
    "fake_program_with": (_P, ctypes.c_char_p),
    "fake_scores": (_P, _I, _I),
    "pb_model_bytes": (ctypes.c_size_t, _P, _I),
    "pb_model_init": (_I, _P, _P, ctypes.c_size_t, _I, _P),
    "pb_model_close": (None, _P),
    "pb_model_reset": (_I, _P),
    "pb_model_error": (ctypes.c_char_p, _P),
    "pb_status_text": (ctypes.c_char_p, _I),
    "pb_model_step": (_I, _P, _P, _P, _P),
    "pb_model_run": (_I, _P, _P),
    "pb_model_predict": (_I, _P, _P, _L, _P),
    "pb_model_evaluate": (_I, _P, _P, _L, _P, _P),
    "pb_model_find": (ctypes.c_int32, _P, ctypes.c_char_p),
    "pb_model_tensor": (ctypes.POINTER(Tensor), _P, ctypes.c_int32),
    "pb_model_get": (_I, _P, ctypes.c_int32, _P, ctypes.c_size_t),
    "pb_model_set": (_I, _P, ctypes.c_int32, _P, ctypes.c_size_t),
    "pb_model_parameter_count": (_L, _P),
    "pb_model_get_parameters": (_I, _P, _P, _L),
    "pb_model_set_parameters": (_I, _P, _P, _L),
    "pb_model_add_parameters": (_I, _P, _P, _L, _D),
    "pb_model_get_hyperparameter": (_I, _P, ctypes.c_char_p, _P),
    "pb_model_set_hyperparameter": (_I, _P, ctypes.c_char_p, _D),
    "pb_model_steps": (_L, _P),
    "pb_model_epochs": (_L, _P),
    "pb_model_seed": (_I, _P, ctypes.c_uint64),
    "pb_model_checkpoint_bytes": (_L, _P),
    "pb_model_write": (_I, _P, Write, _P, _P),
    "pb_model_read": (_I, _P, Read, _P, _L),
    "pb_model_save": (_I, _P, ctypes.c_char_p),
    "pb_model_load": (_I, _P, ctypes.c_char_p),
    "pb_random_seed": (None, _P, ctypes.c_uint64),
    "pb_random_next": (ctypes.c_uint64, _P),
    "pb_random_permutation": (None, _P, _P, ctypes.c_int32),
    "pb_sha256_begin": (None, _P),
    "pb_sha256_add": (None, _P, ctypes.c_char_p, ctypes.c_size_t),
    "pb_sha256_end_text": (None, _P, ctypes.c_char_p),
    "pb_sha256_add_repr": (ctypes.c_int32, _P, ctypes.c_char_p, ctypes.c_size_t),
    "pb_is_printable": (_I, ctypes.c_int32),
    "pb_text_add_real": (None, _P, _D),
    "pb_text_add_integer": (None, _P, _L),
    "pb_text_add_wide": (None, _P, _P),
}


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def compile_fake(folder: Path, *options: str) -> Path:
    """The library of fake_model.c, compiled as the exporter's are, with all warnings as errors."""
    path = folder / f"fake{''.join(options)}.so"
    flags = ["-std=c11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([*compiler(), *flags, *options, str(HERE / "fake_model.c"), "-o", str(path)], check=True)
    return path


def open_library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, *arguments) in _SIGNATURES.items():
        if hasattr(library, name):  # without files, some are not there
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    return library


def aligned(count: int, dtype: type | np.dtype | str = np.uint8, shift: int = 0) -> np.ndarray:
    """An array whose memory is aligned to 64 bytes, but for ``shift`` of them."""
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + shift
    return memory[begin : begin + size].view(dtype)


def pointers(arrays: Sequence[np.ndarray | None]) -> ctypes.Array:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(None if a is None else a.ctypes.data for a in arrays))


def columns(arrays: Sequence[np.ndarray]) -> ctypes.Array:
    return (Column * len(arrays))(*(Column(a.ctypes.data, DTYPES.index(a.dtype.name)) for a in arrays))


class Refused(Exception):
    """A call returned a status that is not PB_OK."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Model:
    """An instance."""

    def __init__(self, library: ctypes.CDLL, threads: int = 1, program: int | None = None) -> None:
        self.library, program = library, program or library.fake_program()
        self.memory = aligned(library.pb_model_bytes(program, threads))
        self.memory[:] = 0xA5  # what is not written is not zero
        self.handle = ctypes.c_void_p()
        status = library.pb_model_init(
            program, self.memory.ctypes.data, self.memory.size, threads, ctypes.byref(self.handle)
        )
        assert status == OK

    def close(self) -> None:
        self.library.pb_model_close(self.handle)
        self.handle = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def error(self) -> str:
        return self.library.pb_model_error(self.handle).decode()

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, f"pb_model_{name}")(self.handle, *arguments)
        if status != OK:
            raise Refused(status, self.error)

    def step(self, x: np.ndarray, scale: np.ndarray, labels: np.ndarray) -> float:
        loss = ctypes.c_double()
        self.call("step", pointers([x, scale]), pointers([labels]), ctypes.byref(loss))
        return loss.value

    def predict(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        y = np.full((len(x), 2), np.nan, np.float32)
        self.call("predict", pointers([x, scale]), len(x), pointers([y]))
        return y

    def evaluate(self, *arrays: np.ndarray, rows: int | None = None) -> tuple[float, float]:
        loss, accuracy = ctypes.c_double(), ctypes.c_double()
        count = len(arrays[0]) if rows is None else rows
        self.call("evaluate", columns(arrays), count, ctypes.byref(loss), ctypes.byref(accuracy))
        return loss.value, accuracy.value

    def run(
        self,
        *arrays: np.ndarray,
        epochs: int = 0,
        steps: int = 0,
        in_order: bool = False,
        progress: Callable[[int, int, int, float], int] | None = None,
    ) -> Run:
        order = np.zeros(len(arrays[0]), np.int32)
        given = columns(arrays)
        called = Progress(lambda _, *told: progress(*told)) if progress else Progress()
        run = Run(given, len(arrays[0]), epochs, steps, in_order, order.ctypes.data, called)
        try:
            self.call("run", ctypes.byref(run))
        except Refused as refused:
            refused.run = run
            raise
        return run

    def find(self, name: str) -> int:
        return self.library.pb_model_find(self.handle, name.encode())

    def get(self, name: str) -> np.ndarray:
        number = self.find(name)
        tensor = self.library.pb_model_tensor(self.handle, number).contents
        values = np.zeros(tensor.shape[: tensor.rank], DTYPES[tensor.dtype])
        self.call("get", number, values.ctypes.data, values.nbytes)
        return values

    def set(self, name: str, values: np.ndarray) -> None:
        self.call("set", self.find(name), values.ctypes.data, values.nbytes)

    def state(self) -> dict[str, np.ndarray]:
        """All that is kept, by key."""
        count = len(KEPT)
        found = {}
        for number in range(count):
            tensor = self.library.pb_model_tensor(self.handle, number).contents
            found[tensor.key.decode()] = self.get(tensor.name.decode())
        return found

    @property
    def steps(self) -> int:
        return self.library.pb_model_steps(self.handle)

    @property
    def epochs(self) -> int:
        return self.library.pb_model_epochs(self.handle)

    def write(self) -> bytes:
        """A checkpoint."""
        parts, written = [], ctypes.c_int64()

        @Write
        def write(_: object, data: object, count: int) -> int:
            parts.append(data[:count])
            return 0

        self.call("write", write, None, ctypes.byref(written))
        result = b"".join(parts)
        assert written.value == len(result) <= self.library.pb_model_checkpoint_bytes(self.handle)
        return result

    def read(self, data: bytes) -> None:
        @Read
        def read(_: object, offset: int, to: int, count: int) -> int:
            assert 0 <= offset <= offset + count <= len(data)
            ctypes.memmove(to, data[offset : offset + count], count)
            return 0

        self.call("read", read, None, len(data))

    def snapshot(self) -> bytes:
        """All that the instance is, generator and counters included."""
        return self.write()


# ---- the same in Python ----------------------------------------------------------------------------------------------

KEPT = {  # by key, in the order of their numbers, as they begin
    "param.linear.weight": np.array([[0.5, -0.25], [0.125, 1.0], [-1.5, 0.75]], np.float32),
    "param.linear.bias": np.array([0.1, -0.2]),
    "state.seen": np.array([3, 4]),
    "state.flags": np.array([True, False, True]),
    "state.empty": np.zeros((0, 3), np.float32),
    "random.random": np.array([7, 11], np.uint64),
    "optimizer.0": np.array(5),
    "optimizer.1": np.array([[0.01, 0], [0, 0], [0, -0.01]], np.float32),
    "optimizer.2": np.array([0, 0.001]),
    "optimizer.3": np.array(0.05),
}


def generator() -> np.random.Generator:
    """The trainer's, when it was exported."""
    result = np.random.Generator(np.random.PCG64(7))
    result.permutation(10)
    return result


def metadata(kept: dict[str, np.ndarray], random: dict | None = None, epochs: int = 2) -> dict[str, str]:
    """What Python's trainer would write with these tensors, but for the checksum."""
    return {
        "format": "pullback-checkpoint",
        "version": "2",
        "parameters": json.dumps(["linear.weight", "linear.bias"]),
        "states": json.dumps(["seen", "flags", "empty"]),
        "optimizer": "MomentumSGD",
        "optimizer_states": json.dumps(["num_steps", "v of linear.weight", "v of linear.bias", "lr"]),
        "hyperparameters": json.dumps({"lr": 0.05, "momentum": 0.9, "name": 'it\'s "M"'}),
        "loss": "Größe\\'s",
        "training": json.dumps({"loss": "SquaredDistance", "network": "0123"}),
        "random": json.dumps(random or generator().bit_generator.state),
        "steps": str(int(kept["optimizer.0"])),
        "epochs": str(epochs),
    }


def checkpoint(kept: dict[str, np.ndarray], texts: dict[str, str] | None = None) -> bytes:
    """The file that Python's trainer would write, with the checksum that belongs to it."""
    texts = metadata(kept) if texts is None else texts
    return safetensors.numpy.save(kept, {**texts, "sha256": digest(kept, texts)})


class Twin:
    """The trainer in NumPy."""

    def __init__(self) -> None:
        self.kept = {key: value.copy() for key, value in KEPT.items()}

    def outputs(self, x: np.ndarray, scale: float) -> np.ndarray:
        sums = x.astype(np.float64) @ self.kept["param.linear.weight"].astype(np.float64)
        return (scale * (sums + self.kept["param.linear.bias"])).astype(np.float32)

    def loss(self, x: np.ndarray, scale: float, labels: np.ndarray) -> float:
        error, counted = self._error(x, scale, labels)
        return float((error[counted] ** 2).sum() / counted.sum())

    def _error(self, x: np.ndarray, scale: float, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wanted = (labels[:, None] == np.arange(2)).astype(np.float64)
        return self.outputs(x, scale).astype(np.float64) - wanted, labels != -1

    def step(self, x: np.ndarray, scale: float, labels: np.ndarray) -> float:
        loss, kept = self.loss(x, scale, labels), self.kept
        error, counted = self._error(x, scale, labels)
        error = 2 * error * scale / counted.sum() * counted[:, None]
        gradients = {
            "1": ("param.linear.weight", x.astype(np.float64).T @ error),
            "2": ("param.linear.bias", error.sum(0)),
        }
        for number, (name, gradient) in gradients.items():
            velocity = kept[f"optimizer.{number}"]
            velocity[...] = 0.9 * velocity + gradient
            kept[name] -= (kept["optimizer.3"] * velocity).astype(kept[name].dtype)
        kept["state.seen"] += (labels[:, None] == np.arange(2)).sum(0)
        kept["state.flags"][1] ^= True
        kept["random.random"][1] += np.uint64(1)
        kept["optimizer.0"] += 1
        return loss


def data(rows: int, seed: int = 0, missing: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, the scale and labels, some of which do not count."""
    source = np.random.default_rng(seed)
    x = source.standard_normal((rows, 3)).astype(np.float32)
    labels = np.where(x.sum(1) > 0, 1, 0)
    if missing:
        labels[:: BATCH + 1] = -1
    return x, np.array(0.75), labels
