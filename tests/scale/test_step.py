"""Measured steps: other numbers of ranks, and files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError
from pullback.runtime.collectives import piece_length
from pullback.scale.engine import Collective
from pullback.scale.program import Compute, Start, Wait
from pullback.scale.step import Begin, End, Kernel, Memory, RankStep, Step, between, load

STAGE = RankStep(
    (
        Kernel("forward", 1e-3, (4000, 4000)),
        Begin(0, "reduce_pieces", ((1000, 1000), (50, 50)), 4),
        Begin(1, "gather_pieces", ((64, 128),), 8),
        Kernel("update", 2e-4, (4000, 2000)),
        Kernel("statistics", 1e-5, (128, 256)),
        End(0),
        End(1),
    ),
    (Memory(4000, 4000, 10, 900), Memory(4000, 2000, 10, 900)),
)
STEP = Step("net", 8, 1, (2, 4), 1.5e-3, 1e-5, 4000, 4000, 8000, {"zero2": STAGE})


@pytest.mark.parametrize("ranks", [2, 3, 4, 64, 4096])
def test_other_numbers_of_ranks(ranks: int) -> None:
    call, forward, first, second, update, statistics, *waits = STEP.program("zero2", ranks).items
    assert (call, forward) == (Compute("call", 1e-5), Compute("forward", 1e-3))
    assert first == Start(0, Collective("reduce_pieces", (1000, 50), 4))
    assert second == Start(1, Collective("gather_pieces", (32 * ranks,), 8))
    assert update.seconds == pytest.approx(2e-4 * 2 / ranks) and statistics.seconds == pytest.approx(1e-5 * ranks / 2)
    assert waits == [Wait(0), Wait(1)]
    assert STEP.memory("zero2", ranks) == Memory(4000, round(8000 / ranks), 10, 900)


@pytest.mark.parametrize("elements", [7, 1000, 12345])
def test_pieces_lie_on_the_line(elements: int) -> None:
    two = (2, 4)
    values = (piece_length(elements, 2), piece_length(elements, 4))
    for ranks in (2, 4, 8, 100):
        assert abs(between(values, two, ranks) - piece_length(elements, ranks)) <= 2


def test_the_formula_of_zero() -> None:
    step = Step("net", 8, 1, (2, 4), 0.0, 0.0, 100, 100, 200, {})
    assert [step.formula(s, 4) for s in ("data", "zero1", "zero2", "zero3")] == [400, 250, 175, 100]


def test_files(tmp_path: Path) -> None:
    STEP.save(tmp_path / "step.json")
    assert load(tmp_path / "step.json") == STEP


def test_kernels_that_grow_alike_are_one() -> None:
    more = (Kernel("a", 1e-3, (10, 10)), Kernel("b", 2e-3, (30, 30)), Kernel("c", 1e-3, (40, 20)))
    more += (Kernel("d", 1e-3, (20, 10)), Begin(0, "reduce", ((5, 5),), 4), Kernel("e", 1e-3, (0, 0)), End(0))
    step = replace(STEP, stages={"zero2": RankStep(more, STAGE.memory)})
    assert step.condensed().stages["zero2"].items == (
        Kernel("2 kernels", 3e-3, (40, 40)), Kernel("2 kernels", 2e-3, (60, 30)), *more[4:]
    )  # fmt: skip
    for ranks in (2, 4, 64):
        one, other = (s.program("zero2", ranks) for s in (step, step.condensed()))
        assert one.compute == pytest.approx(other.compute) and one.collectives == other.collectives


def test_a_stage_that_was_not_measured() -> None:
    with pytest.raises(ArgumentError, match="net was not measured in stage 'data'\nhint: it was in zero2"):
        STEP.program("data", 4)


def damaged(change: Callable[[dict[str, Any]], object]) -> str:
    """The file of a step after a change."""
    with tempfile.TemporaryDirectory() as folder:
        STEP.save(Path(folder) / "step.json")
        fields = json.loads((Path(folder) / "step.json").read_text())
    change(fields)
    return json.dumps(fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        damaged(lambda f: f.update(format=2)),
        damaged(lambda f: f.pop("rows")),
        damaged(lambda f: f.update(more=1)),
        damaged(lambda f: f["stages"].update(zero4=f["stages"]["zero2"])),
        damaged(lambda f: f["stages"]["zero2"]["items"].pop()),
        damaged(lambda f: f["stages"]["zero2"]["items"].append(["End", 1])),
        damaged(lambda f: f["stages"]["zero2"]["items"].append(["Begin", 0, "reduce", [[1, 1]], 4])),
        damaged(lambda f: f["stages"]["zero2"]["items"].append(["Begin", 9, "shuffle", [[1, 1]], 4])),
        damaged(lambda f: f["stages"]["zero2"]["memory"].pop()),
    ],
)
def test_what_is_no_step(text: str, tmp_path: Path) -> None:
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"is no measured step: .+\nhint: python -m pullback simulate MODEL --save"):
        load(tmp_path / "step.json")


def test_between_meets_both_values() -> None:
    draw = np.random.default_rng(0)
    for a, b in draw.integers(0, 10_000, (50, 2)):
        assert between((a, b), (3, 17), 3) == pytest.approx(a) and between((a, b), (3, 17), 17) == pytest.approx(b)
