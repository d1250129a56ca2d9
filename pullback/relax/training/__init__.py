"""Training: losses, optimizers, the pass that makes a model trainable, and the trainer."""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.relax.training import callbacks, loss, lr_schedule, metrics, optimizer, setup_trainer, trainer, utils
from pullback.relax.training.history import EpochRecord, Evaluation, History
from pullback.relax.training.join_run import JoinRun
from pullback.relax.training.loss import Loss
from pullback.relax.training.make import make_trainer
from pullback.relax.training.optimizer import Optimizer
from pullback.relax.training.setup_trainer import SetupTrainer
from pullback.relax.training.trainer import Trainer
from pullback.relax.training.utils import AppendLoss, append_loss

__all__ = [
    "AppendLoss", "EpochRecord", "Evaluation", "History", "JoinRun", "Loss", "Optimizer", "SetupTrainer", "Trainer",
    "append_loss", "callbacks", "loss", "lr_schedule", "make_trainer", "metrics", "optimizer", "setup_trainer",
    "trainer", "utils",
]  # fmt: skip

__getattr__ = missing_from(globals())
