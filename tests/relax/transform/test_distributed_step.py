"""The step of several ranks against that of one process with the same batch, in the interpreter.

Losses and what is kept agree to rounding; those of as many shards, however they lie on ranks, agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn, optim, relax
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relax.convention import STEP
from pullback.relax.training.distribution import DataParallel, Distribution, Mesh, ZeRO
from pullback.relax.training.interface import Interface
from pullback.relax.training.rebatch import rebatched
from pullback.relax.training.shares import Share
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.distributed import Distributed, held_as_pieces
from pullback.relax.transform.join_step import JoinStep
from pullback.runtime.collectives import joined
from pullback.runtime.ranks import current, run_local
from tests.helpers import round_trip

ROWS, STEPS = 8, 4
Batches = Sequence[tuple[np.ndarray, np.ndarray]]


def batches(seed: int = 0, classes: int = 3) -> Batches:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((ROWS, 6)).astype(np.float32), rng.integers(0, classes, ROWS)) for _ in range(STEPS)]


def trainer_of(optimizer: Any, loss: Any = "cross_entropy", net: Any = None, **options: Any) -> Trainer:
    net = net or nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    example = np.zeros((ROWS, 6), np.float32)
    return pullback.trainer(net, loss, optimizer, example=example, target="debug", **options)


def alone(trainer: Trainer, data: Batches) -> tuple[list[float], list[np.ndarray]]:
    """Losses, and what the trainer keeps afterwards."""
    losses = [float(trainer.update(x, y).numpy()) for x, y in data]
    return losses, [np.asarray(v).copy() for v in trainer._values.all]


def on_ranks(
    trainer: Trainer, data: Batches, ranks: int, shards: int = 1, stage: int = 0, target: str = "debug", **options: Any
) -> tuple[list[float], list[np.ndarray]]:
    """The same on several ranks, with so many shards each; pieces are joined."""
    module = DataParallel(Mesh(data=ranks), micro_batches=shards, **options)(trainer.mod)
    module = ZeRO(stage)(module) if stage else module
    interface, held = Interface.of(module), held_as_pieces(module)
    rows = len(data[0][0]) // ranks
    if shards > 1:
        module = rebatched(module, interface, rows // shards, True)
    executable = pullback.compile(module, target)
    roles = Interface.of(module).convention[STEP]

    def train(rank: int) -> tuple[list[float], dict[Any, np.ndarray]]:
        vm = relax.VirtualMachine(executable, pullback.cpu())
        kept = {}
        for value, tensor in zip(interface.convention.kept, trainer._values.all, strict=True):
            array = np.array(tensor)
            if value in held:
                (array,) = current().collective("piece", [array], [held[value].shape])
            kept[value] = pullback.tensor(array)
        losses = []
        for x, y in data:
            own = slice(rank * rows, (rank + 1) * rows)
            given = {**kept, ("input", 0): pullback.tensor(x[own]), ("target", 0): pullback.tensor(y[own])}
            found = vm[STEP](*roles.arrange(given))
            kept |= {v: r for v, r in zip(roles.returns, found, strict=True) if v in kept}
            losses.append(float(found[0].numpy()))
        return losses, {v: t.numpy().copy() for v, t in kept.items()}

    results = run_local(ranks, train)
    assert all(losses == results[0][0] for losses, _ in results), "the loss is that of all ranks"
    values = []
    for value, tensor in zip(interface.convention.kept, trainer._values.all, strict=True):
        several = [kept[value] for _, kept in results]
        if value not in held:
            assert all(np.array_equal(a, several[0]) for a in several), f"{value} differs between ranks"
        values.append(joined(several, tensor.shape) if value in held else several[0])
    return results[0][0], values


def assert_close(found: Any, wanted: Any, rtol: float = 2e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found[0], wanted[0], rtol=rtol)
    for a, b in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


ADAMW = lambda: optim.AdamW(1e-2)  # noqa: E731


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("ranks", "shards"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_losses_and_values_are_those_of_one_process(stage: int, ranks: int, shards: int) -> None:
    data, trainer = batches(), trainer_of(optim.ClipByGlobalNorm(ADAMW(), 0.5))
    found = on_ranks(trainer, data, ranks, shards, stage)
    assert_close(found, alone(trainer, data))


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_shards_decide_alone(stage: int, target: str) -> None:
    """4 ranks, 2 of two shards, 1 of four: the same bits."""
    data, trainer = batches(), trainer_of(optim.ClipByGlobalNorm(ADAMW(), 0.5))
    several = [on_ranks(trainer, data, ranks, 4 // ranks, stage, target, deterministic=True) for ranks in (4, 2, 1)]
    assert several[0][0] == several[1][0] == several[2][0]
    for a, b, c in zip(*(values for _, values in several), strict=True):
        assert np.array_equal(a, b) and np.array_equal(b, c)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize(("ranks", "shards"), [(2, 1), (4, 1), (2, 2), (1, 4)])
def test_batch_norm_takes_the_statistics_of_all_rows(stage: int, ranks: int, shards: int) -> None:
    data, trainer = batches(), trainer_of(ADAMW(), net=normed())
    assert_close(on_ranks(trainer, data, ranks, shards, stage), alone(trainer, data), 1e-4, 2e-5)


@pytest.mark.parametrize(("ranks", "shards"), [(2, 1), (4, 1), (2, 2), (1, 4)])
def test_batch_norm_of_ranks_that_count_differently(ranks: int, shards: int) -> None:
    """A row takes part in the losses of other ranks, by way of the statistics: these weigh as much as theirs."""
    data = [(x, np.where(np.arange(ROWS) < 3, 1, y)) for x, y in batches()]
    trainer = trainer_of(ADAMW(), nn.CrossEntropyLoss(ignore_index=1), net=normed())
    assert_close(on_ranks(trainer, data, ranks, shards), alone(trainer, data), 1e-4, 2e-5)


def test_statistics_of_each_shard() -> None:
    """Moving statistics are the mean of those of the shards: the same on all ranks."""
    data, trainer = batches()[:1], trainer_of(optim.SGD(0.0), net=normed())
    losses, values = on_ranks(trainer, data, 4, sync_batch_norm=False)
    wanted = [np.array(v) for v in trainer._values.all]
    x = data[0][0] @ wanted[0].T
    means = [x[2 * r : 2 * r + 2].mean(0) for r in range(4)]
    moving = next(v for v, s in zip(values, trainer._interface.kept, strict=True) if s.name == "1.running_mean")
    np.testing.assert_allclose(moving, 0.1 * np.mean(means, axis=0), rtol=1e-5)
    assert losses != on_ranks(trainer, data, 4)[0]


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize(("ranks", "shards"), [(2, 1), (4, 1), (2, 2), (1, 4)])
def test_what_is_dropped_does_not_depend_on_the_number_of_ranks(stage: int, ranks: int, shards: int) -> None:
    net = nn.Sequential(
        nn.Linear(6, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 16), nn.Dropout(0.3), nn.Linear(16, 3)
    )
    data, trainer = batches(), trainer_of(ADAMW(), net=net)
    assert_close(on_ranks(trainer, data, ranks, shards, stage), alone(trainer, data))


def losses_with_counts() -> list[Any]:
    return [
        nn.CrossEntropyLoss(ignore_index=1),
        nn.CrossEntropyLoss(weight=np.array([1.0, 0.2, 3.0], np.float32)),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("stage", [0, 2])
def test_ranks_weigh_what_their_rows_count(number: int, ranks: int, stage: int) -> None:
    data = [(x, np.where(np.arange(ROWS) < 3, 1, y)) for x, y in batches()]  # the first ranks count less, or nothing
    trainer = trainer_of(optim.SGD(0.1), losses_with_counts()[number])
    found = on_ranks(trainer, data, ranks, stage=stage)
    assert_close(found, alone(trainer, data))


def test_a_rank_that_counts_nothing_changes_nothing() -> None:
    data = [(x, np.where(np.arange(ROWS) < 4, 1, y)) for x, y in batches()]
    trainer = trainer_of(optim.SGD(0.1), nn.CrossEntropyLoss(ignore_index=1))
    assert_close(on_ranks(trainer, data, 4), alone(trainer, data))


def optimizers() -> dict[str, Callable[[], Any]]:
    return {
        "sgd": lambda: optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        "adam": lambda: optim.Adam(1e-2, amsgrad=True),
        "adamax": lambda: optim.Adamax(1e-2),
        "nadam": lambda: optim.NAdam(1e-2),
        "radam": lambda: optim.RAdam(1e-2),
        "rmsprop": lambda: optim.RMSprop(1e-2, centered=True, momentum=0.5),
        "adagrad": lambda: optim.Adagrad(1e-2),
        "adadelta": lambda: optim.Adadelta(),
        "lion": lambda: optim.Lion(1e-3),
        "lamb": lambda: optim.LAMB(1e-2),
        "lars": lambda: optim.LARS(1e-1),
        "accumulate": lambda: optim.Accumulate(ADAMW(), 2),
        "ema": lambda: optim.EMA(ADAMW(), 0.9),
        "scale": lambda: optim.DynamicLossScale(ADAMW(), init_scale=8.0, growth_interval=2),
        "value": lambda: optim.ClipByValue(ADAMW(), 0.01),
        "infinity": lambda: optim.ClipByGlobalNorm(ADAMW(), 0.01, norm_type=float("inf")),
    }


@pytest.mark.parametrize("name", optimizers())
def test_optimizers_on_pieces(name: str) -> None:
    """Three ranks: no parameter can be divided evenly, so what lies behind the last element takes part."""
    data = [(x[:6], y[:6]) for x, y in batches()]
    trainer = trainer_of(optimizers()[name]())
    assert_close(on_ranks(trainer, data, 3, stage=2), alone(trainer, data), 1e-4)


def test_an_optimizer_that_cannot_be_divided_is_refused() -> None:
    trainer = trainer_of(optim.Adafactor(1e-2))
    module = DataParallel(Mesh(data=2))(trainer.mod)
    with pytest.raises(UserError, match=r"Adafactor cannot be divided among ranks: its update takes mean"):
        ZeRO(2)(module)
    assert_close(on_ranks(trainer, batches(), 2), alone(trainer, batches()))


@pytest.mark.parametrize("stage", [0, 3])
def test_parameters_that_are_not_trained(stage: int) -> None:
    data, trainer = batches(), trainer_of(ADAMW(), trainable=["2.*"])
    assert_close(on_ranks(trainer, data, 2, stage=stage), alone(trainer, data))


@pytest.mark.parametrize("stage", [0, 3])
def test_mixed_precision(stage: int) -> None:
    data, trainer = batches(), trainer_of(ADAMW(), precision="bfloat16")
    assert_close(on_ranks(trainer, data, 2, stage=stage), alone(trainer, data), 2e-2, 1e-3)


def test_small_buckets() -> None:
    """Each gradient by itself: the same bits."""
    data, trainer = batches(), trainer_of(ADAMW())
    many, few = (on_ranks(trainer, data, 2, stage=2, bucket_bytes=size) for size in (1, 1 << 20))
    assert many[0] == few[0]
    assert all(np.array_equal(a, b) for a, b in zip(many[1], few[1], strict=True))


def texts(module: IRModule) -> str:
    return JoinStep()(module).script()


def test_what_the_step_sends() -> None:
    """Stage by stage: whole gradients, then pieces. A loss's divisor is sent where it depends on the targets."""
    net = nn.Linear(6, 3)
    trainer = trainer_of(ADAMW(), "mse", net)
    module = DataParallel(Mesh(data=2))(trainer.mod)
    steps = [texts(module), *(texts(ZeRO(s)(module)) for s in (1, 2, 3))]
    counts = [
        [text.count(f"R.ccl.{op}(") for op in ("reduce", "allreduce", "reduce_pieces", "gather_pieces")]
        for text in steps
    ]
    assert counts == [[1, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
    weighted = trainer_of(ADAMW(), nn.CrossEntropyLoss(ignore_index=1))
    text = texts(DataParallel(Mesh(data=2))(weighted.mod))
    assert text.count("R.ccl.reduce(") == 1 and "divisor_of_all = R.ccl.allreduce(" in text


def test_modules_print_and_parse() -> None:
    round_trip(ZeRO(3)(DataParallel(Mesh(data=2))(trainer_of(ADAMW()).mod)))


def test_how_a_batch_is_divided() -> None:
    made = Distributed(4, micro_batches=2)
    assert [made.of_batch(rows).batch for rows in (16, 8, 7, 3)] == ["even", "even", "uneven", "same"]
    assert Distributed(4, draws=True).of_batch(7).batch == "same"
    assert [Share(r, 4, made).of(7).rows for r in range(4)] == [2, 2, 2, 1] and made.of_batch(7).micro_batches == 1
    assert Share(0, 4, made).of(16).rows == 4 and made.of_batch(16).micro_batches == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mesh(data=0), "data must be a number of ranks"),
        (lambda: Distribution(stage=4), "stage must be one of"),
        (lambda: Distribution(micro_batches=0), "micro_batches must be an int"),
        (lambda: Distribution.of("zero4"), "distributed must be one of 'data', 'zero1', 'zero2', 'zero3'"),
    ],
)
def test_options_are_checked(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_passes_are_applied_in_order() -> None:
    trainer = trainer_of(ADAMW())
    with pytest.raises(UserError, match="the module is not distributed"):
        ZeRO(1)(trainer.mod)
    with pytest.raises(UserError, match="DataParallel takes a trainer module"):
        DataParallel(Mesh(data=2))(IRModule({}))
