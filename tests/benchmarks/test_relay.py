"""The step written in relay learns what the relax trainer's step does."""

from __future__ import annotations

import pytest

from benchmarks.workers.relay_pullback import prepare


def test_ten_losses_agree():
    losses = {variant: [step() for _ in range(10)] for variant in ("relax", "vm", "aot") for step in [step_of(variant)]}
    assert losses["relax"][-1] < 0.95 * losses["relax"][0]
    for variant in ("vm", "aot"):
        assert losses[variant] == pytest.approx(losses["relax"], rel=1e-5)


def step_of(variant: str):
    return prepare(variant)["step"]
