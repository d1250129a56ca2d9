"""Linear inequalities of integers, against all integers of a box."""

from __future__ import annotations

import itertools
import random

import pytest

from pullback.tir.inequalities import CONSTANT, can_hold

BOX = range(-4, 5)


@pytest.mark.parametrize("seed", range(60))
def test_against_all_integers_of_a_box(seed: int) -> None:
    """What holds somewhere in a box can hold; most of what holds nowhere in it cannot."""
    draw = random.Random(seed)
    unknowns = "xyz"[: draw.randint(1, 3)]
    rows = [{u: draw.randint(-2, 2) for u in unknowns} | {CONSTANT: draw.randint(-4, 2)} for _ in range(4)]
    box = [{u: s, CONSTANT: 4} for u in unknowns for s in (1, -1)]
    points = (dict(zip(unknowns, p, strict=True)) | {CONSTANT: 1} for p in itertools.product(BOX, repeat=len(unknowns)))
    holds = any(all(sum(f * point[u] for u, f in row.items()) >= 0 for row in rows) for point in points)
    if holds:
        assert can_hold([*rows, *box])
    elif len(unknowns) == 1:
        assert not can_hold([*rows, *box])


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        ([], True),
        ([{CONSTANT: -1}], False),
        ([{"i": 1}, {"i": -1, "k": 1, CONSTANT: -1}, {"i": 1, "k": -1}], False),
        ([{"i": 1}, {"i": -1, "k": 1, CONSTANT: -1}], True),
        ([{"i": 2, CONSTANT: -1}, {"i": -2, CONSTANT: 1}], False),  # 2 i = 1
        ([{"a": 1, "b": -1, CONSTANT: -1}, {"b": 1, "c": -1, CONSTANT: -1}, {"c": 1, "a": -1}], False),
    ],
)
def test_known_systems(rows: list[dict], holds: bool) -> None:
    assert can_hold(rows) is holds


def test_a_large_system_is_given_up() -> None:
    """Elimination may square the number of rows each time: then the answer is that they may hold."""
    draw = random.Random(1)
    rows = [{u: draw.choice([-3, -2, -1, 1, 2, 3]) for u in range(12)} | {CONSTANT: -1} for _ in range(80)]
    assert can_hold(rows)
