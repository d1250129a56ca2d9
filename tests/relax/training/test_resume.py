"""Trainings that are ended or killed and go on from a checkpoint: what they give is what they would have given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from pullback.callbacks import Callback, Checkpoint, LambdaCallback, ModelCheckpoint

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, CheckpointError
from pullback.relax.training import Trainer, make_trainer
from pullback.relax.training.file_names import FileNames
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.lr_schedule import StepLR
from pullback.relax.training.optimizer import Accumulate, Adam, MomentumSGD
from pullback.runtime.ranks import run_local
from tests.relax.training.models import classes, mlp

X, Y = classes(30)  # three batches of eight and one of six
REPOSITORY = Path(__file__).parents[3]


class Ended(Exception):
    """What ends a training in these tests."""


class EndAfter(Callback):
    """Ends a training after so many steps: an exception at the point where the step is done."""

    def __init__(self, steps: int) -> None:
        self.every_n_steps, self.steps = 1, steps

    def on_steps(self, step: int, logs: dict[str, float]) -> None:
        if step == self.steps:
            raise Ended


def trainer_of(seed: int = 1, target: str = "debug", optimizer: Any = None) -> Trainer:
    return make_trainer(mlp(), CrossEntropyLoss(), optimizer or Adam(0.01), target=target, seed=seed)


def everything(trainer: Trainer) -> list[np.ndarray]:
    return [np.asarray(trainer.epochs), *(np.array(v) for v in trainer._values.all)]


def assert_alike(first: Trainer, second: Trainer) -> None:
    for a, b in zip(everything(first), everything(second), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert first._generator.bit_generator.state == second._generator.bit_generator.state


def metrics(history: Any) -> list[tuple[int, dict[str, float]]]:
    return [(record.epoch, record.metrics) for record in history]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "last.safetensors"


# ---- the same ------------------------------------------------------------------------------------------------------

FITS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "in order": {"shuffle": False},
    "without the last batch": {"drop_last": True},
    "some batches": {"steps_per_epoch": 3},
    "one batch": {"batch_size": 30},
    "weights": {"sample_weight": np.linspace(0.5, 2, 30).astype("float32"), "class_weight": {0: 2.0}},
    "validation": {"validation": (X[:10], Y[:10])},
    "a seed": {"seed": 5},
    "detecting NaN": {"detect_nan": True},
}


@pytest.mark.parametrize("options", FITS.values(), ids=FITS.keys())
def test_training_goes_on_after_any_step(options: dict[str, Any], path: Path) -> None:
    whole = trainer_of()
    expected = metrics(whole.fit(X, Y, epochs=3, verbose=0, **options))
    for steps in range(1, whole.steps + 1) if not options else (1, whole.steps // 2 + 1, whole.steps):
        path.unlink(missing_ok=True)
        keep = Checkpoint(path, every_n_steps=1)
        with pytest.raises(Ended):
            trainer_of().fit(X, Y, epochs=3, verbose=0, callbacks=[keep, EndAfter(steps)], resume=True, **options)
        resumed = trainer_of(seed=9)
        history = resumed.fit(X, Y, epochs=3, verbose=0, callbacks=[keep], resume=True, **options)
        assert_alike(whole, resumed)
        assert metrics(history) == expected[-len(history) :] and len(history) >= 1


@pytest.mark.parametrize("every", [2, 5])
def test_native_code_and_random_numbers(every: int, path: Path) -> None:
    """Dropout, batch norm, a schedule; the loop over batches is native, and ends at just these steps."""

    def made(seed: int) -> Trainer:
        layers = nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5)
        return pullback.trainer(
            nn.Sequential(*layers), "cross_entropy", MomentumSGD(StepLR(0.1, 3), 0.9), example=X[:8], seed=seed
        )

    whole = made(1)
    expected = metrics(whole.fit(X, Y, batch_size=8, epochs=4, verbose=0))
    for steps in range(every, whole.steps + 1, 3):
        path.unlink(missing_ok=True)
        keep = Checkpoint(path, every_n_steps=every)
        with pytest.raises(Ended):
            made(1).fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=[keep, EndAfter(steps)])
        resumed = made(9)
        history = resumed.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=[keep], resume=True)
        assert_alike(whole, resumed)
        assert metrics(history) == expected[-len(history) :]


class Examples:
    """Read by their number."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, k: int) -> Any:
        return X[k], Y[k]


