"""Exported libraries for this machine against the trainers that they were made of: the same numbers, bit for bit."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from pullback.callbacks import Checkpoint, LambdaCallback

from pullback.deploy import program
from pullback.relax.training.position import Position, Sums
from tests.deploy.exported import Instance, Refused
from tests.deploy.models import BATCH, MODELS, batches


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_are_those_of_the_trainer(name: str, threads: int, tmp_path: Path) -> None:
    trainer, data = MODELS[name]()
    instance = Instance(trainer.export(tmp_path / "dist", name=name, batch_size=BATCH).folder, threads)
    mine, theirs = [], []
    for batch in batches(data):
        mine.append(instance.step(*batch))
        theirs.append(float(np.asarray(trainer.update(*batch))))
    assert mine == theirs and mine[-1] != mine[0]
    for key, value in trainer.state_dict().items():
        np.testing.assert_array_equal(instance.get(key), np.asarray(value))
    rows = 2 * BATCH + 5  # whole batches, and rows one by one
    (found,) = instance.predict(data[0][:rows])
    np.testing.assert_allclose(found, np.asarray(trainer.predict(data[0][:rows])), rtol=1e-5, atol=1e-6)
    loss, accuracy = instance.evaluate(*(a[:rows] for a in data))
    expected = trainer.evaluate(*(a[:rows] for a in data))
    assert loss == pytest.approx(expected.loss, rel=1e-6)
    assert accuracy == expected.accuracy or (expected.accuracy is None and np.isnan(accuracy))
    instance.close()


@pytest.mark.parametrize("name", MODELS)
def test_runs_are_fits(name: str, tmp_path: Path) -> None:
    """Epochs in the same random order, with the same losses; then both go on from each other's checkpoints."""
    trainer, data = MODELS[name](seed=3)
    instance = Instance(trainer.export(tmp_path / "dist", name=name, batch_size=BATCH).folder)
    seen: list[tuple[int, int, int]] = []

    def progress(step: int, epoch: int, ended: int, loss: float) -> int:
        seen.append((step, epoch, ended))
        return 0

    run = instance.run(*data, epochs=3, progress=progress)
    history = trainer.fit(*data, epochs=3, batch_size=BATCH, verbose=0)
    assert run.loss == pytest.approx(history["loss"][-1], rel=1e-12) and run.steps_done == 30
    assert [entry for entry in seen if entry[2]] == [(10, 1, 1), (20, 2, 1), (30, 3, 1)]
    assert len(seen) == 33
    instance.save(tmp_path / "device.safetensors")
    trainer.save(tmp_path / "python.safetensors")
    assert (tmp_path / "device.safetensors").read_bytes() == (tmp_path / "python.safetensors").read_bytes()
    other, _ = MODELS[name](seed=9)
    other.load(tmp_path / "device.safetensors")
    for key, value in trainer.state_dict().items():
        np.testing.assert_array_equal(np.asarray(other.state_dict()[key]), np.asarray(value))
    assert (other.steps, other.epochs) == (30, 3)
    instance.call("reset")
    instance.load(tmp_path / "python.safetensors")
    expected = trainer.fit(*data, epochs=1, batch_size=BATCH, verbose=0)["loss"]
    assert other.fit(*data, epochs=1, batch_size=BATCH, verbose=0)["loss"] == expected
    assert instance.run(*data, epochs=1).loss == pytest.approx(expected[0], rel=1e-12)


def test_a_label_out_of_range_changes_nothing(tmp_path: Path) -> None:
    trainer, data = MODELS["mlp"]()
    instance = Instance(trainer.export(tmp_path / "dist", name="mlp", batch_size=BATCH).folder)
    x, y = batches(data)[0]
    before = instance.get("0.weight")
    wrong = y.copy()
    wrong[3] = 10
    with pytest.raises(Refused, match="a target is neither a class"):
        instance.step(x, wrong)
    np.testing.assert_array_equal(instance.get("0.weight"), before)
    assert instance.step(x, y) == float(np.asarray(trainer.update(x, y)))


def test_hyperparameters(tmp_path: Path) -> None:
    trainer, data = MODELS["mlp"]()
    instance = Instance(trainer.export(tmp_path / "dist", name="mlp", batch_size=BATCH).folder)
    instance.call("set_hyperparameter", b"lr", ctypes.c_double(0.05))
    trainer.set_hyperparameter("lr", 0.05)
    for batch in batches(data)[:3]:
        assert instance.step(*batch) == float(np.asarray(trainer.update(*batch)))
    with pytest.raises(Refused, match=r"lr must be a finite number >= 0"):
        instance.call("set_hyperparameter", b"lr", ctypes.c_double(-1.0))
    with pytest.raises(Refused, match="momentum"):
        instance.call("set_hyperparameter", b"momentum", ctypes.c_double(0.5))


def test_a_file_of_a_fit_that_was_interrupted(tmp_path: Path) -> None:
    """What it says of the epoch is no concern of a library, which begins a new one."""
    trainer, data = MODELS["mlp"]()
    instance = Instance(trainer.export(tmp_path / "dist", name="mlp", batch_size=BATCH).folder)
    within = tmp_path / "within.safetensors"
    keep = Checkpoint(within, every_n_steps=7)

    def stop(step: int, _: dict[str, float]) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        callbacks = [keep, LambdaCallback(on_steps=stop, every_n_steps=1)]
        trainer.fit(*data, epochs=1, batch_size=BATCH, verbose=0, callbacks=callbacks)
    assert b'"position":' in within.read_bytes()
    instance.load(within)
    for key, value in trainer.state_dict().items():
        np.testing.assert_array_equal(instance.get(key), np.asarray(value))
    expected = trainer.fit(*data, epochs=1, batch_size=BATCH, verbose=0)["loss"][0]
    assert instance.run(*data, epochs=1).loss == pytest.approx(expected, rel=1e-12)


def test_the_longest_position_fits_in_a_library() -> None:
    """Which has room for a longer header than its own."""
    random = np.random.PCG64().state
    random["state"] = {"state": 2**128 - 1, "inc": 2**128 - 1}
    random |= {"has_uint32": 1, "uinteger": 2**32 - 1}
    names = ("rows", "batch_size", "steps_per_epoch", "shuffle", "drop_last")
    sums = Sums(-1.7976931348623157e308, -2.2250738585072014e-308, 2**63 - 1, 2**63 - 1)
    text = Position(random, dict.fromkeys(names, 2**63 - 1), 0, sums, sums).text()
    assert len(json.dumps({"position": text})) < program._SLACK


def test_weights_that_are_not_embedded_come_from_a_file(tmp_path: Path) -> None:
    trainer, data = MODELS["mlp"]()
    instance = Instance(trainer.export(tmp_path / "dist", name="mlp", batch_size=BATCH, embed=False).folder)
    batch = batches(data)[0]
    with pytest.raises(Refused, match="values"):
        instance.step(*batch)
    instance.load(tmp_path / "dist" / "mlp.safetensors")
    assert instance.step(*batch) == float(np.asarray(trainer.update(*batch)))
