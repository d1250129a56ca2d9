"""The benchmark of fine-tuning: subsets train, plans hold less, ratios are those of the same round."""

import math

import numpy as np
import pytest

from benchmarks import finetune
from benchmarks.harness import Measurement, Side
from benchmarks.models.chargpt import CharGPT
from benchmarks.workers import finetune_pullback
from benchmarks.workers.finetune_pullback import ABOUT, prepare, subsets


@pytest.fixture(autouse=True)
def small(monkeypatch):
    model = CharGPT(layers=3, width=32, heads=2, length=16, batch=2)
    monkeypatch.setattr(finetune_pullback, "MODELS", {"chargpt": model})


def test_subsets_train_and_take_less():
    losses, plans = {}, {}
    for name in subsets(finetune_pullback.MODELS["chargpt"]):
        (step,) = prepare(name).values()
        losses[name], plans[name] = [step(), step()], dict(ABOUT)
        assert np.isfinite(losses[name]).all() and losses[name][1] < losses[name][0]
    for key in finetune.MEMORY:
        assert plans["last block"][key] <= plans["last block and head"][key] < plans["all"][key]


def test_ratios_are_of_the_same_round():
    whole, last = (Measurement(Side(name, "finetune_pullback")) for name in ("all", "last block"))
    assert math.isnan(finetune.ratio(last, whole)) and not finetune.is_good(whole, last)
    whole.rounds, last.rounds = {"step": [1.0, 2.0, 4.0]}, {"step": [0.4, 0.9, 4.0]}
    whole.about = dict.fromkeys(finetune.MEMORY, 100)
    last.about = dict.fromkeys(finetune.MEMORY, 40)
    assert finetune.ratio(last, whole) == 0.45
    assert finetune.is_good(whole, last)
    assert finetune.row(last, whole)[2:4] == ["0.45", "0 KiB (40%)"]
    last.about["arena bytes"] = 41
    assert not finetune.is_good(whole, last)
