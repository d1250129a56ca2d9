"""The demo: train the tutorial's MLP on Fashion-MNIST and draw what it learned (`python -m pullback demo`)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pullback.demo import fashion_mnist, plots
from pullback.ir.errors import ArgumentError

BATCH_SIZE = 64
SEED = 0
SHOWN_IMAGES = plots.ROWS * plots.COLUMNS


def main(epochs: int = 5, picture: str | Path | None = "fashion_mnist.png", threads: int | None = None) -> Any:
    """Train, with a line for each epoch, write `picture` (None: no picture); returns the trainer."""
    if epochs < 1:
        raise ArgumentError(f"epochs must be at least 1, got {epochs}")
    if threads is not None:
        from pullback.runtime import set_num_threads

        set_num_threads(threads)
    if picture is not None:
        plots.require_matplotlib()
        _check_writable(Path(picture))
    data = fashion_mnist.load()
    print(f"Data: {data.source}")

    trainer = build_trainer()
    started = time.perf_counter()
    history = trainer.fit(
        data.x_train, data.y_train, epochs=epochs, batch_size=BATCH_SIZE, shuffle=True, seed=SEED,
        validation=(data.x_test, data.y_test),
    )  # fmt: skip
    seconds = time.perf_counter() - started
    print(f"fit took {seconds:.2f} s")
    if picture is not None:
        logits = trainer.predict(data.x_test[:BATCH_SIZE]).numpy()
        plots.save_training_picture(
            picture, history, data.x_test[:SHOWN_IMAGES], logits.argmax(1)[:SHOWN_IMAGES], data.y_test[:SHOWN_IMAGES],
            data.class_names, f"pullback: an MLP on Fashion-MNIST{'' if data.whole else ' (sample)'}",
        )  # fmt: skip
        print(f"picture: {picture}")
    accuracy = trainer.evaluate(data.x_test, data.y_test).accuracy
    print(f"test accuracy: {accuracy:.4f}")
    return trainer


def build_trainer() -> Any:
    """The tutorial's MLP, with the mean cross entropy and Adam, compiled and initialised with a fixed seed."""
    import pullback  # here, not above: the data and the pictures do not need the compiler
    from pullback import relax
    from pullback.demo.mlp import MLP

    loss = relax.training.loss.CrossEntropyLoss("mean")
    return pullback.trainer(MLP, loss, relax.training.optimizer.Adam(1e-3), seed=SEED)


def _check_writable(path: Path) -> None:
    """A picture that cannot be written is an error before training, not after it."""
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the picture {str(path)!r} cannot be written: there is no folder {str(folder)!r}",
        )
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise PermissionError(f"the picture {str(path)!r} cannot be written there")


__all__ = ["build_trainer", "fashion_mnist", "main", "plots"]
