"""Tables and small curves: one way to draw them, in terminals, in notebooks and as plain text.

table = Table(["layer", "shape", "parameters"], [["linear", "(64, 10)", "650"]], title="summary")
print(table)                                  # plain text
rich.print(table)                             # in a terminal: with lines, as wide as that
table                                         # in a notebook: HTML
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

TEXT_WIDTH = 240  # columns of a table that is printed as plain text, at the most


@dataclass(frozen=True)
class Table:
    """Cells of text under a heading. The first ``left`` columns are aligned to the left, the others to the right.

    ``last`` is a row set apart below the others, such as a total. ``curves`` are drawn under the heading in HTML alone:
    by column, the values of a curve.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1
    last: Sequence[str] = ()
    curves: dict[int, Sequence[float]] = field(default_factory=dict)

    def __rich__(self) -> Any:
        return self._drawn(plain=False)

    def __str__(self) -> str:
        from rich.console import Console

        output = io.StringIO()
        Console(file=output, width=TEXT_WIDTH, no_color=True, legacy_windows=False).print(self._drawn(plain=True))
        return "\n".join(line.rstrip() for line in output.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """The table as HTML without colours of its own, so that it fits light and dark pages."""
        cells = [self._html_row("th", self.heading)]
        if self.curves:
            curves = [sparkline(self.curves[k]) if k in self.curves else "" for k in range(len(self.heading))]
            cells.append("<tr>" + "".join(f'<td style="text-align:right">{curve}</td>' for curve in curves) + "</tr>")
        body = [self._html_row("td", row) for row in self.rows]
        if self.last:
            body.append(self._html_row("th", self.last))
        caption = f'<caption style="text-align:left">{escape(self.title)}</caption>' if self.title else ""
        style = "border-collapse:collapse;font-variant-numeric:tabular-nums"
        return f'<table style="{style}">{caption}<thead>{"".join(cells)}</thead><tbody>{"".join(body)}</tbody></table>'

    def _html_row(self, tag: str, cells: Sequence[str]) -> str:
        aligned = (("left" if k < self.left else "right", cell) for k, cell in enumerate(cells))
        return (
            "<tr>"
            + "".join(f'<{tag} style="text-align:{side};padding:2px 8px">{escape(c)}</{tag}>' for side, c in aligned)
            + "</tr>"
        )

    def _drawn(self, plain: bool) -> Any:
        from rich import box
        from rich.table import Table as Drawn
        from rich.text import Text

        style = box.SIMPLE_HEAD if plain else box.ROUNDED
        table = Drawn(title=Text(self.title) if self.title else None, title_justify="left", box=style)
        for number, name in enumerate(self.heading):
            table.add_column(Text(name), justify="left" if number < self.left else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        if self.last:
            table.add_section()
            table.add_row(*map(Text, self.last), style="" if plain else "bold")
        return table


def stacked(tables: Sequence[Table]) -> Any:
    """Tables one below the other, for ``rich.print``."""
    from rich.console import Group

    return Group(*tables)


def sparkline(values: Sequence[float], width: int = 90, height: int = 24) -> str:
    """A curve as inline SVG, in the colour of the text around it; values that are not finite are left out.

    Returns nothing for fewer than two finite values.
    """
    points = [(k, v) for k, v in enumerate(values) if math.isfinite(v)]
    if len(points) < 2:
        return ""
    least, most = (pick(v for _, v in points) for pick in (min, max))
    scale = (height - 4) / (most - least) if most > least else 0.0
    step = (width - 4) / (len(values) - 1)
    drawn = " ".join(f"{2 + k * step:.1f},{2 + (most - v) * scale:.1f}" for k, v in points)
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="display:inline-block">'
        f'<polyline points="{drawn}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