def batches() -> Iterator[Any]:
    for k in range(0, 30, 8):
        yield X[k : k + 8], Y[k : k + 8]


class Orders:
    """A function that gives the batches of each epoch in an order of its own."""

    def __init__(self) -> None:
        self.epoch = 0

    def __call__(self) -> Iterator[Any]:
        self.epoch += 1
        order = np.random.default_rng(self.epoch).permutation(30)
        return iter([(X[order[k : k + 8]], Y[order[k : k + 8]]) for k in (0, 8, 16)])


STREAMS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "examples": (Examples, {"batch_size": 8}),
    "a list of batches": (lambda: list(batches()), {}),
    "a function": (lambda: batches, {}),
    "orders": (Orders, {}),
    "a list that epochs go on in": (lambda: list(batches()), {"steps_per_epoch": 3}),
    "a generator": (lambda: (b for _ in range(9) for b in batches()), {"steps_per_epoch": 5}),
}


@pytest.mark.parametrize(("data", "options"), STREAMS.values(), ids=STREAMS.keys())
def test_data_that_is_read(data: Callable[[], Any], options: dict[str, Any], path: Path) -> None:
    whole = trainer_of()
    expected = whole.fit(data(), epochs=3, verbose=0, **options)
    for steps in (1, 3, 4, 6, whole.steps - 1):
        path.unlink(missing_ok=True)
        keep = Checkpoint(path, every_n_steps=1)
        with pytest.raises(Ended):
            trainer_of().fit(data(), epochs=3, verbose=0, callbacks=[keep, EndAfter(steps)], **options)
        resumed = trainer_of(seed=9)
        history = resumed.fit(data(), epochs=3, verbose=0, resume=path, **options)
        assert_alike(whole, resumed)
        np.testing.assert_allclose(history["loss"], expected["loss"][-len(history) :], rtol=1e-12)


def test_a_loss_that_adds_up(path: Path) -> None:
    def made(seed: int) -> Trainer:
        return make_trainer(mlp(), MSELoss(reduction="sum"), Adam(0.001), target="debug", seed=seed)

    targets = np.eye(5, dtype="float32")[Y]
    whole = made(1)
    expected = metrics(whole.fit(X, targets, epochs=2, verbose=0))
    with pytest.raises(Ended):
        made(1).fit(X, targets, epochs=2, verbose=0, callbacks=[Checkpoint(path, every_n_steps=3), EndAfter(3)])
    resumed = made(9)
    assert metrics(resumed.fit(X, targets, epochs=2, verbose=0, resume=path)) == expected
    assert_alike(whole, resumed)


def test_an_optimizer_that_accumulates(path: Path) -> None:
    """Whose steps are fewer than the batches: a checkpoint is saved between two of its own."""
    whole = trainer_of(optimizer=Accumulate(Adam(0.01), 3))
    expected = metrics(whole.fit(X, Y, epochs=4, verbose=0))
    seen: list[int] = []
    for steps in range(1, whole.steps, 2):
        path.unlink(missing_ok=True)
        keep = Checkpoint(path, every_n_steps=1)
        with pytest.raises(Ended):
            stop = [keep, LambdaCallback(on_steps=lambda step, _: seen.append(step), every_n_steps=1), EndAfter(steps)]
            trainer_of(optimizer=Accumulate(Adam(0.01), 3)).fit(X, Y, epochs=4, verbose=0, callbacks=stop)
        resumed = trainer_of(9, optimizer=Accumulate(Adam(0.01), 3))
        history = resumed.fit(X, Y, epochs=4, verbose=0, resume=path)
        assert_alike(whole, resumed)
        assert metrics(history) == expected[-len(history) :]
    assert 0 not in seen


