"""The benchmark of imported models: both sides train the same model, ratios are those of the best peer."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import imported, imported_cases
from benchmarks.harness import Measurement, Side
from benchmarks.imported_cases import CASES, Imported
from benchmarks.models_torch import ViT
from benchmarks.workers import imported_pullback, imported_torch


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Imported(
        "small", lambda: ViT(5, 16, 8, 12, 3, 1), lambda s: {"x": s.standard_normal((4, 3, 16, 16), dtype=np.float32)},
        lambda s: s.integers(0, 5, 4), "adamw", 1e-3,
    )  # fmt: skip
    for module in (imported_pullback, imported_torch, imported_cases):
        monkeypatch.setattr(module, "CASES", {"small": case})
    for module in (imported_pullback, imported_torch):
        monkeypatch.setattr(module, "start_watching_memory", lambda: None)


def test_sides_compute_the_same_losses(small: None) -> None:
    sides = [imported_pullback.prepare("small")]
    sides += [imported_torch.prepare("small", variant) for variant in ("eager", "eager-channels-last")]
    ours, *theirs = ([step() for _ in range(5)] for (step,) in (side.values() for side in sides))
    assert ours[-1] < ours[0]
    for losses in theirs:
        np.testing.assert_allclose(losses, ours, rtol=imported_cases.TOLERANCE)


def test_peers_of_images_are_channels_last_too() -> None:
    for name, case in CASES.items():
        is_image = "×" in case.title
        assert case.has_images == is_image
        assert ("torch-channels-last" in imported.default_peers(name)) == is_image


def test_ratios_are_those_of_the_best_peer() -> None:
    sides = [Measurement(Side(name, "worker"), first_seconds=1.0) for name in ("pullback", "torch", "torch-compile")]
    assert imported.ratio(sides) is None
    for side, times in zip(sides, ([2.0, 4.0, 3.0], [6.0, 6.0, 6.0], [5.0, 4.0, 4.0]), strict=True):
        side.rounds, side.memory_bytes = {"step": times}, 2**20
    assert imported.ratio(sides) == 0.75
    assert [row[3] for row in imported.rows(sides)] == ["0.75", "1.50", "1.00"]
    sides[2].failure = "it broke"
    assert imported.ratio(sides) == 0.5
    assert imported.rows(sides)[2] == ["torch-compile", "it broke", "", "", "", ""]
