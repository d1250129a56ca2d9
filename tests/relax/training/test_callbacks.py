"""Callbacks: when they are called, what those that come with the package do, and what is refused."""

from __future__ import annotations

import csv
import logging
import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pullback.callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TensorBoard,
)

import pullback
from pullback.ir import ArgumentError, UserError
from pullback.relax.training import EpochRecord, History, epochs
from pullback.relax.training.callbacks.called import Callbacks
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD, Adam, RunTime
from tests.relax.training.models import assert_same, classes, params, trainer_of, with_state

X, Y = classes(30)  # three batches of eight and one of six


class Recorder(Callback):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_train_begin(self, logs: dict[str, float]) -> None:
        self.calls.append(("train begins", dict(logs)))

    def on_train_end(self, logs: dict[str, float]) -> None:
        self.calls.append(("train ends", dict(logs)))

    def on_epoch_begin(self, epoch: int, logs: dict[str, float]) -> None:
        self.calls.append(("epoch begins", epoch, self.trainer.steps))

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        self.calls.append(("epoch ends", epoch, dict(logs)))

    def on_batch_end(self, step: int, logs: dict[str, float]) -> None:
        self.calls.append(("batch ends", step, logs["loss"]))


def test_hooks_are_called_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "SLICE_SECONDS", 0.0)  # back to Python after each step
    trainer, stepped = trainer_of("llvm"), trainer_of("llvm")
    trainer.fit(X, Y, verbose=0)
    stepped._values = trainer._values.copy()
    recorder = Recorder()
    history = trainer.fit(X, Y, epochs=2, shuffle=False, validation=(X, Y), callbacks=[recorder], verbose=0)
    logs = [record.metrics for record in history]
    names = [call[0] for call in recorder.calls]
    epoch = ["epoch begins", *["batch ends"] * 4, "epoch ends"]
    assert names == ["train begins", *epoch, *epoch, "train ends"]
    assert [c[1:] for c in recorder.calls if c[0] == "epoch begins"] == [(2, 4), (3, 8)], "counted over all fits"
    assert [c[1:] for c in recorder.calls if c[0] == "epoch ends"] == [(2, logs[0]), (3, logs[1])]
    assert recorder.calls[0][1] == {} and recorder.calls[-1][1] == logs[1]
    assert recorder.trainer is trainer and recorder.history is history
    batches = [c[1:] for c in recorder.calls if c[0] == "batch ends"]
    assert [step for step, _ in batches] == list(range(5, 13))
    assert batches[0][1] == stepped.update(X[:8], Y[:8]).item()


def test_within_an_epoch_they_are_called_by_time() -> None:
    """Not for each of 1000 steps; but once at the end of each epoch, however short."""
    x, y = classes(8000)
    recorder = Recorder()
    trainer_of("llvm").fit(x, y, epochs=2, callbacks=recorder, verbose=0)
    steps = [c[1] for c in recorder.calls if c[0] == "batch ends"]
    assert 2 <= len(steps) < 500 and steps[-1] == 2000 and 1000 in steps and len(set(steps)) == len(steps)


@pytest.mark.parametrize("options", [{"detect_nan": True}, {"train_metrics": True}])
def test_so_they_are_where_python_runs_between_steps(options: dict[str, bool]) -> None:
    recorder = Recorder()
    trainer_of("llvm").fit(X, Y, epochs=2, callbacks=recorder, verbose=0, **options)
    steps = [c[1] for c in recorder.calls if c[0] == "batch ends"]
    assert {4, 8} <= set(steps) <= set(range(1, 9))


def test_stopping_after_an_epoch_and_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, reference = trainer_of("llvm"), trainer_of("llvm")

    def stop(number: int, logs: dict[str, float]) -> None:
        if number == 2:
            trainer.stop_training = True

    recorder = Recorder()
    history = trainer.fit(X, Y, epochs=5, callbacks=[LambdaCallback(on_epoch_end=stop), recorder], verbose=0)
    assert len(history) == 2 and trainer.epochs == 2 and recorder.calls[-1][0] == "train ends"
    monkeypatch.setattr(epochs, "SLICE_SECONDS", 0.0)
    trainer = trainer_of("llvm")
    history = trainer.fit(
        X, Y, epochs=5, shuffle=False, validation=(X, Y), callbacks=LambdaCallback(on_batch_end=stop), verbose=0
    )
    losses = [reference.update(X[k : k + 8], Y[k : k + 8]).item() for k in (0, 8)]
    assert trainer.steps == 2 and trainer.epochs == 1
    assert history["loss"] == [np.mean(losses)] and history["val_loss"] == [reference.evaluate(X, Y).loss]
    assert_same(params(trainer), params(reference))
    assert len(trainer.fit(X, Y, epochs=2, verbose=0)) == 2, "the next fit is not stopped"


