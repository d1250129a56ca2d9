"""What else a trainer over several ranks does: values in and out, predictions, callbacks, copies, exports."""

from __future__ import annotations

import copy
import logging
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pullback.callbacks import Callback, CSVLogger, EarlyStopping, LambdaCallback, ReduceLROnPlateau

import pullback
from pullback import nn, optim
from pullback.distributed import exchange, is_first, rank
from pullback.ir.errors import UserError
from pullback.runtime.ranks import current
from tests.relax.training.several import (
    STAGES,
    X,
    Y,
    arrays,
    assert_alike,
    assert_same_on_ranks,
    mlp,
    on_ranks,
    state_of,
    trainer_of,
)


def averaging() -> Any:
    return optim.EMA(optim.Adam(optim.RunTime(1e-2)), 0.9)


def trained(distributed: Any, optimizer: Any = averaging, **options: Any) -> Any:
    trainer = trainer_of(distributed, optimizer, **options)
    trainer.fit(X, Y, batch_size=8, verbose=0)
    return trainer


def losses_of(trainer: Any) -> list[float]:
    return trainer.fit(X, Y, batch_size=8, verbose=0)["loss"]


@pytest.mark.parametrize("stage", STAGES)
def test_predictions_and_values(stage: str) -> None:
    def found(distributed: Any) -> Any:
        trainer = trained(distributed)
        return {
            "at once": np.array(trainer.predict(X)),
            "in batches": np.array(trainer.predict(X, batch_size=5)),
            "averaged": np.array(trainer.predict(X[:3], averaged=True)),
            "loss": trainer.evaluate(X, Y, averaged=True).loss,
            "averages": arrays(trainer.averages),
            "one value": np.array(trainer.value_of("0.weight")),
            "states": [np.array(v) for v in trainer.optimizer_states],
            "numbers": [trainer.steps, trainer.epochs, trainer.hyperparameters["lr"]],
            "names": list(trainer.params),
        }

    assert_same_on_ranks(2, found, stage, rtol=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_values_that_are_loaded_are_the_first_ranks(stage: str) -> None:
    def load(distributed: Any) -> Any:
        numbers = np.random.default_rng(5 + rank())  # others differ
        weight, moment = (numbers.standard_normal((8, 6)).astype(np.float32) for _ in range(2))
        trainer = trainer_of(distributed, averaging)
        trainer.load_params({"0.weight": weight})
        trainer.load_optimizer_state_dict({"m of 0.weight": moment})
        trainer.load_state_dict({"0.bias": numbers.standard_normal(8)}, strict=False)
        trainer.set_hyperparameter("lr", 0.02)
        return arrays(trainer.params), losses_of(trainer), state_of(trainer)

    assert_same_on_ranks(2, load, stage, rtol=1e-4)


def test_initial_values_are_the_first_ranks() -> None:
    def begin(distributed: Any) -> Any:
        net = mlp()
        net[0].weight.data = np.random.default_rng(rank()).standard_normal((8, 6)).astype(np.float32)
        trainer = trainer_of(distributed, net=lambda: net)
        return arrays(trainer.params), arrays(net.state_dict())

    assert_same_on_ranks(2, begin, "zero3")


def test_weights_drawn_without_a_seed_are_the_same_on_all_ranks() -> None:
    def draw() -> Any:
        trainer = trainer_of("data")
        trainer.xavier_uniform_init_params()
        return arrays(trainer.params)

    first, second = on_ranks(2, draw)
    assert_alike(second, first, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_trained_changes(stage: str) -> None:
    def train(distributed: Any) -> Any:
        trainer = trained(distributed)
        trainer.freeze("0.*")
        losses = losses_of(trainer)
        trainer.unfreeze()
        return losses, losses_of(trainer), state_of(trainer)

    assert_same_on_ranks(2, train, stage, rtol=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_copies_go_on_alike(stage: str) -> None:
    def train(distributed: Any) -> Any:
        trainer = trained(distributed)
        copies = [copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer)), trainer.without_ranks()]
        return [losses_of(one) for one in (trainer, *copies)]

    assert_same_on_ranks(2, train, stage, rtol=1e-4)


@pytest.mark.parametrize("optimizer", [averaging, lambda: optim.Adam(1e-2)], ids=["set", "compiled in"])
def test_learning_rates_are_found(optimizer: Any) -> None:
    def find(distributed: Any) -> Any:
        return trainer_of(distributed, optimizer).lr_find(X, Y, steps=12, batch_size=8).losses

    assert_same_on_ranks(2, find, "zero1", rtol=1e-4)


def test_torch_gets_and_gives_values() -> None:
    torch = pytest.importorskip("torch")

    def exchanged(distributed: Any) -> Any:
        trainer = trained(distributed, lambda: optim.Adam(1e-2))
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        trainer.to_torch(net, optimizer)
        other = trainer_of(distributed, lambda: optim.Adam(1e-2))
        other.from_torch(net, optimizer)
        return net[0].weight.detach().numpy().copy(), losses_of(other)

    assert_same_on_ranks(2, exchanged, "zero2", rtol=1e-4)


def test_an_adapter_is_written_once(tmp_path: Path) -> None:
    def adapt(distributed: Any) -> Any:
        update = {"adapt": nn.LoRA(rank=2, targets=["0", "2"])}
        trainer = trained(distributed, lambda: optim.Adam(1e-2), **update)
        file = tmp_path / f"{distributed}.safetensors"
        trainer.save_adapter(file)
        other = trainer_of(distributed, lambda: optim.Adam(1e-2), **update)
        other.load_adapter(file)
        return np.array(other.predict(X)), np.array(other.without_updates().predict(X))

    assert_same_on_ranks(2, adapt, "zero3", rtol=1e-4, atol=1e-5)


def test_a_file_that_cannot_be_written_is_an_error_everywhere(tmp_path: Path) -> None:
    def save() -> str:
        trainer = trainer_of("data", adapt=nn.LoRA(rank=2, targets=["0"]))
        with pytest.raises(UserError) as error:
            trainer.save_adapter(tmp_path / "missing" / "adapter.safetensors")
        losses_of(trainer)  # all ranks go on
        return error.value.message

    first, second = on_ranks(2, save)
    assert "cannot be written" in first and second == f"rank 0: {first}"


def test_callbacks_see_the_same_after_the_same_steps() -> None:
    seen: dict[int, list[Any]] = {0: [], 1: []}

    class Watch(Callback):
        def on_batch_end(self, step: int, logs: dict[str, float]) -> None:
            seen[rank()].append((step, logs["loss"]))
            if step > 40 and is_first():
                time.sleep(0.02)  # one rank is slow
            if step > 90:
                self.trainer.stop_training = True

    def train() -> tuple[int, Any]:
        trainer = trainer_of("data")
        history = trainer.fit(X, Y, batch_size=8, epochs=1000, verbose=0, callbacks=Watch())
        return trainer.steps, history["loss"]

    (steps, losses), (others, other_losses) = on_ranks(2, train)
    assert steps == others and losses == other_losses and steps < 400
    assert seen[0] == seen[1] and len(seen[0]) > 5


def test_decisions_between_epochs() -> None:
    def train(distributed: Any) -> Any:
        trainer = trainer_of(distributed, averaging)
        callbacks = [EarlyStopping(patience=2, min_delta=0.02, restore_best=True), ReduceLROnPlateau(patience=1)]
        history = trainer.fit(
            X, Y, batch_size=8, epochs=40, verbose=0, validation=(X[:9], Y[:9]), callbacks=callbacks
        )  # fmt: skip
        return len(history), history["val_loss"], history["lr"], history.stopped_because, arrays(trainer.params)

    assert_same_on_ranks(2, train, "zero3", rtol=1e-3, atol=1e-4)


def test_what_writes_is_called_on_the_first_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def train() -> None:
        everywhere = LambdaCallback(on_epoch_end=lambda epoch, logs: calls.append(rank()))
        trainer_of("data").fit(
            X, Y, batch_size=8, epochs=2, verbose=2, callbacks=[CSVLogger(tmp_path / "log.csv"), everywhere],
            logger=logging.getLogger("training"),
        )  # fmt: skip

    with caplog.at_level(logging.INFO, "training"):
        on_ranks(2, train)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert len(caplog.records) == 2
    assert sorted(calls) == [0, 0, 1, 1]


def test_the_slow_rank_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def train() -> Any:
        trainer = trainer_of("data")
        trainer._clock.add(1000.0 if rank() == 1 else 10.0, 1)  # a step before
        trainer.fit(X, Y, batch_size=8, verbose=2)
        return trainer.rank_times()

    times, others = on_ranks(2, train)
    assert times == others and times.slowest == 1 and times.steps == 4
    assert times.seconds[0] < 10 < times.seconds[1]
    assert f"{times.seconds[1] * 1e3:.2f} ms on rank 1, the slowest" in times.line
    assert times.line in capsys.readouterr().out
    assert len(times.table().rows) == 2


def test_a_rank_knows_how_long_it_has_waited() -> None:
    def wait() -> float:
        if rank() == 1:
            time.sleep(0.05)
        exchange(None)
        return current().waited()

    first, second = on_ranks(2, wait)
    assert first > 0.04 and first > second


def test_a_library_is_written_once(tmp_path: Path) -> None:
    def export(distributed: Any) -> Any:
        trainer = trained(distributed, lambda: optim.Adam(1e-2))
        made = trainer.export(tmp_path / f"{distributed}", batch_size=8)
        return made.instance_bytes, made.name, exchange(made.folder.name)[0] if distributed else "None"

    expected = export(None)
    for found in on_ranks(2, lambda: export("zero3")):
        assert found[:2] == expected[:2] and found[2] == "zero3"
    assert (tmp_path / "zero3" / "manifest.json").exists()


def test_a_summary_is_of_a_ranks_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the rows, and of the optimizer's states."""

    def look(distributed: Any) -> Any:
        trainer = trainer_of(distributed, target="llvm")
        found = trainer.summary(8)
        return found.rows_of_batch, found.rows[1].flops, repr(trainer)

    rows, flops, _ = look(None)
    capsys.readouterr()
    for found, own, text in on_ranks(2, lambda: look("zero1")):
        assert found * 2 == rows == 8 and flops is not None and own < 0.6 * flops
        assert text.endswith("steps: 0; ranks: 2)")
    assert capsys.readouterr().out.count("A step of 4 rows") == 1


def test_a_joined_training_is_of_one_process() -> None:
    def join() -> str:
        with pytest.raises(UserError) as error:
            pullback.training.JoinRun(rows=8, batch_size=8)(trainer_of("data").mod)
        return error.value.message

    message = "JoinRun joins a training of one process, and this one is that of 2 ranks"
    assert on_ranks(2, join) == [message] * 2
