"""Files of trainers over several ranks: whole ones, whatever the ranks hold, from which any number of them goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pullback.callbacks import Checkpoint, ModelCheckpoint

from pullback.ir.errors import CheckpointError
from pullback.relax.training import Trainer
from tests.relax.training.several import STAGES, X, Y, on_ranks, state_of, trainer_of
from tests.relax.training.test_resume import EndAfter, Ended, metrics


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "last.safetensors"


def assert_same(found: Any, expected: Any) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def fitted(distributed: Any, epochs: int = 1, seed: int = 1, **options: Any) -> tuple[Trainer, Any]:
    trainer = trainer_of(distributed, seed=seed)
    return trainer, trainer.fit(X, Y, epochs=epochs, batch_size=12, verbose=0, **options)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_ranks_goes_on(stage: str, size: int, path: Path) -> None:
    def save() -> Any:
        trainer, _ = fitted(stage)
        trainer.save(path)
        return state_of(trainer)

    expected = on_ranks(size, save)[0]

    def load(distributed: Any) -> Any:
        trainer = trainer_of(distributed, seed=9)
        trainer.load(path)
        assert (trainer.steps, trainer.epochs) == (2, 1)
        return state_of(trainer)

    assert_same(load(None), expected)
    for other in STAGES:
        for found in on_ranks(4 if other == stage else size, lambda other=other: load(other)):
            assert_same(found, expected)
    alone = trainer_of(None, seed=9)
    alone.load(path)
    alone.save(path.with_name("alone"))
    assert path.read_bytes() == path.with_name("alone").read_bytes()


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_training_goes_on(stage: str, target: str, path: Path) -> None:
    """Bit for bit on as many ranks, after any step; with as few losses as are left."""

    def train(seed: int, *callbacks: Any, resume: Any = None) -> Any:
        trainer = trainer_of(stage, seed=seed, target=target)
        history = trainer.fit(X, Y, epochs=2, batch_size=8, verbose=0, callbacks=list(callbacks), resume=resume)
        return state_of(trainer), metrics(history)

    whole = on_ranks(2, lambda: train(1))
    for steps in (1, 3, 5):
        path.unlink(missing_ok=True)
        with pytest.raises(Ended):
            on_ranks(2, lambda steps=steps: train(1, Checkpoint(path, every_n_steps=1), EndAfter(steps)))
        for (found, history), (expected, losses) in zip(
            on_ranks(2, lambda: train(9, Checkpoint(path, every_n_steps=2), resume=True)), whole, strict=True
        ):
            assert_same(found, expected)
            assert history == losses[-len(history) :]


def test_callbacks_that_save(path: Path) -> None:
    """Each file once, by all ranks; the best ones stay."""

    def train() -> Any:
        best = ModelCheckpoint(path.with_name("best-{epoch}.st"), "loss", save_top_k=1, save_last=True)
        last = Checkpoint(path.with_name("{step}.st"), every_n_steps=2, keep=2)
        fitted("zero1", 3, callbacks=[best, last])
        return best.best_path

    (found,) = set(on_ranks(3, train))
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([found.name, "last.st", "4.st", "6.st"])


def test_damage_is_found_by_all(path: Path) -> None:
    on_ranks(2, lambda: fitted("zero3")[0].save(path))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)

    def load() -> str:
        trainer = trainer_of("zero3", seed=9)
        before = state_of(trainer)
        with pytest.raises(CheckpointError) as error:
            trainer.load(path)
        assert_same(state_of(trainer), before)
        return error.value.message

    assert all("do not match their SHA-256" in message for message in on_ranks(2, load))
