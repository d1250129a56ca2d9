"""The values of a schedule, for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.relax.training.optimizer import Schedule
from pullback.relax.training.optimizer.value import as_scalar


def rates(schedule: Schedule, steps: int | Sequence[int], target: str = "llvm") -> np.ndarray:
    """The rates of the first steps, or of the given ones."""
    step, builder = Var("step", TensorStructInfo((), "int64")), BlockBuilder()
    with builder.function("rate", [step]):
        with builder.dataflow():
            out = builder.emit_output(as_scalar(schedule.value(step)), "rate")
        builder.emit_func_output(out)
    function: Any = pullback.compile(builder.get(), target).function("rate")
    given = range(steps) if isinstance(steps, int) else steps
    return np.array([function(np.int64(t)).item() for t in given])
