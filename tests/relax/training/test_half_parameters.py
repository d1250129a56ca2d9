"""Parameters of half precision: an optimizer computes in float32 and rounds what it keeps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pullback.ir import IRModule
from pullback.relax import Constant
from pullback.relax.interpreter import evaluate
from pullback.relax.training import optimizer as ours
from tests.relax.training.optimizers import run, values_and_gradients, variables

KINDS = [
    ours.SGD(1e-3, weight_decay=1e-9),
    ours.MomentumSGD(0.1, 0.9, dampening=1e-9),
    ours.Adam(1e-3),
    ours.AdamW(1e-3, eps=1e-12, amsgrad=True),
    ours.NAdam(),
    ours.RAdam(),
    ours.Adamax(eps=1e-10),
    ours.RMSprop(eps=1e-9, centered=True, momentum=0.9),
    ours.Adagrad(),
    ours.Adadelta(eps=1e-12),
    ours.Adafactor(eps=(1e-30, 1e-9)),
    ours.LARS(0.1, eps=1e-9),
    ours.LAMB(),
    ours.Lion(1e-9),
    ours.ClipByValue(ours.SGD(0.1), 1e6),
    ours.ClipByGlobalNorm(ours.Adam(1e-3), 1e-9),
    ours.Accumulate(ours.SGD(0.1), 3),
    ours.EMA(ours.SGD(0.1), 0.9999),
]
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("optimizer", KINDS, ids=repr)
def test_a_step_is_that_of_float32_rounded_once(optimizer: Any, dtype: str) -> None:
    """Of small gradients too, whose squares are 0 in float16."""
    half = HALVES[dtype]
    values, gradients = values_and_gradients(3, "float32")
    values = [v.astype(half) for v in values]
    scales = (1e-4, 1.0, 30.0)
    gradients = [[(s * g).astype(half) for g in of] for s, of in zip(scales, gradients, strict=True)]
    optimizer.init(variables(dtype="float32"))
    single = IRModule({"step": optimizer.get_function()})
    expected, states = values, [s.numpy() for s in optimizer.state]
    for (params, kept), given in zip(run(optimizer, values, gradients), gradients, strict=True):
        wide = [[a.astype(np.float32) if a.dtype == half else a for a in of] for of in (expected, given, states)]
        news, states = evaluate(single, "step", [tuple(of) for of in wide])
        expected = [n.astype(half) for n in news]
        states = [n.astype(k.dtype) for n, k in zip(states, kept, strict=True)]
        for mine, other in zip([*params, *kept], [*expected, *states], strict=True):
            assert np.all(np.isfinite(mine.astype(np.float64)))
            np.testing.assert_allclose(*(a.astype(np.float64) for a in (mine, other)), rtol=2.0**-7, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_no_hyperparameter_is_a_constant_of_half_precision(dtype: str) -> None:
    for optimizer in KINDS:
        function = optimizer.init(variables(dtype=dtype)).get_function()
        constants = [a for b in function.bindings for a in getattr(b.value, "args", ()) if isinstance(a, Constant)]
        assert not [c for c in constants if c.dtype == dtype], optimizer


def test_an_average_with_little_weight_on_new_values_moves() -> None:
    """0.999 is 1 in bfloat16, and would let an average grow."""
    ones = [np.ones((3,), ml_dtypes.bfloat16)]
    for _, states in run(ours.EMA(ours.SGD(0.0), 0.999), ones, [[np.zeros_like(ones[0])]] * 5):
        np.testing.assert_array_equal(states[-1].astype(np.float32), 1.0)


def test_sums_of_gradients_are_float32() -> None:
    ones = [np.zeros((3,), np.float16)]
    steps = list(run(ours.Accumulate(ours.SGD(1.0), 4), ones, [[np.full((3,), 30000.0, np.float16)]] * 4))
    np.testing.assert_array_equal(steps[-1][0][0], -30000.0)