def test_what_a_callback_adds_is_in_the_history() -> None:
    class Adding(Callback):
        adds = ("norm",)

        def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
            logs["norm"] = np.float32(10 - epoch)

    stopping = EarlyStopping("norm", mode="max")
    history = trainer_of().fit(X, Y, epochs=5, callbacks=[Adding(), stopping], verbose=0)
    assert history["norm"] == [9.0, 8.0] and type(history["norm"][0]) is float

    class Wrong(Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
            logs["norm"] = "large"

    with pytest.raises(ArgumentError, match="Wrong put 'norm' = 'large' into logs, which holds numbers"):
        trainer_of().fit(X, Y, callbacks=[Wrong()], verbose=0)


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end", "on_train_end"])
def test_an_exception_leaves_a_consistent_trainer(hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "SLICE_SECONDS", 0.0)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("mine")

    trainer, reference = (trainer_of("llvm", optimizer=Adam(0.01)) for _ in range(2))
    with pytest.raises(ZeroDivisionError, match="mine"):
        trainer.fit(X, Y, epochs=2, shuffle=False, callbacks=[LambdaCallback(**{hook: fail})], verbose=0)
    steps = {"on_train_begin": 0, "on_epoch_begin": 0, "on_batch_end": 1, "on_epoch_end": 4, "on_train_end": 8}[hook]
    assert trainer.steps == steps and len(trainer.history) == trainer.epochs == steps // 4
    trainer.save(tmp_path / "saved")
    for first, last in [(0, 8), (8, 16), (16, 24), (24, 30), *[(0, 8), (8, 16), (16, 24), (24, 30)]][:steps]:
        reference.update(X[first:last], Y[first:last])
    assert_same(params(trainer), params(reference))
    for t in (trainer, reference):
        t.fit(X, Y, seed=1, verbose=0)
    assert_same(params(trainer), params(reference))


# ---- those that come with it, on made-up epochs ----------------------------------------------------------------------


def run(callback: Any, values: Sequence[float], name: str = "val_loss", trainer: Any = None) -> Any:
    """Call a callback as fit does, with these values of a metric; returns the history. Training itself is a step."""
    trainer = trainer or trainer_of()
    history = History()
    called = Callbacks([callback], None, trainer, history)
    called.check(["loss", "val_loss", "val_accuracy", "lr"], {"accuracy": "max"})
    trainer.stop_training = False
    called.train_begin()
    for epoch, value in enumerate(values, 1):
        called.epoch_begin(epoch)
        trainer.update(X[:8], Y[:8])
        history.epochs.append(EpochRecord(epoch, {"loss": 1.0, name: value}, 0.1))
        called.epoch_end(history[-1])
        if trainer.stop_training:
            break
    called.train_end(history[-1].metrics)
    return history


@pytest.mark.parametrize(
    ("options", "values", "stopped", "best"),
    [
        ({}, [3, 2, 2.5, 1], 3, 2),
        ({"patience": 1}, [3, 2, 2.5, 1], 3, 2),
        ({"patience": 2}, [3, 2, 2.5, 1, 2, 2, 0], 6, 4),
        ({"patience": 3}, [3, 2, 1, 0.5], None, 4),
        ({"min_delta": 0.5}, [3, 2.8, 1], 2, 1),
        ({"patience": 2, "baseline": 1.5}, [3, 2, 1], 2, 2),
        ({"patience": 2, "baseline": 2.5}, [3, 2, 2.1, 2.1, 1], 4, 2),
        ({"start_from_epoch": 2}, [1, 1, 3, 2, 2.5], 5, 4),
        ({}, [math.nan, 2, 3], 1, None),
        ({"patience": 2}, [3, math.nan, 2, math.nan, math.nan, 1], 5, 3),
        ({"monitor": "val_accuracy"}, [0.5, 0.6, 0.6], 3, 2),
        ({"monitor": "val_accuracy", "mode": "min"}, [0.5, 0.6, 0.4], 2, 1),
    ],
)
def test_early_stopping(options: dict[str, Any], values: list[float], stopped: int | None, best: int | None) -> None:
    callback = EarlyStopping(**options)
    history = run(callback, values, callback.monitor)
    assert (history.stopped_epoch, history.best_epoch) == (stopped, best)
    assert len(history) == (stopped or len(values))


@pytest.mark.parametrize("values", [[3, 1, 2, 2], [3, 1, 2]])
def test_the_best_epoch_is_restored(values: list[float]) -> None:
    """Stopped or not; the optimizer goes on from where it was."""
    trainer, reference = trainer_of("llvm", optimizer=Adam(0.01)), trainer_of("llvm", optimizer=Adam(0.01))
    history = run(EarlyStopping(patience=2, restore_best=True), values, trainer=trainer)
    for _ in range(2):
        reference.update(X[:8], Y[:8])
    assert history.best_epoch == 2 and trainer.steps == len(values)
    assert_same(params(trainer), params(reference))


def test_states_are_restored_too_and_the_history_tells() -> None:
    trainer = pullback.trainer(with_state(), MSELoss(), SGD(0.9), target="debug")
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    zeros = np.zeros((8, 2), np.float32)
    values = iter([3.0, 1.0, 2.0])
    metric = {"made_error": lambda *_: next(values)}
    history = trainer.fit(
        x, zeros, epochs=9, validation=(x, zeros), metrics=metric,
        callbacks=EarlyStopping("val_made_error", restore_best=True), verbose=0,
    )  # fmt: skip
    assert trainer.states["calls"].item() == 4 and trainer.steps == 6
    assert (history.best_epoch, history.stopped_epoch) == (2, 3)
    assert (trainer.history.best_epoch, trainer.history.stopped_epoch) == (2, 3)
    why = "stopped at epoch 3: val_made_error has not become better for 1 epoch; the values of epoch 2 are restored"
    assert history.note == trainer.history.note == why
    assert f"best epoch 2, {why}" in history._repr_html_() and repr(history).endswith(why)


@pytest.mark.parametrize("verbose", [0, 2])
def test_the_output_says_why_it_stopped(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(epochs: int, **options: Any) -> str:
        trainer = pullback.trainer(with_state(), MSELoss(), SGD(0.0), target="debug")
        x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
        trainer.fit(x, y, epochs=epochs, verbose=verbose, callbacks=EarlyStopping("loss", **options))
        return capsys.readouterr().out

    told = run(9, patience=2).splitlines()
    assert told[-1:] == (["stopped at epoch 3: loss has not become better for 2 epochs"] if verbose else [])
    assert "has not become better than 1e-09 for 1 epoch" in run(9, baseline=1e-9) or not verbose
    assert "stopped" not in run(2, patience=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_checkpoints_keep_the_best(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "{epoch:02d}-{val_loss:.2f}.st"
    callback = ModelCheckpoint(path, save_top_k=2, save_last=True)
    trainer = trainer_of()
    run(callback, [3, 1, 2, math.nan, 2.5, 0.5], trainer=trainer)
    assert names(path.parent) == ["02-1.00.st", "06-0.50.st", "last.st"]
    assert callback.best_path == path.parent / "06-0.50.st" and callback.best == 0.5
    loaded = trainer_of()
    loaded.load(callback.best_path)
    assert loaded.steps == 6
    loaded.load(path.parent / "02-1.00.st")
    assert loaded.steps == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "best"}, ["best"]),
        ({"path": "{epoch}", "save_top_k": -1}, ["1", "2", "3", "4"]),
        ({"path": "{epoch}", "save_top_k": 0, "save_last": True}, ["last"]),
        ({"path": "{epoch}", "monitor": None}, ["4"]),
        ({"path": "{epoch}", "monitor": None, "save_top_k": 2}, ["3", "4"]),
        ({"path": "{epoch}", "every_n_epochs": 2, "save_top_k": -1}, ["2", "4"]),
        ({"path": "{val_loss:.0f}", "save_top_k": 2}, ["1", "2"]),
        ({"path": "{epoch}", "monitor": "val_accuracy"}, ["1"]),
    ],
)
def test_which_checkpoints_are_kept(options: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    options["path"] = str(tmp_path / options["path"])
    callback = ModelCheckpoint(**options)
    name = callback.monitor if options.get("monitor", 1) is not None else "val_loss"
    run(callback, [3, 1, 2, 2], name)
    assert names(tmp_path) == expected
    if options["path"].endswith("best"):
        trainer = trainer_of()
        trainer.load(tmp_path / "best")
        assert trainer.steps == 2


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "9").write_text("mine")
    run(ModelCheckpoint(tmp_path / "{epoch}"), [3, 2, 1])
    assert names(tmp_path) == ["3", "9"]


