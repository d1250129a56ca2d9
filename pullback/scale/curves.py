"""Curves over the number of ranks, as an SVG file: on light and dark pages, without a library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 92, 34, 40
COLOURS = ("#3b7dd8", "#d9822b", "#3a9d5d", "#a855b5", "#7a7a7a", "#c0392b")
GREY = "#7f8790"


def curves(
    series: Mapping[str, Sequence[tuple[int, float]]], title: str, label: str, *, most: float | None = None
) -> str:
    """The text of an SVG with a line for each series, points (ranks, value); both axes begin at a label, ranks are on a
    logarithmic scale. ``label``: of the values, which begin at 0; ``most``: their end, by default that of the largest.
    """
    points = [p for line in series.values() for p in line]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    step = _step((most or max(y for _, y in points)) / 5)
    top = most or step * math.ceil(max(y for _, y in points) / step - 1e-9)
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(ranks: float) -> float:
        return LEFT + (across * math.log2(ranks / first) / math.log2(last / first) if last > first else 0.0)

    def y_of(value: float) -> float:
        return TOP + up * (1 - value / top)

    parts = [_text(LEFT, 18, title, size=13, weight="bold")]
    for k in range(round(top / step) + 1):
        y = y_of(k * step)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + across}" y2="{y:.1f}" stroke="{GREY}" opacity="0.3"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, f"{k * step:g}", anchor="end"))
    ticks = sorted({x for x, _ in points if math.log2(x / first).is_integer()})
    for ranks in ticks[:: max(1, math.ceil(len(ticks) / 12))]:
        parts.append(_text(x_of(ranks), TOP + up + 16, f"{ranks:,}", anchor="middle"))
    parts.append(_text(LEFT + across / 2, HEIGHT - 6, "ranks", anchor="middle"))
    middle = TOP + up / 2
    parts.append(_text(14, middle, label, anchor="middle", more=f' transform="rotate(-90 14 {middle:.1f})"'))
    for (name, line), y, colour in zip(series.items(), _apart(series, y_of), _cycle(len(series)), strict=True):
        path = " ".join(f"{x_of(r):.1f},{y_of(v):.1f}" for r, v in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_of(r):.1f}" cy="{y_of(v):.1f}" r="2.5" fill="{colour}"/>' for r, v in line]
        parts.append(_text(LEFT + across + 8, y + 4, name, colour=colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n{body}\n</svg>\n'


def _apart(series: Mapping[str, Sequence[tuple[int, float]]], y_of: Callable[[float], float]) -> list[float]:
    """Where the names of the lines stand, at their ends, none over another."""
    ends = [y_of(line[-1][1]) for line in series.values()]
    found, free = [0.0] * len(ends), -math.inf
    for k in sorted(range(len(ends)), key=lambda k: ends[k]):
        found[k] = free = max(ends[k], free + 14)
    return found


def _cycle(count: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(count)]


def _step(about: float) -> float:
    """1, 2 or 5 times a power of 10."""
    power = 10.0 ** math.floor(math.log10(about)) if about > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about - 1e-12)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: str = "", colour: str = GREY,
    more: str = "",
) -> str:  # fmt: skip
    bold = f' font-weight="{weight}"' if weight else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="{colour}"{bold}{more}>{escape(text)}</text>'
