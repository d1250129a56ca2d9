"""Predictions and what is said of them: tables, curves, options."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from pullback.ir.errors import ArgumentError
from pullback.scale.curves import curves
from pullback.scale.network import Link, Network
from pullback.scale.predict import parse_ranks, parse_share, parse_stages, predict, table
from pullback.scale.step import STAGES, Begin, End, Kernel, Memory, RankStep, Step

MEMORY = (Memory(4_000_000, 8_000_000, 10, 900), Memory(4_000_000, 8_000_000, 10, 900))
DATA = RankStep((Kernel("a", 1e-2), Begin(0, "reduce", ((1_000_000, 1_000_000),), 4), End(0)), MEMORY)
STEP = Step("net", 8, 1, (2, 4), 1e-2, 0.0, 4_000_000, 4_000_000, 8_000_000, {"data": DATA})
NETWORK = Network(Link(1e9, 1e-5, 0.0), addition=math.inf, copying=math.inf, polling=0.0)


def seconds(ranks: int) -> float:
    """Kernels, then a reduction that nothing hides."""
    return 1e-2 + 2 * (1e-5 + (ranks - 1) * 4 * -(-1_000_000 // ranks) / 1e9)


@pytest.mark.parametrize("ranks", [2, 3, 64, 4096])
def test_a_prediction(ranks: int) -> None:
    found = predict(STEP, "data", ranks, NETWORK)
    assert found.seconds == pytest.approx(seconds(ranks)) and found.compute == pytest.approx(1e-2)
    assert found.efficiency == pytest.approx(1e-2 / seconds(ranks)) and found.hidden == 0
    assert found.rows_per_second == pytest.approx(8 * ranks / seconds(ranks))
    assert (found.memory, found.formula, found.sent) == (MEMORY[0], 16_000_000, 4_000_000)
    assert found.to_json()["memory"]["total"] == 12_000_910


def test_stragglers() -> None:
    assert predict(STEP, "data", 8, NETWORK, slowest=1.5).seconds == pytest.approx(seconds(8) + 5e-3)
    few, many = (predict(STEP, "data", n, NETWORK, jitter=0.05).seconds - seconds(n) for n in (4, 1024))
    assert 0 < few < many < 0.25e-2  # the slowest of 1,024 is some 3.2 deviations slow
    assert predict(STEP, "data", 4, NETWORK, jitter=0.05, seed=1) == predict(
        STEP, "data", 4, NETWORK, jitter=0.05, seed=1
    )


def test_faster_machines() -> None:
    found = predict(STEP, "data", 8, NETWORK, speed=4.0)
    assert found.seconds == pytest.approx(seconds(8) - 0.75e-2) and found.compute == pytest.approx(0.25e-2)
    assert found.efficiency == pytest.approx(0.25e-2 / found.seconds)
    with pytest.raises(ArgumentError, match="speed must be a number > 0"):
        predict(STEP, "data", 8, NETWORK, speed=0.0)


@pytest.mark.parametrize("ranks", [0, 1, True, 2.0])
def test_one_rank_has_no_step_to_predict(ranks) -> None:
    with pytest.raises(ArgumentError, match="the number of ranks must be an int ≥ 2"):
        predict(STEP, "data", ranks, NETWORK)


def test_the_table() -> None:
    text = str(table([predict(STEP, "data", n, NETWORK) for n in (2, 1024)], "net: 8 rows"))
    head, *rows = (line for line in text.splitlines() if "│" not in line and "─" not in line and line.strip())
    assert head == "net: 8 rows" and rows[0].split("  ")[1].strip() == "stage"
    assert [r.split()[:3] for r in rows[1:]] == [["data", "2", "14"], ["data", "1,024", "18"]]


def test_options() -> None:
    assert parse_ranks("8") == (8,) and parse_ranks("2,4, 6") == (2, 4, 6)
    assert parse_ranks("2-4096") == tuple(2**k for k in range(1, 13)) and parse_ranks("3-13,2") == (3, 6, 12, 2)
    assert parse_stages("all") == STAGES and parse_stages("zero3,data") == ("zero3", "data")
    assert parse_share("5%") == pytest.approx(0.05) and parse_share("0.1") == 0.1 and parse_share("0") == 0


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_ranks, "1", "ranks are numbers ≥ 2, got '1'"),
        (parse_ranks, "2,many", "ranks are numbers ≥ 2, got 'many'"),
        (parse_ranks, "8-4", "ranks are numbers ≥ 2, got '8-4'"),
        (parse_ranks, "", "ranks are numbers ≥ 2, got ''"),
        (parse_stages, "zero4", "there is no stage 'zero4': did you mean"),
        (parse_stages, "", "there is no stage ''"),
        (parse_share, "much", "a share is a number such as 5% or 0.05, got 'much'"),
        (parse_share, "-1%", "a share is a number"),
        (parse_share, "nan", "a share is a number"),
    ],
)
def test_what_is_refused(parse, text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as raised:
        parse(text)
    assert raised.value.hint


def test_curves_are_svg() -> None:
    series = {"data": [(2, 95.0), (4, 90.0), (4096, 20.0)], "a < b": [(2, 95.0), (4096, 19.5)]}
    root = ElementTree.fromstring(curves(series, "net & more", "efficiency, %"))
    space = "{http://www.w3.org/2000/svg}"
    lines = [
        [tuple(map(float, p.split(","))) for p in line.get("points").split()] for line in root.iter(f"{space}polyline")
    ]
    assert [len(line) for line in lines] == [3, 2]
    (x0, y0), (x1, y1), (x2, y2) = lines[0]
    assert (x1 - x0) / (x2 - x0) == pytest.approx(1 / 11, abs=1e-2)  # a doubling of 11
    assert (y1 - y0) / (y2 - y0) == pytest.approx(5 / 75, abs=1e-2)
    texts = [t.text for t in root.iter(f"{space}text")]
    assert {"net & more", "efficiency, %", "ranks", "2", "4,096", "0", "100", "data", "a < b"} <= set(texts)
    places = [float(t.get("y")) for t in root.iter(f"{space}text") if t.text in series]
    assert abs(places[0] - places[1]) >= 14
