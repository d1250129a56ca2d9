"""An epoch of ``fit`` on the tutorial's perceptron, over data in several forms.

`arrays` are gathered by the native loop in a new order for each epoch; `slices` and `shuffled` are generators of
batches, of views and of rows drawn at random; `float64` and `uint8` are arrays that are cast batch by batch;
`examples` come one by one, by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.models import MODELS
from benchmarks.workers.model_pullback import load, trainer_of
from benchmarks.workers.protocol import Cases, serve

ROWS = 64 * 300


class Examples:
    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, number: int) -> tuple[np.ndarray, Any]:
        return self._x[number], self._y[number]


def prepare(form: str) -> Cases:
    model = MODELS["mlp"]
    trainer = trainer_of(model, False)
    random = np.random.default_rng(0)
    x, y = random.random((ROWS, 784), np.float32), random.integers(0, 10, ROWS)

    def batches(order: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for k in range(0, ROWS, 64):
            rows = slice(k, k + 64) if order is None else order[k : k + 64]
            yield x[rows], y[rows]

    forms: dict[str, tuple[Any, ...]] = {
        "arrays": (x, y),
        "slices": (lambda: batches(None),),
        "shuffled": (lambda: batches(random.permutation(ROWS)),),
        "float64": (x.astype(np.float64), y),
        "uint8": ((x * 255).astype(np.uint8), y),
        "examples": (Examples(x, y),),
    }
    data = forms[form]
    return {"epoch": lambda: trainer.fit(*data, verbose=0).epochs[0].loss}


if __name__ == "__main__":
    serve(load, prepare)