def test_an_interrupted_training_that_is_saved_goes_on(path: Path) -> None:
    """Saved by who caught the exception, as the command line does; and not where something was trained since."""
    whole, first = trainer_of(), trainer_of()
    expected = metrics(whole.fit(X, Y, epochs=2, verbose=0))
    with pytest.raises(Ended):
        first.fit(X, Y, epochs=2, verbose=0, callbacks=[EndAfter(6)])
    first.save(path)
    resumed = trainer_of(seed=9)
    assert metrics(resumed.fit(X, Y, epochs=2, verbose=0, resume=str(path))) == expected[1:]
    assert_alike(whole, resumed)
    with safetensors.safe_open(path, "numpy") as file:
        assert "position" in file.metadata()
    first.update(X[:8], Y[:8])
    first.save(path)
    with safetensors.safe_open(path, "numpy") as file:
        assert "position" not in file.metadata()


def test_a_plain_load_begins_a_new_epoch(path: Path) -> None:
    """As the trainer that was interrupted does itself."""
    first, second = trainer_of(), trainer_of(seed=9)
    with pytest.raises(Ended):
        first.fit(X, Y, epochs=2, verbose=0, callbacks=[EndAfter(6)])
    first.save(path)
    second.load(path)
    assert second.epochs == 1
    histories = [trainer.fit(X, Y, epochs=1, verbose=0) for trainer in (first, second)]
    assert metrics(histories[0]) == metrics(histories[1])
    assert_alike(first, second)
    assert second.steps == 6 + 4


TRAINING = """
import sys
from pullback.callbacks import Checkpoint
from tests.relax.training.test_resume import X, Y, trainer_of
trainer = trainer_of()
print("ready", flush=True)
keep = Checkpoint(sys.argv[1], every_n_steps=1)
trainer.fit(X, Y, epochs=12, verbose=0, callbacks=[keep], resume=True)
trainer.save(sys.argv[2])
"""


