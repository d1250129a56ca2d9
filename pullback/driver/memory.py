"""The memory that a call of a compiled function takes, by category, as it was planned."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from pullback.driver.artifact import Layout
from pullback.ir.module import IRModule
from pullback.relax.convention import OF_OPTIMIZER, PARAMETER, RANDOM, STATE, STEP, Convention
from pullback.relax.transform.plan_memory import Place
from pullback.runtime.tables import Table

CATEGORIES = ("parameters", "states", "optimizer states", "inputs", "constants", "outputs", "arena")
_CATEGORY_OF = {  # of what a trainer module's functions take; the rest are inputs
    PARAMETER: "parameters", STATE: "states", RANDOM: "states", **dict.fromkeys(OF_OPTIMIZER, "optimizer states"),
}  # fmt: skip
_ROLES = {"saved": "saved for backward", "workspace": "workspace"}


@dataclass(frozen=True, repr=False)
class MemoryReport:
    """Bytes of one call. Printing it gives a table. What loops without ``max_steps`` keep for a gradient, and what
    calls of recursive functions need, comes on top: how much, only running tells.

    ``categories``: bytes for each of :data:`CATEGORIES`. Results that take over the memory of parameters or states
    count there, and not as outputs. ``arena``: bytes of the largest moment in the arena, by role (temporary, saved for
    backward, workspace), at step ``peak_step`` (a number of ``steps``); what is left of ``arena_bytes`` is alignment
    and gaps. ``places``: every value, where and when it lives.
    """

    function: str
    categories: dict[str, int]
    arena: dict[str, int]
    peak_step: int
    steps: tuple[str, ...]
    places: tuple[Place, ...]

    @property
    def total(self) -> int:
        """Bytes of everything together: what a call holds at its peak."""
        return sum(self.categories.values())

    @property
    def arena_bytes(self) -> int:
        return self.categories["arena"]

    @staticmethod
    def of(layout: Layout, module: IRModule) -> MemoryReport:
        """The report of a function that was compiled from the module."""
        categories = dict.fromkeys(CATEGORIES, 0)
        convention = Convention.of(module)
        roles = convention[layout.entry].takes if layout.entry in convention else [("input", 0)] * len(layout.inputs)
        for (role, _), kind in zip(roles, layout.inputs, strict=True):
            categories[_CATEGORY_OF.get(role, "inputs")] += kind.nbytes
        categories["constants"] = sum(p.nbytes for p in layout.places if p.role == "constant")
        categories["outputs"] = sum(layout.outputs[k].nbytes for k in layout.fresh)
        categories["arena"] = layout.arena_bytes
        moments = [_bytes_at(layout.places, k) for k in range(len(layout.timeline))]
        peak = max(range(len(moments)), key=lambda k: sum(moments[k].values()), default=0)
        arena = moments[peak] if moments else {}
        if not (layout.entry == STEP or layout.entry.endswith("_adjoint")):
            arena["temporary"] = arena.get("temporary", 0) + arena.pop("saved for backward", 0)
        return MemoryReport(layout.entry, categories, arena, peak, layout.timeline, layout.places)

    def table(self) -> Table:
        """The table, to be drawn."""
        rows = [(name, count) for name, count in self.categories.items() if count]
        rows += [(f"  {role}", count) for role, count in self.arena.items() if count]
        cells = [(name, f"{count:,}") for name, count in rows]
        return Table([self.function, "bytes"], cells, last=("together", f"{self.total:,}"))

    def __str__(self) -> str:
        rows = [(name, count) for name, count in self.categories.items() if count]
        width = max(map(len, [*self.categories, *(f"  {r}" for r in self.arena)]))
        lines = [f"{self.function}: {self.total:,} bytes in {len(self.steps)} steps"]
        lines += [f"{name:<{width}}  {count:>14,}" for name, count in rows]
        lines += [f"{'  ' + role:<{width}}  {count:>14,}" for role, count in self.arena.items() if count]
        if self.steps:
            lines.append(f"the arena is fullest at step {self.peak_step}, {self.steps[self.peak_step]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"MemoryReport({self.function}: {self.total:,} bytes)"

    def _repr_html_(self) -> str:
        """In a notebook: the table, and when the arena is fullest."""
        fullest = f"The arena is fullest at step {self.peak_step}, {self.steps[self.peak_step]}." if self.steps else ""
        return f"{self.table().html()}<div>{escape(fullest)}</div>"


def _bytes_at(places: tuple[Place, ...], step: int) -> dict[str, int]:
    """Bytes of the arena in use at a step, by role; memory that changes hands in this step counts for its new value."""
    ranges = {}
    for place in sorted(places, key=lambda p: p.first):
        if place.place == "arena" and place.first <= step <= place.last:
            ranges[place.offset, place.nbytes] = place
    result: dict[str, int] = {}
    for place in ranges.values():
        role = _ROLES.get(place.role, "temporary")
        result[role] = result.get(role, 0) + place.nbytes
    return result