def test_the_learning_rate_falls_on_a_plateau() -> None:
    trainer = trainer_of(optimizer=SGD(RunTime(1.0)))
    rates = []

    class Rates(ReduceLROnPlateau):
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            super().on_epoch_end(epoch, logs)
            rates.append(self.trainer.hyperparameters["lr"])

    values = [3, 2, 2, 2, 2, 2, 2, 2, 1.9, 1.8]
    run(Rates(factor=0.5, patience=2, cooldown=1, min_lr=0.3), values, trainer=trainer)
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3]
    history = trainer_of(optimizer=SGD(RunTime(1.0))).fit(
        X, Y, epochs=3, callbacks=ReduceLROnPlateau("loss", patience=1, min_delta=100), verbose=0
    )
    assert history["lr"] == [1.0, 1.0, 0.1], "that with which the epoch was trained"
    with pytest.raises(UserError, match=r"no run-time value 'lr' \(it is 0.05, which is compiled.*\nhint: .*SGD\(RunT"):
        trainer_of().fit(X, Y, callbacks=ReduceLROnPlateau("loss"))
    with pytest.raises(UserError, match=r"no run-time value 'beta9' \(it is not there\); it has: lr"):
        trainer.fit(X, Y, callbacks=ReduceLROnPlateau("loss", hyperparameter="beta9"))


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_csv_files(tmp_path: Path) -> None:
    trainer, path = trainer_of(), tmp_path / "logs" / "training.csv"
    history = trainer.fit(X, Y, epochs=2, validation=(X, Y), callbacks=CSVLogger(path), verbose=0)
    assert rows(path)[0] == ["epoch", "loss", "val_loss", "val_accuracy"]
    assert [[float(v) for v in row] for row in rows(path)[1:]] == [[r.epoch, *r.metrics.values()] for r in history]
    trainer.fit(X, Y, validation=(X, Y), callbacks=CSVLogger(path, append=True), verbose=0)
    assert [row[0] for row in rows(path)] == ["epoch", "1", "2", "3"]
    with pytest.raises(UserError, match=r"has the columns .*; this epoch differs in val_accuracy, val_loss"):
        trainer.fit(X, Y, callbacks=CSVLogger(path, append=True), verbose=0)
    trainer.fit(X, Y, callbacks=CSVLogger(path), verbose=0)
    assert rows(path) == [["epoch", "loss"], ["5", str(trainer.history[-1].loss)]]