def test_a_training_that_is_killed_again_and_again(path: Path, tmp_path: Path) -> None:
    """The same program goes on, and in the end gives the very file of one that nobody killed."""
    arguments = [sys.executable, "-c", TRAINING, str(path), str(tmp_path / "end")]
    source = np.random.default_rng(0)
    for _ in range(2):
        process = subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, env=dict(os.environ))
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(source.uniform(0.03, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    subprocess.run(arguments, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=60)
    whole = trainer_of()
    whole.fit(X, Y, epochs=12, verbose=0)
    whole.save(tmp_path / "whole")
    assert (tmp_path / "end").read_bytes() == (tmp_path / "whole").read_bytes()


def test_ranks_save_and_go_on_together(path: Path) -> None:
    """Each trains here by itself, and they share the files."""
    names = path.with_name("{step:04d}.safetensors")

    def train(rank: int, steps: int) -> Trainer:
        trainer = trainer_of()
        callbacks = [Checkpoint(names, every_n_steps=2, keep=2), EndAfter(steps)]
        trainer.fit(X, Y, epochs=3, verbose=0, callbacks=callbacks, resume=True)
        return trainer

    with pytest.raises(Ended):
        run_local(3, lambda rank: train(rank, 7))
    assert sorted(p.name for p in path.parent.iterdir()) == ["0004.safetensors", "0006.safetensors"]
    whole = trainer_of()
    whole.fit(X, Y, epochs=3, verbose=0)
    for trainer in run_local(2, lambda rank: train(rank, -1)):
        assert_alike(whole, trainer)
    assert sorted(p.name for p in path.parent.iterdir()) == ["0010.safetensors", "0012.safetensors"]


# ---- how much is trained -------------------------------------------------------------------------------------------


def test_epochs_are_those_of_all_runs(path: Path) -> None:
    """What was done is not done again, and one that has ended is left as it is."""
    keep = Checkpoint(path)
    for _ in range(2):
        trainer = trainer_of()
        history = trainer.fit(X, Y, epochs=2, verbose=0, callbacks=[keep], resume=True)
        assert trainer.epochs == 2
    assert len(history) == 0
    trainer = trainer_of()
    assert [r.epoch for r in trainer.fit(X, Y, epochs=5, verbose=0, callbacks=[keep], resume=True)] == [3, 4, 5]
    whole = trainer_of()
    whole.fit(X, Y, epochs=5, verbose=0)
    assert_alike(whole, trainer)


def test_train_metrics_are_those_of_what_is_left(path: Path) -> None:
    with pytest.raises(Ended):
        trainer_of().fit(X, Y, epochs=2, verbose=0, callbacks=[Checkpoint(path, every_n_steps=1), EndAfter(2)])
    resumed = trainer_of()
    with pytest.warns(
        RuntimeWarning, match="epoch 1 goes on after 2 batches: what train_metrics=True measures"
    ) as found:
        resumed.fit(X, Y, epochs=2, verbose=0, train_metrics=True, resume=path)
    assert Path(found[0].filename) == Path(__file__)


def test_files_that_later_versions_may_read_without_a_position(path: Path) -> None:
    """A file that is saved between two epochs has none, and goes on with whatever batches."""
    trainer = trainer_of()
    trainer.fit(X, Y, epochs=1, verbose=0, callbacks=[Checkpoint(path)])
    with safetensors.safe_open(path, "numpy") as file:
        assert "position" not in file.metadata()
    resumed = trainer_of(seed=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(resumed.fit(X[:20], Y[:20], batch_size=5, epochs=2, verbose=0, resume=path)) == 1


# ---- the callback --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_steps_are_met_exactly(target: str) -> None:
    x, y = classes(800)
    found: list[tuple[int, int]] = []
    callbacks = [
        LambdaCallback(on_steps=lambda step, logs, n=n: found.append((n, step)), every_n_steps=n) for n in (3, 7, 250)
    ]
    trainer = trainer_of(target=target)
    trainer.fit(x, y, epochs=3, verbose=0, callbacks=callbacks)
    trainer.fit(x[:80], y[:80], epochs=1, verbose=0, callbacks=callbacks)
    assert sorted(found) == [(n, k) for n in (3, 7, 250) for k in range(n, 311, n)]


def test_the_last_files_stay(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("step-000-of-0.st", "step-900-of-7.st", "step-x-of-1.st", "other"):
        (tmp_path / "runs" / name).write_bytes(b"")
    (tmp_path / "runs" / "step-900-of-7.st").unlink()
    keep = Checkpoint(tmp_path / "runs" / "step-{step:03d}-of-{epoch}.st", every_n_steps=3, every_n_epochs=2, keep=3)
    trainer_of().fit(X, Y, epochs=3, verbose=0, callbacks=[keep])
    found = sorted(p.name for p in (tmp_path / "runs").iterdir())
    assert found == ["other", "step-009-of-2.st", "step-012-of-2.st", "step-012-of-3.st", "step-x-of-1.st"]
    assert keep.saved == tmp_path / "runs" / "step-012-of-3.st"
    resumed = trainer_of()
    assert len(resumed.fit(X, Y, epochs=3, verbose=0, callbacks=[keep], resume=True)) == 0 and resumed.epochs == 3


def test_an_end_is_saved_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    trainer = trainer_of()
    original = trainer.save
    monkeypatch.setattr(trainer, "save", lambda path: (saved.append(trainer.steps), original(path)))
    trainer.fit(X, Y, epochs=2, verbose=0, callbacks=[Checkpoint(path, every_n_steps=5)])
    assert saved == [5, 8]
    trainer.fit(X, Y, epochs=2, verbose=0, callbacks=[Checkpoint(path)])
    assert saved == [5, 8, 12, 16]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": ""}, "path must be a path, got ''"),
        ({"path": 3}, "path must be a path, got 3"),
        ({"path": "{step"}, "is no template"),
        ({"path": "{loss}"}, r"is no name of checkpoints: it names {loss}; its fields are {step} and {epoch}"),
        ({"path": "{step:x}"}, "it names {step:x}"),
        ({"path": "{step!r}"}, "it names {step}"),
        ({"path": "{step}/last"}, "its folder has a field"),
        ({"path": "{step}{step}"}, "a field comes twice"),
        ({"path": "last", "keep": 2}, "keep=2 keeps several files, and the path 'last' names one"),
        ({"path": "{step}", "keep": 0}, "keep must be an int ≥ 1, got 0"),
        ({"path": "last", "every_n_steps": 0}, "every_n_steps must be an int ≥ 1, got 0"),
        ({"path": "last", "every_n_epochs": 1.5}, "every_n_epochs must be an int ≥ 1, got 1.5"),
    ],
)
def test_what_the_callback_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Checkpoint(**arguments)


def test_names(tmp_path: Path) -> None:
    names = FileNames(str(tmp_path / "a{{1}}+{epoch}-{step:04d}.st"))
    assert names.path(12, 3).name == "a{1}+3-0012.st" and names.has_fields
    for name in ("a{1}+3-0012.st", "a{1}+10-0012.st", "a{1}+3-20000.st", "a{1}+3-12", "xa{1}+3-0012.st"):
        (tmp_path / name).write_bytes(b"")
    assert [p.name for p in names.there()] == ["a{1}+3-20000.st", "a{1}+10-0012.st", "a{1}+3-0012.st"]
    assert FileNames(str(tmp_path / "none" / "{step}")).there() == []


# ---- what is refused -----------------------------------------------------------------------------------------------


def assert_refused(call: Callable[[Trainer], Any], error: type[Exception], message: str) -> None:
    trainer = trainer_of(seed=9)
    before = everything(trainer)
    with pytest.raises(error, match=message):
        call(trainer)
    assert all(np.array_equal(a, b) for a, b in zip(before, everything(trainer), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5}, "middle of an epoch of a fit whose batch_size was 8; that of this one is 5"),
        ({"shuffle": False}, "whose shuffle was True; that of this one is False"),
        ({"drop_last": True}, "whose drop_last was False; that of this one is True"),
        ({"steps_per_epoch": 2}, "whose steps_per_epoch was None; that of this one is 2"),
        ({"x": X[:20], "y": Y[:20]}, "whose rows was 30; that of this one is 20"),
    ],
)
def test_an_epoch_of_other_batches(options: dict[str, Any], message: str, path: Path) -> None:
    with pytest.raises(Ended):
        trainer_of().fit(X, Y, verbose=0, callbacks=[Checkpoint(path, every_n_steps=1), EndAfter(2)])
    given = {"x": X, "y": Y, "epochs": 2, "verbose": 0, "resume": path, **options}
    assert_refused(lambda trainer: trainer.fit(**given), CheckpointError, message)


