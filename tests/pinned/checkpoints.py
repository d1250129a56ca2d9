"""Checkpoints as older versions wrote them, and what training from them gives: ``checkpoints/``.

Each file was saved after two batches by the version before losses gave their divisors; LOSSES are those of four more
batches there. ``python -m tests.pinned.checkpoints FOLDER`` writes such files with the version that runs, and prints
their losses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pullback
from pullback import relax
from pullback.ir.module import IRModule
from pullback.relax import op
from pullback.relax.training import optimizer
from pullback.relax.training.loss import CrossEntropyLoss

FOLDER = Path(__file__).parent / "checkpoints"
ROWS = 8


def model() -> IRModule:
    """Two layers with batch norm and dropout between: parameters, states and random numbers."""
    shapes = {"w0": (5, 6), "gamma": (6,), "beta": (6,), "w1": (6, 3), "mean": (6,), "var": (6,)}
    x = relax.Var("x", relax.TensorStructInfo((ROWS, 5), "float32"))
    kept = [relax.Var(name, relax.TensorStructInfo(shape, "float32")) for name, shape in shapes.items()]
    w0, gamma, beta, w1, mean, var = kept
    builder = relax.BlockBuilder()
    with builder.function("backbone", [x, *kept]), builder.dataflow():
        normal = builder.emit(op.nn.batch_norm(op.matmul(x, w0), gamma, beta, mean, var, axis=1))
        hidden = op.nn.dropout(op.nn.relu(normal[0]), 0.25)[0]
        result = builder.emit_output(relax.Tuple([op.matmul(hidden, w1), normal[1], normal[2]]))
        builder.emit_func_output(result)
    return builder.get().with_attr("param_num", 4).with_attr("state_num", 2)


TRAINERS: dict[str, Callable[[], pullback.training.Trainer]] = {
    name: lambda make=make, options=options: pullback.trainer(model(), CrossEntropyLoss(), make(), **options)
    for name, make, options in (
        ("momentum", lambda: optimizer.MomentumSGD(0.1, 0.9), {}),
        ("adamw_clipped", lambda: optimizer.ClipByGlobalNorm(optimizer.AdamW(0.01), 1.0), {}),
        ("accumulated", lambda: optimizer.Accumulate(optimizer.Adam(0.01), 2), {}),
        ("averages", lambda: optimizer.EMA(optimizer.Accumulate(optimizer.SGD(0.1), 2), 0.9), {}),
        ("halfway", lambda: optimizer.Accumulate(optimizer.SGD(0.1), 4), {}),
        ("float16", lambda: optimizer.Adam(0.01), {"precision": "float16"}),
    )
}


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(number)
    return generator.standard_normal((ROWS, 5)).astype(np.float32), generator.integers(0, 3, ROWS)


def start(trainer: pullback.training.Trainer) -> None:
    generator = np.random.default_rng(1)
    shapes = {"w0": (5, 6), "gamma": (6,), "beta": (6,), "w1": (6, 3)}
    trainer.load_params({n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()})
    trainer.load_states({"mean": np.zeros(6, np.float32), "var": np.ones(6, np.float32)})


def losses(trainer: pullback.training.Trainer) -> list[float]:
    """Of the four batches after those of the files."""
    return [float(trainer.update(*batch(k))) for k in range(2, 6)]


def write(folder: Path) -> None:
    for name, make in TRAINERS.items():
        trainer = make()
        start(trainer)
        for k in range(2):
            trainer.update(*batch(k))
        trainer.save(folder / f"{name}.safetensors")
        print(f'    "{name}": {losses(trainer)},')


LOSSES = {
    "momentum": [0.7575593590736389, 1.6685525178909302, 1.050201177597046, 1.182997703552246],
    "adamw_clipped": [0.7441450357437134, 1.8198105096817017, 0.9534685611724854, 1.4846246242523193],
    "accumulated": [0.7419818043708801, 1.8367831707000732, 0.9636355638504028, 1.50325608253479],
    "averages": [0.7416476011276245, 1.8028593063354492, 0.9753930568695068, 1.442129135131836],
    "halfway": [0.744607150554657, 1.8545409440994263, 0.963914155960083, 1.4877867698669434],
    "float16": [0.7428938150405884, 1.8172039985656738, 0.9562216997146606, 1.4871594905853271],
}

if __name__ == "__main__":
    write(Path(sys.argv[1]))
