"""Callbacks: what ``fit`` calls between epochs, and within them twenty times a second.

    trainer.fit(x, y, epochs=100, validation=(x_test, y_test), callbacks=[
        EarlyStopping(patience=5, restore_best=True),
        ModelCheckpoint("checkpoints/{epoch:03d}-{val_loss:.4f}.safetensors", save_top_k=3),
        LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["val_loss"])),
    ])

One's own is a subclass of :class:`Callback` with some of its hooks. ``logs`` holds the epoch's metrics by name, as the
history does: "loss", "val_loss", "val_accuracy" and so on. Callbacks are called in their order, with the same ``logs``;
a number that one adds is in the history, and those behind it see it.

An exception in a callback ends ``fit`` and comes out of it. The trainer is left after a whole step, and goes on from
there; epochs that were completed are in ``trainer.history``.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.relax.training.callbacks.base import Callback, LambdaCallback
from pullback.relax.training.callbacks.loggers import CSVLogger, Logger, TensorBoard
from pullback.relax.training.callbacks.monitor import EarlyStopping, Monitor, ReduceLROnPlateau
from pullback.relax.training.callbacks.saving import Checkpoint, ModelCheckpoint

__all__ = [
    "CSVLogger", "Callback", "Checkpoint", "EarlyStopping", "LambdaCallback", "Logger", "ModelCheckpoint", "Monitor",
    "ReduceLROnPlateau", "TensorBoard",
]  # fmt: skip

__getattr__ = missing_from(globals())
