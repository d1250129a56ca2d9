"""Steps of an exported library, and of the trainer that it was made of: each in its native loop over one data set, or,
for peers that have no such loop, one step a call.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import MODELS
from benchmarks.workers.model_pullback import load, trainer_of
from benchmarks.workers.protocol import Cases, Step, serve

STEPS = {"mlp": 200, "lenet": 40}  # of a run
DTYPES = {"float32": 10, "int64": 4}  # NAME_dtype
ABOUT: dict[str, Any] = {}


class _Column(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("dtype", ctypes.c_int))


class _Options(ctypes.Structure):
    _fields_ = (
        ("epochs", ctypes.c_int64), ("steps", ctypes.c_int64), ("order", ctypes.c_void_p),
        ("progress", ctypes.c_void_p), ("context", ctypes.c_void_p), ("loss", ctypes.c_double),
        ("steps_done", ctypes.c_int64),
    )  # fmt: skip


def prepare(name: str, form: str) -> Cases:
    trainer = trainer_of(MODELS[name], False)
    if form == "step":
        return {"step": _single_step(trainer, name)}
    data = [np.concatenate([array] * STEPS[name]) for array in MODELS[name].data()]
    if form == "trainer":
        return {"run": lambda: trainer.fit(*data, shuffle=False, verbose=0).epochs[0].loss}
    return {"run": _library(trainer, name, data)}


def _library(trainer: Any, name: str, data: list[np.ndarray]) -> Step:
    library, instance, memory = _loaded(_exported(trainer, name), name)
    run = getattr(library, f"{name}_run")
    columns = (_Column * len(data))(*(_Column(a.ctypes.data, DTYPES[a.dtype.name]) for a in data))
    rows = ctypes.c_int64(len(data[0]))

    def epoch() -> float:
        options = _Options(epochs=1)
        status = run(instance, columns, rows, ctypes.byref(options))
        assert status == 0 and memory.size and len(data), status  # which live as long as this function
        return options.loss

    return epoch


def _single_step(trainer: Any, name: str) -> Step:
    whole, bare = _exported(trainer, name), _exported(trainer, name, embed=False)
    ABOUT["optimizer"] = MODELS[name].optimizer.kind
    ABOUT["library bytes"] = (bare / f"lib{name}.so").stat().st_size
    ABOUT["model bytes"] = (bare / f"{name}.safetensors").stat().st_size
    ABOUT["whole bytes"] = (whole / f"lib{name}.so").stat().st_size
    library, instance, memory = _loaded(whole, name)
    call, batch = getattr(library, f"{name}_step"), MODELS[name].data()
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in batch]

    def step() -> float:
        loss = ctypes.c_double()
        status = call(instance, *pointers, ctypes.byref(loss))
        assert status == 0 and memory.size and len(batch), status  # which live as long as this function
        return loss.value

    return step


def _exported(trainer: Any, name: str, embed: bool = True) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pullback-export-")) / "dist"
    trainer.export(folder, name=name, functions=("step", "predict"), embed=embed)
    return folder


def _loaded(folder: Path, name: str) -> tuple[ctypes.CDLL, ctypes.c_void_p, np.ndarray]:
    """A library, and an instance in memory that has to be kept."""
    threads = int(os.environ["PULLBACK_NUM_THREADS"])
    library = ctypes.CDLL(str(folder / f"lib{name}.so"))
    size_of, init = (getattr(library, f"{name}_{f}") for f in ("bytes", "init"))
    size_of.restype = ctypes.c_size_t
    memory = np.zeros(size_of(threads) + 64, np.uint8)
    instance, address = ctypes.c_void_p(), -(-memory.ctypes.data // 64) * 64
    status = init(ctypes.c_void_p(address), ctypes.c_size_t(size_of(threads)), threads, ctypes.byref(instance))
    assert status == 0, status
    return library, instance, memory


if __name__ == "__main__":
    serve(load, prepare, about=lambda: ABOUT)
