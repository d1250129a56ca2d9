"""Layers, losses and resizing against PyTorch: see aten_programs.py for how, layer_samples.py for what."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from tests.relax.frontend.torch.aten_programs import AsWritten, compare, groups
from tests.relax.frontend.torch.layer_samples import AS_WRITTEN, SAMPLES


@pytest.mark.parametrize("named", groups(SAMPLES))
def test_layers(named: Any) -> None:
    compare(named)


@pytest.mark.parametrize("named", groups(AS_WRITTEN))
def test_layers_as_written(named: Any) -> None:
    assert set(named) <= compare(named, model_of=AsWritten)
