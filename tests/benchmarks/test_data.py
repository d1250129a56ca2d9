"""The benchmark of data: every form trains alike, and ratios are those of the same round."""

import math

import numpy as np
import pytest

from benchmarks import data
from benchmarks.harness import Measurement, Side
from benchmarks.workers import data_pullback


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(data_pullback, "ROWS", 128)


@pytest.mark.parametrize("form", data.FORMS)
def test_a_form_trains(form):
    (case,) = data_pullback.prepare(form).values()
    first = case()
    assert np.isfinite(first) and (form == "uint8" or case() < first)


def test_ratios_are_of_the_same_round():
    arrays, other, failed = (Measurement(Side(name, "data_pullback")) for name in ("arrays", "slices", "shuffled"))
    arrays.rounds, other.rounds = {"epoch": [1.0, 2.0, 4.0]}, {"epoch": [1.1, 2.0, 40.0]}
    assert data.ratio(other, arrays) == 1.1
    assert math.isnan(data.ratio(failed, arrays))