def test_tensorboard_files(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    history = trainer_of("llvm").fit(
        X, Y, epochs=2, validation=(X, Y), callbacks=TensorBoard(tmp_path, batches=True), verbose=0
    )
    (path,) = tmp_path.iterdir()
    events, data = [], path.read_bytes()
    while data:  # records: length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    found = {(v.tag, e.step): v.simple_value for e in events for v in e.summary.value}
    assert {tag for tag, _ in found} == {"loss/train", "loss/validation", "accuracy/validation", "loss/step"}
    assert found["loss/train", 2] == pytest.approx(history[1].loss)
    assert found["accuracy/validation", 1] == pytest.approx(history["val_accuracy"][0])
    assert ("loss/step", 8) in found


def test_tensorboard_without_its_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    trainer = trainer_of()
    with pytest.raises(UserError, match=r"needs the package tensorboardX.*\nhint: `pip install \"pullback\[tensorboa"):
        trainer.fit(X, Y, callbacks=TensorBoard())
    assert trainer.steps == 0


class Run:
    """A logger, by the names of its methods."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def _see(self, *args: Any, **options: Any) -> None:
        self.seen.append((*args, *options.values()))


def test_loggers_are_known_by_their_methods(caplog: pytest.LogCaptureFixture) -> None:
    mlflow, wandb, board = (
        type("", (Run,), {name: Run._see, "log": Run._see} if name == "log_metrics" else {name: Run._see})()
        for name in ("log_metrics", "log", "add_scalar")
    )
    with caplog.at_level(logging.INFO):
        history = trainer_of().fit(
            X, Y, epochs=2, logger=[mlflow, wandb, board, logging.getLogger("training")], verbose=0
        )
    values = [{"loss": record.loss, "epoch": record.epoch} for record in history]
    assert mlflow.seen == wandb.seen == [(values[0], 4), (values[1], 8)]
    assert board.seen[:2] == [("loss", values[0]["loss"], 4), ("epoch", 1, 4)]
    assert [record.message for record in caplog.records] == [record.line for record in history]
    with pytest.raises(ArgumentError, match=r"a logger has log_metrics.*; a int has none of them"):
        trainer_of().fit(X, Y, logger=3)


# ---- what is refused -------------------------------------------------------------------------------------------------


def with_hook(name: str, function: Any) -> Any:
    return type("Mine", (Callback,), {name: function})()


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (3, "callbacks is a list of Callbacks, got int"),
        ([print], r"a callback is a Callback, got a function\nhint: LambdaCallback\(on_epoch_end=f\)"),
        ([EarlyStopping], r"a callback is an object, got the class EarlyStopping\nhint: make one"),
        ([Run()], "callbacks is a list of Callbacks, got Run\nhint: .*pullback.callbacks.Callback"),
        (with_hook("on_epoch_end", lambda self, epoch: 0), r"Mine.on_epoch_end is called with \(epoch, logs\)"),
        (with_hook("on_train_end", lambda self: 0), r"on_train_end is called with \(logs\), and takes \(\)"),
        (LambdaCallback(on_epoch_end=lambda: 0), r"^on_epoch_end is called with \(epoch, logs\), and takes \(\)"),
        (
            with_hook("on_train_batch_end", lambda self, b, logs: 0),
            "no hook on_train_batch_end: did you mean on_batch_",
        ),
        (with_hook("on_epoch_ends", lambda self, b, logs: 0), "no hook on_epoch_ends: did you mean on_epoch_end"),
        (EarlyStopping(), r"there will be no 'val_loss'; there will be: loss\n?.*hint: fit\(…, validation="),
        (EarlyStopping("los"), "EarlyStopping: there will be no 'los'; there will be: loss: did you mean loss"),
        (ModelCheckpoint("a"), "ModelCheckpoint: there will be no 'val_loss'"),
        (ModelCheckpoint("{val_los}", None), r"names 'val_los'; there will be: epoch, loss"),
        (ModelCheckpoint("{loss:d}", None), "is no template: Unknown format code 'd'"),
        (ModelCheckpoint("{}", None), "names ''"),
    ],
)
def test_bad_callbacks(callbacks: Any, message: str) -> None:
    trainer = trainer_of()
    with pytest.raises(ArgumentError, match=message):
        trainer.fit(X, Y, callbacks=callbacks)
    assert trainer.steps == 0


def test_monitors_that_are_near() -> None:
    with pytest.raises(
        ArgumentError, match=r'hint: monitor="val_accuracy" is that of the validation rows; fit\(…, tra'
    ):
        trainer_of().fit(X, Y, validation=(X, Y), callbacks=EarlyStopping("accuracy"))
    with pytest.raises(ArgumentError, match="'val_foo' does not tell whether less or more is better"):
        trainer_of().fit(X, Y, validation=(X, Y), metrics={"foo": lambda *_: 0}, callbacks=EarlyStopping("val_foo"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyStopping(3), "monitor must be the name of a metric, got 3"),
        (lambda: EarlyStopping(patience=-1), "patience must be an int ≥ 0"),
        (lambda: EarlyStopping(min_delta=-1), "min_delta must be a finite number ≥ 0"),
        (lambda: EarlyStopping(mode="less"), 'mode must be "auto", "min" or "max"'),
        (lambda: EarlyStopping(restore_best="yes"), "restore_best must be True or False"),
        (lambda: EarlyStopping(baseline="low"), "baseline must be a finite number, got 'low'"),
        (lambda: ModelCheckpoint(3), "path must be a path, got 3"),
        (lambda: ModelCheckpoint("{epoch"), "is no template"),
        (lambda: ModelCheckpoint("one", save_top_k=3), "keeps several files, and the path 'one' names one"),
        (lambda: ReduceLROnPlateau(factor=1.5), "factor must lie between 0 and 1"),
        (lambda: CSVLogger(""), "path must be a path"),
        (lambda: TensorBoard(None), "dir must be a path"),
        (lambda: LambdaCallback(on_epoch_end=3), "on_epoch_end must be a function of .epoch, logs., got int"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("TerminateOnNaN", "detect_nan=True"), ("EarlyStoping", "did you mean EarlyStopping"), ("CSV", "CSVLogger")],
)
def test_names_of_other_systems(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"callbacks has no '{name}'.*{hint}"):
        getattr(pullback.callbacks, name)
