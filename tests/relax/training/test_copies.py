"""Copied and pickled trainers go on bit for bit, and have nothing in common with the original."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import UserError
from pullback.relax.training import SetupTrainer, Trainer, loss, lr_schedule, make_trainer, optimizer
from pullback.relax.training.optimizer import EMA, SGD, Adam, DynamicLossScale, MomentumSGD, RunTime
from tests.errors.test_errors import digest
from tests.relax.training import whole
from tests.relax.training.models import SIZES, classes, mlp, trainer_of, with_state

X, Y = classes(30)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [pickled, copy.deepcopy, copy.copy]
OPTIMIZERS = [
    SGD(0.05), Adam(0.01), EMA(MomentumSGD(RunTime(0.02), 0.9), 0.9), DynamicLossScale(SGD(0.1)),
    Adam(lr_schedule.StepLR(0.1, 3)),
]  # fmt: skip


def trained(trainer: Trainer) -> list[Any]:
    """What comes of going on."""
    history = trainer.fit(X, Y, epochs=2, validation=(X, Y), verbose=0)
    return [dataclasses.replace(e, seconds=0.0) for e in history.epochs] + [digest(trainer)]


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("target", ["llvm", "debug"])
@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda o: o.name)
def test_it_goes_on_as_the_original(kind: Any, target: str, make: Any) -> None:
    trainer = trainer_of(target, optimizer=kind)
    trainer.fit(X, Y, epochs=1, verbose=0)
    before = digest(trainer)
    other = make(trainer)
    assert digest(other) == before and repr(other) == repr(trainer)
    assert other.hyperparameters == trainer.hyperparameters
    expected = trained(trainer)
    assert digest(other) == before, "the original's steps do not touch the copy"
    assert trained(other) == expected
    assert digest(trainer) == digest(other)


@pytest.mark.parametrize("make", COPIES)
def test_models_that_draw_and_keep_states(make: Any) -> None:
    trainer = make_trainer(with_state(), loss.MSELoss(), SGD(0.1), seed=4)
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    trainer.update(x, y)
    other = make(trainer)
    assert trainer.update(x, y).item() == other.update(x, y).item() and digest(trainer) == digest(other)


@pytest.mark.parametrize("make", COPIES)
def test_a_model_with_all_that_a_training_may_have(make: Any) -> None:
    trainer, batches = whole.trainer_of("llvm"), whole.batches()
    for batch in batches[:5]:
        trainer.update(*batch)
    other = make(trainer)
    for batch in batches[5:]:
        assert trainer.update(*batch).item() == other.update(*batch).item()
    assert digest(trainer) == digest(other)


@pytest.mark.parametrize("make", COPIES)
def test_trainers_that_are_not_built_yet(make: Any) -> None:
    info = [relax.TensorStructInfo((8, SIZES[-1]), "float32"), relax.TensorStructInfo((8,), "int64")]
    setup = SetupTrainer(loss.CrossEntropyLoss(), Adam(0.1), info)
    trainer = make(Trainer(mlp(), len(SIZES) * 2 - 2, setup))
    with pytest.raises(UserError, match="not built yet"):
        trainer.update(X[:8], Y[:8])
    trainer.build("debug").update(X[:8], Y[:8])


def test_a_copy_has_whole_values_while_another_thread_trains() -> None:
    trainer, stop = trainer_of("llvm"), threading.Event()
    known = {digest(trainer)}
    twin = copy.deepcopy(trainer)
    for _ in range(200):
        twin.update(X[:8], Y[:8])
        known.add(digest(twin))

    def train() -> None:
        for _ in range(200):
            trainer.update(X[:8], Y[:8])
        stop.set()

    thread = threading.Thread(target=train)
    thread.start()
    while not stop.is_set():
        for make in COPIES:
            assert digest(make(trainer)) in known
    thread.join()


def in_another_process(trainer: Trainer, queue: Any) -> None:
    queue.put((trainer.update(X[:8], Y[:8]).item(), digest(trainer)))
    try:
        trainer.update(X, Y[:3])
    except UserError as error:
        queue.put(error)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_it_goes_on_in_another_process(method: str) -> None:
    trainer = trainer_of("llvm")
    trainer.update(X[:8], Y[:8])
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=in_another_process, args=(trainer, queue))
    process.start()
    found, error = queue.get(), queue.get()
    process.join()
    assert found == (trainer.update(X[:8], Y[:8]).item(), digest(trainer))
    assert isinstance(error, UserError) and "must have shape" in str(error)


@pytest.mark.parametrize("make", COPIES)
def test_trainers_share_a_copy_within_a_structure(make: Any) -> None:
    if make is copy.copy:
        return
    trainer = trainer_of("debug")
    first, second = make([trainer, trainer])
    assert first is second


def test_a_subclass_keeps_its_own_attributes() -> None:
    trainer = trainer_of("debug")
    trainer.notes = {"run": [1, 2]}  # type: ignore[attr-defined]
    for make in COPIES:
        other = make(trainer)
        assert other.notes == {"run": [1, 2]} and other.notes is not trainer.notes


@pytest.mark.parametrize("make", COPIES)
def test_what_training_gives_and_takes(make: Any) -> None:
    trainer = trainer_of("debug")
    history = trainer.fit(X, Y, verbose=0)
    assert make(history) == history and repr(make(history)) == repr(history)
    found = trainer.evaluate(X, Y)
    assert make(found) == found
    for value in (
        loss.CrossEntropyLoss("sum", 3, 0.1),
        loss.BCEWithLogitsLoss(weight=[1.0, 2.0]),
        *OPTIMIZERS,
        optimizer.ClipByGlobalNorm(Adam(0.1), 1.0),
        lr_schedule.CosineAnnealingLR(0.1, 10),
        RunTime(0.1),
    ):
        assert repr(make(value)) == repr(value)
    again = make_trainer(mlp(), make(loss.CrossEntropyLoss()), make(Adam(0.1)), target="debug", seed=2)
    same = make_trainer(mlp(), loss.CrossEntropyLoss(), Adam(0.1), target="debug", seed=2)
    assert trained(again) == trained(same)


@pytest.mark.parametrize("make", COPIES)
def test_tensors(make: Any) -> None:
    for dtype in ("float32", "bfloat16", "bool", "int64"):
        value = pullback.tensor(np.array([[0, 1], [1, 0]]).astype(pullback.runtime.dtype.numpy_dtype(dtype)))
        other = make(value)
        assert (other.dtype, other.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(other.numpy(), value.numpy())
        assert not np.shares_memory(np.asarray(other), np.asarray(value))
