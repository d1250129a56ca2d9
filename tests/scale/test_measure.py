"""A rank's step, measured without the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.ir.errors import UserError
from pullback.runtime.collective_times import NAMES
from pullback.runtime.collectives import LOCAL, piece_length
from pullback.runtime.ranks import using
from pullback.scale.imagined import Imagined
from pullback.scale.measure import measure, run
from pullback.scale.step import STAGES, Begin, Kernel, Step

ROWS, PARAMETERS = 6, 5 * 33 + 33 + 33 * 3 + 3


class Net(nn.Module):
    def __init__(self) -> None:
        self.hidden, self.out = nn.Linear(5, 33), nn.Linear(33, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(x).relu())


def data(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.standard_normal((rows, 5), dtype=np.float32), draw.integers(0, 3, rows)


def trainer(**options: Any) -> Any:
    return pullback.trainer(Net(), "cross_entropy", optim.Adam(lr=1e-2), example=data()[0], seed=1, **options)


@pytest.fixture(scope="module")
def step() -> Step:
    return measure(trainer(), *data(), (2, 4), runs=1)


def elements(step: Step, stage: str, kind: str, ranks: int) -> int:
    found = [c for c in step.program(stage, ranks).collectives if c.kind == kind]
    return sum(sum(c.arrays) for c in found)


def test_what_it_says(step: Step) -> None:
    assert (step.title, step.rows, step.measured) == ("Net", ROWS, (2, 4)) and tuple(step.stages) == STAGES
    assert step.parameters == step.gradients == 4 * PARAMETERS
    assert step.optimizer_states == 8 * PARAMETERS + 24  # m, v; a count and two products
    assert 0 < step.call < step.alone < 10


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_what_is_sent(step: Step, ranks: int) -> None:
    """Gradients are reduced whole, or to pieces; what stages gather are the parameters."""
    for stage in STAGES:
        kind = "reduce_pieces" if stage in ("zero2", "zero3") else "reduce"
        assert elements(step, stage, kind, ranks) - PARAMETERS in (0, 1, 2)  # loss and divisor
    assert elements(step, "data", "gather_pieces", ranks) == 0
    assert elements(step, "zero1", "gather_pieces", ranks) == PARAMETERS
    assert elements(step, "zero2", "gather_pieces", ranks) == PARAMETERS
    assert elements(step, "zero3", "gather_pieces", ranks) in (PARAMETERS, 2 * PARAMETERS)


def test_what_is_held(step: Step) -> None:
    def pieces(ranks: int) -> int:
        return sum(piece_length(n, ranks) for n in (5 * 33, 33, 33 * 3, 3))

    for ranks in (2, 4, 16):
        held = {stage: step.memory(stage, ranks) for stage in STAGES}
        slack = 4 * 4 * 2  # the line through pieces misses each by two elements at most
        assert held["data"].parameters == held["zero2"].parameters == 4 * PARAMETERS
        assert held["data"].optimizer_states == step.optimizer_states
        assert abs(held["zero3"].parameters - 4 * pieces(ranks)) <= slack
        for stage in STAGES[1:]:
            assert abs(held[stage].optimizer_states - (8 * pieces(ranks) + 24)) <= 2 * slack


def test_another_number_measured_itself(step: Step) -> None:
    """What two numbers tell of 8 ranks is what is found for 8."""
    stages = ("zero2", "zero3")
    eight = measure(trainer(), *data(), (8, 8), stages, runs=1)
    for stage in stages:
        found, told = eight.program(stage, 8), step.program(stage, 8)
        assert [type(i) for i in found.items] == [type(i) for i in told.items]
        assert found.collectives == told.collectives
        found_memory, told_memory = eight.memory(stage, 8).total, step.memory(stage, 8).total
        assert told_memory == pytest.approx(found_memory, rel=0.05, abs=64 * 12)  # each of 12 pieces is aligned


def test_buckets() -> None:
    small = measure(trainer(), *data(), (2, 2), ("data",), runs=1, bucket_bytes=4 * 34)
    begins = [i for i in small.stages["data"].items if isinstance(i, Begin)]
    sent = [[n for n, _ in i.arrays] for i in begins if i.arrays != ((1, 1),)]  # but for loss and divisor
    assert sorted(sent) == [[3], [33], [99], [165]]


def test_the_trainer_stays_as_it_is() -> None:
    one, other = trainer(), trainer()
    measure(one, *data(), (2, 4), ("zero3",), runs=2)
    x, y = data()
    assert float(one.update(x, y)) == float(other.update(x, y))
    for name, value in one.params.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other.params[name]))


@pytest.mark.parametrize("stage", STAGES)
def test_ranks_that_are_there_send_the_same(step: Step, stage: str) -> None:
    """What is simulated is what the engine is asked for, kind by kind and in the same order."""
    program = step.program(stage, 2)
    ran = run(trainer(), *data(), 2, stage, steps=2)
    assert len(ran.seconds) == 2 and min(ran.seconds) > 0
    simulated = [(NAMES[c.kind], c.nbytes) for c in program.collectives if c.kind not in LOCAL]
    assert [(c.name, c.bytes) for c in ran.collectives] == simulated


def test_imagined_ranks() -> None:
    with using(Imagined(3)) as ranks:
        assert (ranks.rank, ranks.size, ranks.exchange("x")) == (0, 3, ["x"] * 3)


def test_there_is_nothing_to_measure() -> None:
    with pytest.raises(UserError, match="the interpreter has no kernel times"):
        measure(trainer(target="debug"), *data(), (2, 4))


def test_kernels_have_times(step: Step) -> None:
    for stage in step.stages.values():
        kernels = [i for i in stage.items if isinstance(i, Kernel)]
        assert kernels and all(k.seconds >= 0 and math.isfinite(k.seconds) for k in kernels)
        assert sum(k.seconds for k in kernels) > 0
