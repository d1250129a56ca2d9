"""Odd but right input works; every damage to a checkpoint is found; a failing call changes nothing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import CheckpointError, UserError
from pullback.relax.training import loss, lr_schedule, optimizer
from tests.errors.models import LABELS, X, Y, classifier_trainer, linear, linear_trainer
from tests.errors.test_errors import digest


def strided(array: np.ndarray) -> np.ndarray:
    """The same values at every second row and column of a larger array."""
    wide = np.full(tuple(2 * n for n in array.shape), np.nan, array.dtype)
    wide[tuple(slice(None, None, 2) for _ in array.shape)] = array
    return wide[tuple(slice(None, None, 2) for _ in array.shape)]


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def unaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, "uint8")
    raw[1:] = np.frombuffer(array.tobytes(), "uint8")
    return raw[1:].view(array.dtype).reshape(array.shape)


def reversed_twice(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array[::-1])[::-1]


ODD = [strided, read_only, unaligned, reversed_twice, np.asfortranarray, lambda a: a.astype("float64")]


@pytest.mark.parametrize("odd", ODD)
def test_odd_memory_trains_alike(odd: Any) -> None:
    plain, other = linear_trainer(), linear_trainer()
    assert plain.update(X, Y).item() == other.update(odd(X), odd(Y)).item()
    assert digest(plain) == digest(other)
    plain.load_params(plain.params)
    other.load_params([odd(np.asarray(v)) for v in other.params.values()])
    assert digest(plain) == digest(other)


def test_a_batch_that_is_the_memory_of_a_parameter() -> None:
    plain, other = linear_trainer(), linear_trainer()
    view = np.asarray(other._values.params[0])  # w, (3, 2)
    x = np.lib.stride_tricks.as_strided(view, (4, 3), (0, 4))  # every row: the first three numbers of w
    assert plain.update(x.copy(), Y).item() == other.update(x, Y).item()
    assert digest(plain) == digest(other)


def test_infinite_and_nan_inputs_train_to_what_they_are() -> None:
    trainer = linear_trainer()
    assert np.isnan(trainer.update(np.full((4, 3), np.nan, "float32"), Y).item())


def test_boolean_labels_are_classes() -> None:
    plain, other = classifier_trainer(), classifier_trainer()
    assert plain.update(X, LABELS).item() == other.update(X, LABELS.astype(bool)).item()


def test_a_label_out_of_range_changes_nothing_at_any_place() -> None:
    trainer = classifier_trainer()
    before = digest(trainer)
    for place in range(4):
        for label in (2, -1, -101, 2**31, 2**63 - 1, -(2**63)):
            labels = LABELS.copy()
            labels[place] = label
            with pytest.raises(ValueError, match="the targets must hold classes from 0 to 1"):
                trainer.update(X, labels)
    assert digest(trainer) == before


@pytest.mark.parametrize("damage", ["flip", "cut", "insert"])
def test_every_damage_to_a_checkpoint_is_found(damage: str, tmp_path: Path) -> None:
    trainer, file = linear_trainer(), tmp_path / "model.safetensors"
    trainer.save(file)
    whole = file.read_bytes()
    before = digest(trainer)
    for place in range(len(whole)):
        data = bytearray(whole)
        if damage == "flip":
            data[place] ^= 1 << place % 8
        elif damage == "cut":
            del data[place:]
        else:
            data.insert(place, 0x20)
        file.write_bytes(data)
        with pytest.raises(CheckpointError):
            trainer.load(file)
    assert digest(trainer) == before
    file.write_bytes(whole)
    trainer.load(file)
    assert digest(trainer) == before


@pytest.mark.parametrize(
    "mistake",
    [
        lambda t: pullback.tensor([{}]),
        lambda t: pullback.tensor(type("Lying", (), {"__array__": lambda *_, **__: "text"})()),
        lambda t: pullback.tensor(type("Half", (), {"__dlpack__": lambda *_, **__: None})()),
        lambda t: pullback.nd.zeros((2,), relax.TensorStructInfo((2,), "float32")),
        lambda t: relax.TensorStructInfo(7),
        lambda t: relax.TensorStructInfo(...),
        lambda t: relax.const(1.0, np.ones(3)),
        lambda t: optimizer.SGD(10**400),
        lambda t: lr_schedule.StepLR(10**400, 3),
        lambda t: loss.CrossEntropyLoss(np.ones(3)),
        lambda t: t.set_hyperparameter([], 1.0),
        lambda t: t.evaluate(X, Y, averaged=np.ones(3)),
        lambda t: t.fit(X, Y, epochs=None),
        lambda t: t.fit(X, Y, shuffle="no"),
        lambda t: t.fit(X, np.broadcast_to(np.float32(0), (2**50, 2))),
        lambda t: pullback.compile(linear, np.ones(3)),
        lambda t: pullback.trainer(linear, loss.MSELoss(), optimizer.SGD(0.1), targets=np.ones(3)),
        lambda t: pullback.script.from_source("x = 1", extra_vars=np.ones(3)),
        lambda t: pullback.script.from_source("x = 1", name=7),
        lambda t: pullback.script.from_source("x = '\ud800'"),
        lambda t: pullback.script.from_source("x = 1", file=np.ones(3)),
    ],
    ids=itertools.count(),
)
def test_mistakes_that_were_bare_errors(mistake: Any) -> None:
    trainer = linear_trainer()
    before = digest(trainer)
    with pytest.raises(UserError):
        mistake(trainer)
    assert digest(trainer) == before
