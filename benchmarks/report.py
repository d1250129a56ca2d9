"""Tables and the JSON file."""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Measurement, foreign_load, machine
from benchmarks.peak import Peak

SPINNING = 0.25  # seconds of processor time while idle that are worth a warning
FOREIGN_LOAD = 0.15  # processors used by others that are worth a warning
console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)


def heading(name: str) -> None:
    """The machine, and a warning when it is not ours alone."""
    about = machine()
    console.print(f"[bold]{name}[/bold] on {about['processor']}, {about['cores']} cores, {about['system']}")
    load = foreign_load()
    if load > FOREIGN_LOAD:
        console.print(f"[yellow]others are using {load:.1f} processors: these numbers are not fit to quote[/yellow]")


def limits(peaks: dict[int, Peak]) -> None:
    """What the C loops reached before and after the sides ran."""
    for threads, peak in peaks.items():
        levels = [
            f"{level} {' '.join(f'{rate:.0f}' for rate in rates.values())}" for level, rates in peak.bandwidth.items()
        ]
        console.print(
            f"measured limit of {threads} thread{'s' if threads > 1 else ''} (C loops): {peak.gflops:.0f} GFLOP/s in "
            f"float32 multiply-adds; GB/s reading, writing, both, in a triad: {'; '.join(levels)}"
        )


@dataclass(frozen=True)
class TableText:
    """A table as it is printed, and kept for the page."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def show(self) -> None:
        """The first column is left-aligned, numbers are right-aligned."""
        output = Table(title=self.title, title_justify="left", title_style="bold")
        for number, column in enumerate(self.columns):
            output.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
        for row in self.rows:
            output.add_row(*row)
        console.print(output)


def verdict(good: bool) -> str:
    return "[green]met[/green]" if good else "[red]missed[/red]"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds / scale:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.0f} KiB"


def spread(times: list[float]) -> str:
    """The least and the greatest of some times."""
    least, greatest = duration(min(times)), duration(max(times))
    same_unit = least.split()[1] == greatest.split()[1]
    return f"{least.split()[0] if same_unit else least} - {greatest}"


def shortened(text: str, width: int = 60) -> str:
    """The end of a long text: what an error says stands there."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def warnings(measurements: list[Measurement]) -> None:
    """Sides that failed, and sides whose threads were busy while they should have been idle."""
    for m in measurements:
        if m.failure is not None:
            console.print(f"[red]{m.side.name}: {m.failure}[/red]", markup=True)
        elif m.idle_processor_seconds > SPINNING:
            console.print(
                f"[yellow]{m.side.name} used {m.idle_processor_seconds:.2f} s of processor time while it should have "
                "been idle: the others' times are too long[/yellow]"
            )


def write_json(
    path: Path, name: str, peaks: dict[int, Peak], measurements: list[Measurement], tables: list[TableText], **more: Any
) -> None:
    """Everything that was measured, for later comparison and for the page (`benchmarks/page.py`)."""
    content = {
        "benchmark": name,
        "machine": machine(),
        "foreign_load": foreign_load(),
        "peak": {str(threads): vars(peak) for threads, peak in peaks.items()},
        "tables": [vars(table) for table in tables],
        "date": datetime.date.today().isoformat(),
        "sides": [m.as_json() for m in measurements],
    } | more
    path.write_text(json.dumps(content, indent=2) + "\n")
    console.print(f"written: {path}")