def test_what_cannot_be_resumed(path: Path) -> None:
    def fit(**options: Any) -> Callable[[Trainer], Any]:
        return lambda trainer: trainer.fit(X, Y, verbose=0, **options)

    message = "resume=True goes on from what the callback Checkpoint has saved, and there are 0 of it"
    assert_refused(fit(resume=True), ArgumentError, message)
    assert_refused(fit(resume=True, callbacks=ModelCheckpoint(path, "loss")), ArgumentError, message)
    twice = [Checkpoint(path), Checkpoint(path)]
    assert_refused(fit(resume=True, callbacks=twice), ArgumentError, "there are 2 of it")
    assert_refused(fit(resume=False), ArgumentError, "expected a path, got bool")
    assert_refused(fit(resume=7), ArgumentError, "expected a path, got int")
    path.write_bytes(b"no checkpoint, but longer than eight bytes")
    assert_refused(fit(resume=path), CheckpointError, "too few for its header")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.pop("open"),
        lambda p: p.update(more=1),
        lambda p: p.update(closed=[0.0, 0.0, 0]),
        lambda p: p.update(closed=[0.0, 0.0, -1, 0]),
        lambda p: p.update(closed=[0.0, 0.0, 1.5, 0]),
        lambda p: p.update(open=["0", 0.0, 1, 0]),
        lambda p: p.update(open={}),
        lambda p: p.update(fit=[]),
        lambda p: p["fit"].update(rows="30"),
        lambda p: p.update(random={}),
        lambda p: p["random"]["state"].update(inc=2),
        lambda p: p.update(random=None),
    ],
)
def test_positions_that_are_none(change: Callable[[dict[str, Any]], Any], path: Path) -> None:
    """With the checksum that belongs to them."""
    from tests.relax.training.test_checkpoint import rewritten

    with pytest.raises(Ended):
        trainer_of().fit(X, Y, verbose=0, callbacks=[Checkpoint(path, every_n_steps=1), EndAfter(2)])

    def damage(_: Any, metadata: dict[str, str]) -> None:
        position = json.loads(metadata["position"])
        change(position)
        metadata["position"] = json.dumps(position)

    rewritten(path, damage)
    assert_refused(
        lambda t: t.fit(X, Y, verbose=0, resume=path), CheckpointError, r"its metadata is damaged \(position"
    )
