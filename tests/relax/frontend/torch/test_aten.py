"""ATen's operators against PyTorch: see aten_programs.py for how, aten_samples.py for what."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pullback.relax.frontend.torch import ATEN
from tests.relax.frontend.torch.aten_programs import compare
from tests.relax.frontend.torch.aten_samples import SAMPLES, WRITTEN


@pytest.mark.parametrize("name", SAMPLES)
def test_values_and_gradients_are_those_of_pytorch(name: str) -> None:
    operators = compare(SAMPLES[name])
    assert name in operators, f"the program has {sorted(operators)}"


@pytest.mark.parametrize("name", WRITTEN)
def test_operators_that_export_takes_apart(name: str) -> None:
    assert name in compare(WRITTEN[name], as_written=True)


def test_every_sample_is_of_an_operator_in_the_table() -> None:
    known = {c.name.split(".")[1] for c in ATEN if c.function is not None}
    assert set(SAMPLES) <= known
