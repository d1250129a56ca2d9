"""What does not fit between ranks is one message that names ranks and values; nothing hangs."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pullback.callbacks import Callback

from pullback import nn, optim
from pullback.distributed import Distribution, RankError, exchange, is_first, rank, run_local
from pullback.ir.errors import ArgumentError, PullbackError, UserError
from pullback.relax.training.together import agree, on_first, raise_first
from pullback.runtime.ranks import current
from tests.relax.training.several import T, X, Y, on_ranks, trainer_of


def error_of(ranks: int, function: Callable[[], Any]) -> PullbackError:
    with pytest.raises(PullbackError) as error:
        on_ranks(ranks, function)
    return error.value


def batches(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    order = np.random.default_rng(seed).permutation(len(X))
    return [(X[order[k : k + 8]], Y[order[k : k + 8]]) for k in (0, 8)]


DIFFERENT: dict[str, tuple[Callable[[], Any], str]] = {
    "optimizer": (
        lambda: trainer_of("data", lambda: optim.Adam(1e-2 + 1e-2 * rank())),
        r"the optimizer: Adam\(lr=0.01, .* on rank 0, Adam\(lr=0.02, .* on rank 1",
    ),
    "layer": (
        lambda: trainer_of("data", net=lambda: nn.Sequential(nn.Linear(6, 8 + rank()), nn.Linear(8 + rank(), 3))),
        r"parameters and states: 0.weight R.Tensor\(\(8, 6\).* on rank 0, 0.weight R.Tensor\(\(9, 6\)",
    ),
    "activation": (
        lambda: trainer_of("data", net=lambda: nn.Sequential(nn.Linear(6, 3), (nn.ReLU, nn.Tanh)[rank()]())),
        "digests of the model: .* on rank 0, .* on rank 1",
    ),
    "loss": (
        lambda: trainer_of("data", loss=lambda: nn.CrossEntropyLoss(label_smoothing=0.1 * rank())),
        "the loss: .* on rank 0, .*0.1.* on rank 1",
    ),
    "precision": (
        lambda: trainer_of("data", lambda: optim.SGD(0.1), precision=(None, "bfloat16")[rank()]),
        "the precision: float32 on rank 0, bfloat16 on rank 1",
    ),
    "stage": (
        lambda: trainer_of(("data", "zero1")[rank()]),
        "the distribution: .*'stage': 0.* on rank 0, .*'stage': 1",
    ),
    "seed": (lambda: trainer_of("data", seed=rank()), "the seed: 0 on rank 0, 1 on rank 1"),
    "rows": (
        lambda: trainer_of("data").fit(X[: 22 - rank()], Y[: 22 - rank()], batch_size=8, verbose=0),
        "the data set's rows: 22 on rank 0, 21 on rank 1",
    ),
    "values": (
        lambda: trainer_of("data").fit(X + rank(), Y, batch_size=8, verbose=0),
        r"the input: float32 \(6,\) \w+ on rank 0, float32 \(6,\) \w+ on rank 1",
    ),
    "dtype": (
        lambda: trainer_of("data").fit(X.astype(("f4", "f2")[rank()]), Y, batch_size=8, verbose=0, cast=True),
        r"the input: float32 .* on rank 0, float16",
    ),
    "validation": (
        lambda: trainer_of("data").fit(X, Y, batch_size=8, verbose=0, validation=(X, np.roll(Y, rank()))),
        "the targets, in validation: .* on rank 0",
    ),
    "batch size": (
        lambda: trainer_of("data").fit(X, Y, batch_size=8 + 2 * rank(), verbose=0),
        "the size of batches: 8 on rank 0, 10 on rank 1",
    ),
    "epochs": (
        lambda: trainer_of("data").fit(X, Y, batch_size=8, epochs=1 + rank(), verbose=0),
        "the options of fit: epochs=1, .* on rank 0, epochs=2",
    ),
    "order": (
        lambda: trainer_of("data").fit(batches(rank()), verbose=0),
        "the targets of the first batch: .* on rank 0",
    ),
    "callbacks": (
        lambda: trainer_of("data").fit(X, Y, batch_size=8, verbose=0, callbacks=[Callback()] * rank()),
        "callbacks: none on rank 0, .*callbacks: Callback on rank 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_differ(name: str) -> None:
    function, message = DIFFERENT[name]
    error = error_of(2, function)
    assert isinstance(error, RankError)
    assert re.search(message, error.message), error.message
    assert error.hint and "all ranks" in error.hint


def test_ranks_that_are_alike_agree() -> None:
    def values(own: int) -> dict[str, str]:
        return {"a number": "1", "another": str(own)}

    on_ranks(4, lambda: agree(current(), values(2)))
    error = error_of(4, lambda: agree(current(), values(max(0, rank() - 1))))
    assert error.message == "another: 0 on rank 0, 1 on rank 2 (and others on 1 more ranks)"
    missing = error_of(2, lambda: agree(current(), {"a": "1"} if is_first() else {}))
    assert missing.message == "a: 1 on rank 0, missing on rank 1"


def test_batches_that_ranks_cannot_divide() -> None:
    error = error_of(4, lambda: trainer_of("data").fit(X, Y, batch_size=6, verbose=0))
    assert isinstance(error, ArgumentError)
    assert error.message == (
        "a batch of 6 rows cannot be divided among 4 ranks: batch_size is that of all ranks together"
    )
    assert error.hint == "batch_size=4 or 8 can"
    error = error_of(4, lambda: trainer_of("data").fit(X, Y, batch_size=3, verbose=0))
    assert error.hint == "batch_size=4 can"
    micro = Distribution(micro_batches=2)
    error = error_of(2, lambda: trainer_of(micro).fit(X, Y, batch_size=6, verbose=0))
    assert "2 ranks of 2 micro-batches each" in error.message and error.hint == "batch_size=4 or 8 can"


@pytest.mark.parametrize("given", ["ddp", 1, "Data", True, ["data"]])
def test_no_distribution(given: Any) -> None:
    with pytest.raises(ArgumentError, match="distributed must be one of 'data', 'zero1', 'zero2', 'zero3'"):
        trainer_of(given)


def test_a_step_that_fails_on_one_rank_ends_all() -> None:
    """A label of rank 1's rows is out of range: it tells which, the others that it failed."""
    told: dict[int, str] = {}

    def train() -> None:
        labels = Y.copy()
        labels[7] = 3
        try:
            trainer_of("data").update(X[:8], labels[:8])
        except UserError as error:
            told[rank()] = f"{type(error).__name__}: {error.message}"
            raise

    error = error_of(2, train)
    assert isinstance(error, ArgumentError) and "from 0 to 2, got 3" in error.message
    assert told[1].startswith(
        "ArgumentError: the targets must hold classes from 0 to 2, got 3 at index (7,)"
    )  # of the batch
    assert told[0].startswith("RankError: rank 1 failed: ")


