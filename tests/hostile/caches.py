"""Files of the object cache damaged, exchanged, and replaced by what is no file."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import numpy as np

import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from tests.hostile.oracle import Finding, outcome

_numbers = itertools.count()
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


def module(number: int) -> pullback.ir.IRModule:
    x = Var("x", TensorStructInfo((3, 4), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(op.exp(op.multiply(x, float(number + 1))))
            out = builder.emit_output(op.sum(value, axis=number % 2))
        builder.emit_func_output(out)
    return builder.get()


def right(number: int) -> np.ndarray:
    return np.exp(X.astype("float64") * (number + 1)).sum(number % 2)


def is_right(value: np.ndarray, number: int) -> bool:
    return value.shape == right(number).shape and np.allclose(value, right(number), 1e-4)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def damage(path: Path, paths: list[Path], r: random.Random) -> str:
    data = path.read_bytes()
    kind = r.choice(
        ["flip", "cut", "longer", "empty", "zeros", "text", "mode", "folder", "fifo", "loop", "gone", "dangling"]
    )
    if kind == "flip":
        place = r.randrange(len(data)) if r.random() < 0.5 else r.randrange(min(200, len(data)))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << r.randrange(8)]) + data[place + 1 :])
    elif kind == "cut":
        path.write_bytes(data[: r.randrange(len(data))])
    elif kind == "longer":
        path.write_bytes(data + data[: r.choice([1, 100])])
    elif kind in ("empty", "zeros", "text"):
        path.write_bytes({"empty": b"", "zeros": bytes(len(data)), "text": b"hello\n" * 100}[kind])
    elif kind == "mode":
        path.chmod(r.choice([0, 0o777, 0o444]))
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind == "dangling":
            path.symlink_to("nothing")
    return kind


def case(r: random.Random, folder: Path) -> None:
    case_number = next(_numbers)
    cache, number = folder / f"cache{case_number}", case_number % 4  # a folder that was refused once stays so
    before = os.environ.get("PULLBACK_CACHE_DIR")
    os.environ["PULLBACK_CACHE_DIR"] = str(cache)
    try:
        pullback.compile(module(number)).function("main")(X)
        found = files(cache)
        if not found:
            raise Finding(f"nothing was kept in {cache}")
        what = " and ".join(
            f"{damage(p, found, r)} of {p.name}" for p in r.sample(found, r.choice([1, 1, min(2, len(found))]))
        )
        for _ in range(2):
            value, error = outcome(what, lambda: pullback.compile(module(number)).function("main")(X))
            if error is None and not is_right(value.numpy(), number):
                raise Finding(f"{what}: gives {value.numpy()}, right is {right(number)}")
    finally:
        if before is None:
            del os.environ["PULLBACK_CACHE_DIR"]
        else:
            os.environ["PULLBACK_CACHE_DIR"] = before
        shutil.rmtree(cache, ignore_errors=True)
