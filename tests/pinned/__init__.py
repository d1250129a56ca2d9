"""Pinned training: ten losses and the final parameters of small trainings, recorded once from PyTorch (`record.py`).

The model of every case is `logits = relu(relu(x @ w0 + b0) @ w1 + b1) @ w2 + b2` with the sizes 20-16-12-5, trained for
ten steps on one batch of eight. Reading needs NumPy alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("torch_losses.npz")
PARAMETERS = ("w0", "b0", "w1", "b1", "w2", "b2")
STEPS = 10


@dataclass(frozen=True)
class Case:
    """One recorded training; the arrays have the case's dtype, but index targets are int64."""

    name: str  # loss/optimizer/dtype, for instance "cross-entropy-sum/sgd/float64"
    dtype: str  # "float32" or "float64"
    loss: str  # class name in relax.training.loss
    loss_options: dict[str, Any]  # its keyword arguments, without the class weights
    optimizer: str  # class name in relax.training.optimizer
    optimizer_options: dict[str, Any]  # its keyword arguments
    x: np.ndarray  # (8, 20)
    target: np.ndarray  # (8,) class indices, or (8, 5)
    class_weights: np.ndarray | None  # (5,)
    initial: tuple[np.ndarray, ...]  # in the order of PARAMETERS; weights are (inputs, outputs)
    losses: np.ndarray  # of the ten steps, each before its update
    final: tuple[np.ndarray, ...]  # after the tenth update; always float64's, which is the better judge of float32 too


def load_cases(dtype: str | None = None) -> list[Case]:
    """All recorded cases, or those of one dtype."""
    with np.load(FILE, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    cases = (_case(arrays, facts) for facts in json.loads(str(arrays["cases"])))
    return [case for case in cases if dtype is None or case.dtype == dtype]


def _case(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Case:
    name, dtype = facts["name"], facts["dtype"]
    initial = tuple(arrays[parameter].astype(dtype) for parameter in PARAMETERS)
    target = arrays[facts["target"]]
    weights = arrays["class_weights"].astype(dtype) if facts["weighted"] else None
    return Case(
        name=name,
        dtype=dtype,
        loss=facts["loss"],
        loss_options=facts["loss_options"],
        optimizer=facts["optimizer"],
        optimizer_options=facts["optimizer_options"],
        x=arrays["x"].astype(dtype),
        target=target if target.dtype == np.int64 else target.astype(dtype),
        class_weights=weights,
        initial=initial,
        losses=arrays[f"{name}/losses"],
        final=_split(arrays[name.replace("float32", "float64") + "/final"], initial),
    )


def _split(values: np.ndarray, like: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The pieces of a flat array in the shapes of `like`."""
    ends = np.cumsum([array.size for array in like])
    pieces = np.split(values, ends[:-1])
    return tuple(piece.reshape(array.shape) for piece, array in zip(pieces, like, strict=True))
