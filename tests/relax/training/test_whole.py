"""Ten losses of a network with all that a training may have, as PyTorch computes them, in both backends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.relax.training.models import assert_same, params
from tests.relax.training.whole import AVERAGED_LOSS, LOSSES, batches, trainer_of


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_ten_pinned_losses(target: str) -> None:
    trainer = trainer_of(target)
    stem = trainer.params["stem"].numpy()
    np.testing.assert_allclose([trainer.update(*batch).item() for batch in batches()], LOSSES, rtol=1e-9)
    np.testing.assert_allclose(trainer.evaluate(*batches()[-1], averaged=True).loss, AVERAGED_LOSS, rtol=1e-7)
    np.testing.assert_array_equal(trainer.params["stem"].numpy(), stem)


@pytest.mark.parametrize("steps", [3, 6])
def test_it_resumes_bit_for_bit(steps: int, tmp_path: Path) -> None:
    whole, first, second = (trainer_of("llvm") for _ in range(3))
    losses = [whole.update(*batch).item() for batch in batches()]
    for batch in batches()[:steps]:
        first.update(*batch)
    first.save(tmp_path / "middle")
    second.load(tmp_path / "middle")
    assert [second.update(*batch).item() for batch in batches()[steps:]] == losses[steps:]
    assert_same(params(whole), params(second))
    assert_same([v.numpy() for v in whole.averages.values()], [v.numpy() for v in second.averages.values()])
