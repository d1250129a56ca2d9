"""Histories: by name, by number, as a table, as a picture."""

from __future__ import annotations

import copy
import math
import pickle
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest

from pullback.ir import UserError
from pullback.relax.training import EpochRecord, History
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.runtime.tables import Table, sparkline
from tests.relax.training.models import classes, trainer_of

X, Y = classes(24)


def made(*losses: float, **others: float) -> History:
    return History([EpochRecord(k, {"loss": v, **others}, 0.5) for k, v in enumerate(losses, 1)])


def test_a_history_is_read_by_name_and_by_number() -> None:
    trainer = trainer_of("llvm")
    history = trainer.fit(X, Y, epochs=3, validation=(X[:8], Y[:8]), verbose=0)
    assert history.keys() == ["loss", "val_loss", "val_accuracy"] and len(history) == 3
    assert history["loss"] == [record.loss for record in history.epochs] == [record["loss"] for record in history]
    assert history["val_loss"] == [record.validation_loss for record in history]
    assert history["val_accuracy"] == [record.validation_accuracy for record in history]
    assert history[-1] is history.epochs[2] and history[:2] == history.epochs[:2]
    assert "val_loss" in history and "f1" not in history and history[0] in history
    assert [record.epoch for record in history] == [1, 2, 3] and history[0].keys() == history.keys()
    assert repr(history) == "History:\n" + "\n".join(f"  {record.line}" for record in history)


def test_a_trainer_keeps_the_history_of_all_its_fits() -> None:
    trainer = trainer_of()
    assert len(trainer.history) == 0
    first = trainer.fit(X, Y, epochs=2, verbose=0)
    kept = copy.deepcopy(trainer)
    second = trainer.fit(X, Y, validation=(X, Y), verbose=0)
    assert trainer.history.epochs == [*first, *second] and [r.epoch for r in trainer.history] == [1, 2, 3]
    assert math.isnan(trainer.history["val_loss"][0]) and trainer.history["val_loss"][2] == second["val_loss"][0]
    assert len(kept.history) == len(pickle.loads(pickle.dumps(kept)).history) == 2, "copies have one of their own"
    pandas.testing.assert_frame_equal(kept.history.to_pandas(), first.to_pandas())


def test_an_interrupted_fit_leaves_its_epochs() -> None:
    trainer = trainer_of(loss=MSELoss())
    y = np.zeros((24, 5), np.float32)

    def metric(found: object, wanted: object) -> float:
        if len(trainer.history) == 2:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, y, epochs=5, validation=(X, y), metrics=[metric], verbose=0)
    assert [record.epoch for record in trainer.history] == [1, 2] and trainer.epochs == 3


def test_names_that_are_not_there() -> None:
    history = made(1.0, 0.5, val_loss=2.0)
    with pytest.raises(KeyError, match="the history has no 'val_los'; it has: loss, val_loss: did you mean val_loss"):
        history["val_los"]
    with pytest.raises(KeyError, match="the history has no 'loss'; it has: none, as there is no epoch yet"):
        History()["loss"]
    with pytest.raises(KeyError, match="it has: loss, val_loss"):
        history[0]["f1"]
    with pytest.raises(IndexError):
        history[2]
    with pytest.raises(AttributeError, match=r'history\["loss"\]'):
        _ = history.history
    assert history[0].validation_accuracy is None and made(1.0)[0].validation_loss is None


def test_the_line_of_an_epoch() -> None:
    record = EpochRecord(3, {"loss": 0.43214, "val_loss": 1e-5, "val_accuracy": math.nan, "lr": 0.001}, 1.204)
    assert record.line == "epoch 3: loss 0.4321, val_loss 1e-05, lr 0.0010, 1.20 s"
    assert EpochRecord(1, {"loss": math.nan}, 0.0).line == "epoch 1: loss nan, 0.00 s"


