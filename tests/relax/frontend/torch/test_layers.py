"""Layers, losses and resizing against PyTorch: see aten_programs.py for how, layer_samples.py for what."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.relax.frontend.torch.aten_programs import compare
from tests.relax.frontend.torch.layer_samples import AS_WRITTEN, SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_layer(name: str) -> None:
    compare(SAMPLES[name])


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_layer_as_written(name: str) -> None:
    compare(AS_WRITTEN[name], as_written=True)
