"""A picture of the arena over time: one rectangle for every value."""

from __future__ import annotations

from pathlib import Path

from pullback.demo.plots import require_matplotlib
from pullback.driver.memory import MemoryReport
from pullback.relax.transform.plan_memory import Place

COLOURS = {"saved": "#3b6fb6", "temporary": "#d9a441", "workspace": "#9a9a9a", "result": "#2e8b57"}
LABELS = {"saved": "saved for backward", "temporary": "temporary", "workspace": "workspace", "result": "result"}
MOST_NAMES = 60  # of steps and of values: beyond that names would hide the picture


def save_memory_picture(path: str | Path, report: MemoryReport) -> None:
    """Write a PNG: step numbers from left to right, offsets in the arena from bottom to top. A value that takes the
    place of one that dies in the same step is joined to it by an arrow; the fullest step is marked."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    places = [p for p in report.places if p.place == "arena" and p.nbytes]
    unit, name = (2**20, "MiB") if report.arena_bytes >= 2**20 else (2**10, "KiB")
    count = len(report.steps)
    figure = Figure(figsize=(min(30.0, 6 + 0.24 * count), 7.5), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place in places:
        corner, width = (place.first, place.offset / unit), place.last + 1 - place.first
        colour = COLOURS.get(place.role, COLOURS["temporary"])
        axes.add_patch(
            Rectangle(corner, width, place.nbytes / unit, facecolor=colour, edgecolor="white", linewidth=0.7)
        )
        if len(places) <= 4 * MOST_NAMES and place.nbytes >= report.arena_bytes / 40 and width >= 3:
            middle = (corner[0] + width / 2, corner[1] + place.nbytes / unit / 2)
            text = place.name.replace("fused_", "")[: int(3.2 * width)]
            axes.annotate(text, middle, ha="center", va="center", fontsize=6.5, color="white", clip_on=True)
    for old, new in chains(places):
        y = (new.offset + new.nbytes / 2) / unit
        style = {"arrowstyle": "->", "color": "black", "lw": 1.1}
        axes.annotate("", (new.first + 1.0, y), (old.last - 0.1, y), arrowprops=style)
    axes.axvspan(report.peak_step, report.peak_step + 1, color="#c8102e", alpha=0.16, linewidth=0)
    axes.axhline(report.arena_bytes / unit, color="#c8102e", linewidth=1.0)
    axes.set_xlim(0, max(1, count))
    axes.set_ylim(0, max(1.0, report.arena_bytes) * 1.06 / unit)
    axes.set_ylabel(f"offset in the arena, {name}")
    if count <= 2 * MOST_NAMES:
        axes.set_xticks([k + 0.5 for k in range(count)], [_short(s) for s in report.steps], rotation=90, fontsize=6)
    else:
        axes.set_xlabel("step")
    axes.set_title(
        f"{report.function}: arena {report.arena_bytes / unit:.2f} {name} of {report.total / unit:.2f} {name} in all; "
        f"fullest at step {report.peak_step}",
        fontsize=10,
    )
    roles = [r for r in COLOURS if any(p.role == r for p in places)]
    handles = [Patch(color=COLOURS[r], label=LABELS[r]) for r in roles]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), fontsize=8)
    figure.savefig(str(path))


def chains(places: list[Place]) -> list[tuple[Place, Place]]:
    """Pairs (old, new) of values where the new one is written over the old one in the step in which it dies."""
    ends = {(p.offset, p.nbytes, p.last): p for p in places}
    pairs = [(ends.get((p.offset, p.nbytes, p.first)), p) for p in places]
    return [(old, new) for old, new in pairs if old is not None and old is not new]


def _short(name: str) -> str:
    name = name.replace("fused_", "")
    return name if len(name) <= 28 else name[:27] + "…"