def test_a_run_time_learning_rate_is_recorded() -> None:
    from pullback.relax.training.optimizer import SGD, RunTime

    trainer = trainer_of(optimizer=SGD(RunTime(0.1)))
    trainer.fit(X, Y, verbose=0)
    trainer.set_hyperparameter("lr", 0.05)
    trainer.fit(X, Y, verbose=0)
    assert trainer.history["lr"] == [0.1, 0.05]


def test_an_epoch_that_counts_nothing() -> None:
    trainer = trainer_of(loss=CrossEntropyLoss(ignore_index=-1))
    with pytest.warns(RuntimeWarning, match="no row of epoch 1 counts"):
        record = trainer.fit(X, np.full(24, -1), validation=(X, np.full(24, -1)), verbose=0)[0]
    assert record.validation_accuracy is None and math.isnan(record["val_accuracy"])


def test_a_table_for_pandas() -> None:
    frame = made(1.0, 0.5, val_loss=2.0).to_pandas()
    assert list(frame.columns) == ["loss", "val_loss", "seconds"] and list(frame.index) == [1, 2]
    assert frame.index.name == "epoch" and frame.loss.tolist() == [1.0, 0.5]


def test_html_is_well_formed_and_has_curves() -> None:
    history = made(1.0, 0.5, 0.25, val_loss=2.0)
    history.best_epoch = 3
    page = ElementTree.fromstring(history._repr_html_())
    cells = [cell.text for cell in page.iter("td") if cell.text]
    assert cells[:4] == ["1", "1.0000", "2.0000", "0.50"] and page.find("caption").text == "best epoch 3"  # type: ignore[union-attr]
    assert len(list(page.iter("polyline"))) == 2
    many = made(*np.linspace(1, 0, 200))
    assert many._repr_html_().count("<tr>") == 43 and "…" in many._repr_html_(), "heading, curves, 40 epochs, a gap"
    assert History()._repr_html_() == "History without an epoch"


def test_tables_are_drawn_in_three_ways() -> None:
    table = Table(["name", "count"], [["<a>", "1"], ["[b]", "20"]], title="two & more", last=["total", "21"])
    text = str(table)
    assert re.search(r"^\s*name\s+count$", text, re.M) and re.search(r"^\s*\[b\]\s+20$", text, re.M)
    assert re.search(r"^\s*total\s+21$", text, re.M) and text.startswith("two & more")
    page = ElementTree.fromstring(table.html())
    assert [cell.text for cell in page.iter("td")] == ["<a>", "1", "[b]", "20"]
    assert [cell.text for cell in page.iter("th")] == ["name", "count", "total", "21"]


def test_a_sparkline_goes_from_the_first_value_to_the_last() -> None:
    line = ElementTree.fromstring(sparkline([2.0, math.nan, 1.0], 100, 20)).find("polyline")
    assert line is not None and line.get("points") == "2.0,2.0 98.0,18.0"
    assert sparkline([1.0]) == sparkline([math.nan, 1.0]) == ""
    assert "2.0,2.0 " in sparkline([3.0, 3.0])


def test_a_plot_has_a_panel_for_each_metric() -> None:
    history = made(1.0, 0.5, val_loss=2.0, val_accuracy=0.5)
    history.best_epoch = 2
    figure = history.plot()
    loss, accuracy = figure.axes
    assert [axis.get_title() for axis in (loss, accuracy)] == ["loss", "accuracy"]
    drawn = {line.get_label(): list(line.get_ydata()) for line in loss.lines}
    assert drawn["training"] == [1.0, 0.5] and drawn["validation"] == [2.0, 2.0] and "best epoch 2" in drawn
    assert [line.get_label() for line in accuracy.lines] == ["validation", "best epoch 2"]
    with pytest.raises(UserError, match="has no epoch to plot"):
        History().plot()


@pytest.mark.parametrize(("package", "call"), [("matplotlib", "plot"), ("pandas", "to_pandas")])
def test_what_is_missing_is_named(package: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"{call} needs the package {package}, which is missing\nhint: `pip install"):
        getattr(made(1.0), call)()
