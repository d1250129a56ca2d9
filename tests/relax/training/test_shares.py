"""Which rows ranks take of a batch, and where what a trainer keeps lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.relax.training.metrics import Metrics
from pullback.relax.training.placement import PIECE, WHOLE, Placement
from pullback.relax.training.shares import ALONE, Part, Share
from pullback.relax.transform.distributed import Distributed
from pullback.runtime.ranks import current
from tests.relax.training.several import X, Y, mlp, on_ranks, trainer_of


def shares(ranks: int, **options: Any) -> list[Share]:
    return [Share(rank, ranks, Distributed(ranks, **options)) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rows", [1, 2, 5, 7, 8, 24, 25])
def test_parts_are_all_rows_once(rows: int, ranks: int) -> None:
    parts = [share.of(rows) for share in shares(ranks)]
    taken = [row for part in parts if part.counts for row in range(rows)[part.slice]]
    assert taken == list(range(rows))
    assert {part.whole for part in parts} == {rows}
    if rows < ranks:
        assert [part.rows for part in parts] == [rows] * ranks
    else:
        assert max(part.rows for part in parts) - min(part.rows for part in parts) <= 1
        assert [part.rows for part in parts] == sorted((part.rows for part in parts), reverse=True)


@pytest.mark.parametrize("options", [{"draws": True}, {"deterministic": True}])
def test_batches_that_would_depend_on_the_number_of_ranks_are_whole(options: dict[str, bool]) -> None:
    first, second = (share.of(7) for share in shares(2, **options))
    assert first == Part(0, 7, 7) and second == Part(0, 7, 7, counts=False)
    assert [share.of(8).rows for share in shares(2, **options)] == [4, 4]


@pytest.mark.parametrize("given", [None, np.random.default_rng(0).permutation(30)])
def test_orders_are_those_of_the_whole_batches(given: Any) -> None:
    """Batches of 9 rows from row 3 on."""
    order = np.arange(30) if given is None else given
    own = [share.order(given, 3, 9, 3) for share in shares(2)]
    assert [first for _, first in own] == [0, 0]
    (one, _), (two, _) = own
    for batch in range(3):
        together = [*one[batch * 5 : batch * 5 + 5], *two[batch * 4 : batch * 4 + 4]]
        assert together == order[3 + 9 * batch : 12 + 9 * batch].tolist()
    assert ALONE.order(given, 3, 9, 3) == (given, 3)


def test_values_in_pieces_and_back() -> None:
    def place() -> Any:
        trainer = trainer_of("zero3")
        placement = Placement.of(trainer._interface)
        whole = placement.whole(trainer._values)
        again = placement.held(whole)
        for one, other in zip(again.all, trainer._values.all, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        kinds = {str(slot): placement.kind(slot) for slot in trainer._interface.kept}
        weight = trainer._interface.params[0]
        runs = [placement.run(weight, rank) for rank in range(3)]
        one = np.array(placement.whole_tensor(weight, trainer._values.params[0]))
        return kinds, runs, placement.shape(weight), [np.array(v) for v in whole.params], one

    expected = [np.array(v) for v in trainer_of(None).params.values()]
    for kinds, runs, shape, whole, one in on_ranks(3, place):
        for found, value in zip(whole, expected, strict=True):
            np.testing.assert_array_equal(found, value)
        np.testing.assert_array_equal(one, expected[0])
        assert kinds["parameter 0.weight"] == PIECE and kinds["optimizer state 0"] == WHOLE
        assert list(kinds.values()).count(PIECE) == 12  # four parameters, two moments of each
        assert runs == [(0, 16), (16, 16), (32, 16)] and shape == (16,)


def test_runs_of_what_does_not_divide() -> None:
    def place() -> Any:
        trainer = trainer_of("zero3", net=lambda: nn.Linear(6, 3))
        placement, bias = Placement.of(trainer._interface), trainer._interface.params[1]
        return placement.shape(bias), [placement.run(bias, rank) for rank in range(4)]

    for shape, runs in on_ranks(4, place):
        assert shape == (1,) and runs == [(0, 1), (1, 1), (2, 1), (3, 0)]


def test_nothing_is_gathered_without_pieces() -> None:
    def place() -> bool:
        trainer = trainer_of("data")
        placement = Placement.of(trainer._interface)
        return (
            placement.whole(trainer._values) is trainer._values and placement.held(trainer._values) is trainer._values
        )

    assert on_ranks(2, place) == [True, True]
    zero1 = on_ranks(2, lambda: (t := trainer_of("zero1")) and t._placement.whole(t._values, False) is t._values)
    assert zero1 == [True, True]  # its parameters are whole


@pytest.mark.parametrize("loss", ["cross_entropy", "bce_with_logits", "mse"])
def test_metrics_of_parts_are_those_of_all_rows(loss: str) -> None:
    """However the rows are cut, and where some ranks have none of a batch."""
    numbers = np.random.default_rng(0)
    outputs = numbers.standard_normal((23, 3)).astype(np.float32)
    targets: Any = numbers.integers(0, 3, 23) if loss == "cross_entropy" else numbers.integers(0, 2, (23, 3))
    targets = targets if loss == "cross_entropy" else targets.astype(np.float32)
    names = {
        "cross_entropy": ["f1_macro", "mcc", "auc", "top2", "perplexity"],
        "bce_with_logits": ["f1", "kappa", "auc", "mae", "max_error"],
        "mse": ["r2", "mae", "max_error", "rmse"],
    }[loss]
    trainer = pullback.trainer(
        mlp(), loss, "adam", example=X, target="debug", targets=None if loss == "cross_entropy" else "one-hot"
    )
    measured = Metrics.of(names, trainer._interface)
    whole = measured.start()
    whole.update([targets], outputs)
    parts = [measured.start() for _ in range(3)]
    for part, rows in zip(parts, (slice(0, 4), slice(4, 7), slice(7, 10)), strict=True):
        part.update([targets[rows]], outputs[rows])
    for part, counts in zip(parts, (True, False, False), strict=True):
        part.update([targets[10:12]], outputs[10:12], counts)
    for part, rows in zip(parts, (slice(12, 13), slice(13, 20), slice(20, 23)), strict=True):
        part.update([targets[rows]], outputs[rows])
    found = [part.found for part in parts]
    for part in parts:
        part.join(found)
        assert part.results() == pytest.approx(whole.results(), rel=1e-12)


def test_metrics_where_a_rank_has_no_row() -> None:
    trainer = trainer_of(None)
    measured = Metrics.of(["f1", "mcc"], trainer._interface)
    whole, one, none = measured.start(), measured.start(), measured.start()
    outputs = np.eye(3, dtype=np.float32)[Y]
    whole.update([Y], outputs)
    one.update([Y], outputs)
    none.update([Y], outputs, counts=False)
    found = [none.found, one.found]
    for part in (one, none):
        part.join(found)
        assert part.results() == whole.results()


def test_a_rank_alone_does_not_wait() -> None:
    assert current().waited() == 0.0
