"""Rows in a pipeline (`schedule/reduction/pipeline.py`): the same bits as one row after another, and still in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule import order
from pullback.schedule.choose import lower
from pullback.schedule.group import Machine
from pullback.schedule.reduction import pipeline
from pullback.schedule.reduction.pipeline import Pipeline
from pullback.tir.access_order import reads_come_first
from pullback.tir.in_place import may_share, share
from tests.schedule.native import natively
from tests.schedule.test_reduction import over
from tests.schedule.test_schedules import group_of, run

Outputs = list[te.Tensor]


@pytest.fixture
def made(monkeypatch) -> list[Pipeline]:
    """The pipelines that were made: of small arrays, too."""
    found: list[Pipeline] = []
    make = Pipeline.made

    def recorded(*arguments) -> Pipeline:
        found.append(make(*arguments))
        return found[-1]

    monkeypatch.setattr(pipeline, "FAR", 1024)
    monkeypatch.setattr(Pipeline, "made", staticmethod(recorded))
    return found


def statistics(x: te.Tensor) -> Outputs:
    """The mean of each row and the mean of the squares of differences from it."""
    rows, columns = x.shape
    total = over("sum", x, 1, "total")
    mean = te.compute((rows,), lambda i: total[i] * (1.0 / columns), "mean")
    squares = te.compute(x.shape, lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]), "squares")
    sum_of_squares = over("sum", squares, 1, "sum_of_squares")
    return [mean, te.compute((rows,), lambda i: sum_of_squares[i] * (1.0 / columns), "variance")]


def norm(x: te.Tensor) -> te.Tensor:
    mean, variance = statistics(x)
    gamma = te.placeholder(x.shape[1:], name="gamma")
    scale = te.compute(x.shape[:1], lambda i: tir.call("rsqrt", variance[i] + 1e-5), "scale")
    return te.compute(x.shape, lambda i, j: (x[i, j] - mean[i]) * scale[i] * gamma[j], "norm")


def norm_of_a_sum(x: te.Tensor) -> Outputs:
    """What is written in the first stage is read in the others."""
    y = te.placeholder(x.shape, name="y")
    both = te.compute(x.shape, lambda i, j: x[i, j] + y[i, j], "both")
    return [both, norm(both)]


def gradient(x: te.Tensor) -> Outputs:
    """Of a norm: two sums in each of the first two stages, a value of the first that is read in the last."""
    dy = te.placeholder(x.shape, name="dy")
    mean, variance = statistics(x)
    products = te.compute(x.shape, lambda i, j: dy[i, j] * (x[i, j] - mean[i]), "products")
    along, whole = over("sum", products, 1, "along"), over("sum", dy, 1, "whole")
    return [
        te.compute(x.shape, lambda i, j: dy[i, j] - whole[i] - (x[i, j] - mean[i]) * along[i] * variance[i], "gradient")
    ]


def four_stages(x: te.Tensor) -> Outputs:
    """A value that is kept for as many rounds as there are."""
    mean, variance = statistics(x)
    cubes = te.compute(x.shape, lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - variance[i]) * x[i, j], "cubes")
    skew = over("sum", cubes, 1, "skew")
    return [te.compute(x.shape, lambda i, j: x[i, j] * skew[i] + mean[i], "out"), variance]


CASES: dict[str, Callable[[te.Tensor], Outputs]] = {
    "statistics": statistics,
    "norm": lambda x: [norm(x)],
    "norm of a sum": norm_of_a_sum,
    "gradient": gradient,
    "four stages": four_stages,
}
SHAPES = {(256, 48): 4, (258, 500): 2, (170, 900): 1, (131, 75): 1}
"""Of rows, with how many of them a norm takes together; some leave rows over."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_the_stages_compute(made, monkeypatch, shape: tuple[int, int], case: Callable) -> None:
    group = group_of(*case(te.placeholder(shape, name="x")), machine=Machine(64, 32))
    run(group)
    assert len(made) == 1 or shape[1] >= 500  # too much, if it is two arrays
    generator = np.random.default_rng(0)
    feeds = {t: generator.standard_normal(t.shape).astype("f") for t in group.inputs}
    results = natively(group, feeds)
    monkeypatch.setattr(Pipeline, "of", staticmethod(lambda program: None))
    for one, other in zip(results, natively(group, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_pipeline_from_memory(made) -> None:
    lower(group_of(*statistics(te.placeholder((256, 48), name="x")), machine=Machine(64, 32, cached_bytes=16384)), "k")
    assert not made


def test_one_stage_alone_with_narrow_vectors(made) -> None:
    x = te.placeholder((256, 48), name="x")
    run(group_of(*statistics(x), machine=Machine(16, 16)))
    assert not made
    run(group_of(over("sum", x, 1), over("max", x, 1), machine=Machine(16, 32)))
    assert [p.count for p in made] == [2]  # of two sums of 16 lanes, which are 4 vectors each


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_many_rows_as_stay_near(made, shape: tuple[int, int]) -> None:
    lower(group_of(norm(te.placeholder(shape, name="x")), machine=Machine(64, 32)), "kernel")
    (found,) = made
    assert found.count == SHAPES[shape]


def test_sums_in_chunks(made, monkeypatch) -> None:
    monkeypatch.setattr(order, "CHUNK", 32)
    monkeypatch.setattr(order, "LEAST", 32)
    monkeypatch.setattr(order, "MANY", 0)
    run(group_of(norm(te.placeholder((256, 100), name="x")), machine=Machine(64, 32)))
    assert all(s.domain.order.cut for stage in made[0].stages for s in stage.nest)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_written_over_what_was_read(made, shape: tuple[int, int]) -> None:
    """No stage reads a row that a later one has written; an enumeration of all accesses agrees."""
    kernel = lower(group_of(norm(te.placeholder(shape, name="x")), machine=Machine(64, 32)), "kernel")
    assert len(made) == 1
    source, _, target = kernel.buffers
    assert may_share(kernel, source, target)
    if shape == (256, 48):
        assert reads_come_first(share(kernel, "shared", {target: source}), source)


@pytest.mark.parametrize(
    "shape, machine",
    [
        ((256, 48), Machine(32, 16)),
        ((256, 48), Machine(64, 32, cached_bytes=1024)),
        ((30, 48), Machine(64, 32)),
        ((256, 3000), Machine(64, 32)),
    ],
    ids=["narrow vectors", "past the caches", "few rows", "long rows"],
)
def test_no_pipeline(made, shape: tuple[int, int], machine: Machine) -> None:
    lower(group_of(norm(te.placeholder(shape, name="x")), machine=machine), "kernel")
    assert not made


@pytest.mark.parametrize(
    "along, count, blocks",
    [(128, 2, 32), (170, 1, 34), (85, 2, 17), (2730, 1, 42), (131, 1, 64), (20, 1, 20), (15, 1, 0)],
)
def test_how_many_blocks_are_a_task(along: int, count: int, blocks: int) -> None:
    assert pipeline._blocks_of_a_task(along, 64 * along, count, 1) == blocks
