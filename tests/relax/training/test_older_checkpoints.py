"""Checkpoints that older versions wrote load, and training goes on from them as it did there."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.errors import CheckpointError
from tests.pinned.checkpoints import FOLDER, LOSSES, TRAINERS, batch, losses, start


@pytest.mark.parametrize("name", [name for name in TRAINERS if name != "halfway"])
def test_training_goes_on(name: str) -> None:
    trainer = TRAINERS[name]()
    trainer.load(FOLDER / f"{name}.safetensors")
    assert trainer.steps == 2
    np.testing.assert_allclose(losses(trainer), LOSSES[name], rtol=1e-3 if name == "float16" else 1e-5)


def test_sums_whose_weights_are_not_known_are_refused() -> None:
    """Older versions took batches as equal: two of four gradients of such a sum would weigh nothing beside new ones."""
    trainer = TRAINERS["halfway"]()
    start(trainer)
    trainer.update(*batch(0))
    before = [np.array(v) for v in trainer.optimizer_states]
    file = FOLDER / "halfway.safetensors"
    with pytest.raises(CheckpointError, match=r"between two batches whose gradients are accumulated \(grad_sum of w0"):
        trainer.load(file)
    assert all(np.array_equal(a, b) for a, b in zip(before, trainer.optimizer_states, strict=True))
    trainer.load(file, params_only=True)
    assert not np.array_equal(trainer.params["w0"], np.zeros((5, 6)))


def test_a_file_of_another_optimizer_lacks_more_than_later_states() -> None:
    with pytest.raises(CheckpointError, match=r"saved with the optimizer MomentumSGD, this trainer has Accumulate"):
        TRAINERS["accumulated"]().load(FOLDER / "momentum.safetensors")
