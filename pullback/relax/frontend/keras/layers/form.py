"""Whether a call of a layer trains."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError


def trains(training: Any) -> bool:
    """Whether a layer's form for training is meant in steps (and that for inference in predict); a UserError where
    the model asks for training in both."""
    if training is True:
        raise UserError(
            "the layer is called with training=True, so that it would train in predict too",
            hint="leave the argument out: steps train, predict and evaluate do not",
        )
    return training is not None and training is not False