def test_a_callback_that_fails_on_one_rank_ends_all() -> None:
    class Fails(Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            if rank() == 1:
                raise ValueError("no space left")

    with pytest.raises(ValueError, match="no space left"):
        on_ranks(2, lambda: trainer_of("data").fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=Fails()))


def test_data_that_cannot_be_read_on_one_rank_ends_all() -> None:
    """The others wait in a step, of which it has no rows."""

    def train() -> None:
        def some() -> Any:
            yield X[:8], Y[:8]
            yield X[8:16], Y[8:16]
            if rank() == 1:
                raise OSError("the file is gone")
            yield X[:8], Y[:8]

        trainer_of("data").fit(some, verbose=0)

    with pytest.raises(OSError, match="the file is gone"):
        on_ranks(2, train)


def test_an_interrupt_of_one_rank_ends_all() -> None:
    told: list[str] = []

    class Interrupts(Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            if rank() == 1 and epoch == 2:
                raise KeyboardInterrupt

    def train() -> None:
        try:
            trainer_of("zero2").fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=Interrupts())
        except RankError as error:
            told.append(error.message)
            raise

    with pytest.raises(KeyboardInterrupt):
        on_ranks(2, train)
    assert told == ["rank 1 failed: KeyboardInterrupt"]


def test_a_loss_that_is_no_number_is_told_alike_on_all_ranks() -> None:
    """Row 20 is one of rank 1's; afterwards all go on."""
    x = X.copy()
    x[20] = np.nan

    def train() -> tuple[str, list[float]]:
        trainer = trainer_of("zero3")
        with pytest.raises(UserError) as error:
            trainer.fit(x, Y, batch_size=8, verbose=0, detect_nan=True, shuffle=False)
        return error.value.message, trainer.fit(X, Y, batch_size=8, verbose=0)["loss"]

    (first, losses), (second, others) = on_ranks(2, train)
    own = "the loss of step 3 is nan: the input holds NaN in row 20, at index (0,)"
    assert (first, second) == (f"rank 1: {own}", own)
    assert losses == others


def test_an_op_that_makes_the_loss_no_number_is_named() -> None:
    def train() -> str:
        trainer = trainer_of("data", lambda: optim.SGD(1e38), loss="mse")
        with pytest.raises(UserError) as error:
            trainer.fit(X, T, batch_size=8, epochs=5, verbose=0, detect_nan=True)
        return error.value.message

    first, second = on_ranks(2, train)
    assert first.startswith("the loss of step") and second == f"rank 0: {first}"


def test_a_trainer_of_other_ranks() -> None:
    """A pickle of two ranks, in one process: it says how to go on."""
    found = on_ranks(2, lambda: (pickle.dumps(trainer_of("data")), trainer_of("zero1")))
    trainer = pickle.loads(found[0][0])
    with pytest.raises(RankError, match="made for 2 ranks, and here there is one alone") as error:
        trainer.fit(X, Y, batch_size=8, verbose=0)
    assert "load(path)" in str(error.value.hint)
    with pytest.raises(RankError, match="made for 2 ranks, and here there is one alone"):
        dict(found[0][1].optimizer_state_dict())


def test_a_copy_does_not_know_its_model() -> None:
    def ask() -> None:
        pickle.loads(pickle.dumps(copy.deepcopy(trainer_of("data")))).without_ranks()

    assert "does not know its model" in error_of(2, ask).message


def test_what_the_first_rank_does_alone() -> None:
    done: list[int] = []

    def act(fails: bool) -> Any:
        def action() -> str:
            done.append(rank())
            if fails:
                raise OSError("disk full")
            return "written"

        try:
            return on_first(current(), action)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    assert on_ranks(3, lambda: act(False)) == ["written"] * 3 and done == [0]
    found = on_ranks(2, lambda: act(True))
    assert found == ["OSError: disk full", "RankError: rank 0: OSError: disk full"]


def test_the_first_error_of_several_is_raised() -> None:
    def check() -> Any:
        def fails() -> None:
            if rank() > 0:
                raise UserError(f"here {rank()}", hint="there")

        with pytest.raises(UserError) as error:
            raise_first(current(), fails)
        return type(error.value).__name__, error.value.message, error.value.hint

    first, second, third = run_local(3, lambda _: check())
    assert second == ("UserError", "here 1", "there")
    assert first == third == ("RankError", "rank 1: here 1", "there")
    assert on_ranks(2, lambda: exchange(raise_first(current(), lambda: None))) == [[None, None]] * 2
