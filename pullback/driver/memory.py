"""The memory that a call of a compiled function takes, by category, as it was planned."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.driver.artifact import Layout
from pullback.ir.module import IRModule
from pullback.relax.transform.plan_memory import Place

CATEGORIES = ("parameters", "states", "optimizer states", "inputs", "constants", "outputs", "arena")
_OF_A_TRAINER = ("__step", "backbone", "backbone_loss", "backbone_loss_adjoint")
_ROLES = {"saved": "saved for backward", "workspace": "workspace"}


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of one call. Printing it gives a table.

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
        donated = {i for _, i in layout.donated}
        for k, kind in enumerate(layout.inputs):
            categories[_input_category(layout.entry, k, len(layout.inputs), k in donated, module)] += kind.nbytes
        categories["constants"] = sum(p.nbytes for p in layout.places if p.role == "constant")
        categories["outputs"] = sum(layout.outputs[k].nbytes for k in layout.fresh)
        categories["arena"] = layout.arena_bytes
        moments = [_bytes_at(layout.places, k) for k in range(len(layout.timeline))]
        peak = max(range(len(moments)), key=lambda k: sum(moments[k].values()), default=0)
        arena = moments[peak] if moments else {}
        if not (layout.entry == "__step" or layout.entry.endswith("_adjoint")):
            arena["temporary"] = arena.get("temporary", 0) + arena.pop("saved for backward", 0)
        return MemoryReport(layout.entry, categories, arena, peak, layout.timeline, layout.places)

    def __str__(self) -> str:
        rows = [(name, count) for name, count in self.categories.items() if count]
        width = max(map(len, [*self.categories, *(f"  {r}" for r in self.arena)]))
        lines = [f"{self.function}: {self.total:,} bytes in {len(self.steps)} steps"]
        lines += [f"{name:<{width}}  {count:>14,}" for name, count in rows]
        lines += [f"{'  ' + role:<{width}}  {count:>14,}" for role, count in self.arena.items() if count]
        if self.steps:
            lines.append(f"the arena is fullest at step {self.peak_step}, {self.steps[self.peak_step]}")
        return "\n".join(lines)


def _input_category(function: str, number: int, count: int, donated: bool, module: IRModule) -> str:
    """Of a flattened input: functions of a trainer take inputs, parameters, states, targets, a random state if there is
    one, and optimizer states, of which the adjoint may take the loss scale."""
    attrs = module.attrs
    if function not in _OF_A_TRAINER or "param_num" not in attrs:
        return "inputs"
    params, states = int(attrs["param_num"]), int(attrs.get("state_num", 0))
    inputs = int(attrs["input_num"]) if "input_num" in attrs else count - params - states
    if inputs <= number < inputs + params:
        return "parameters"
    if inputs + params <= number < inputs + params + states:
        return "states"
    end = count - (len(attrs.get("optim_state", ())) if function == "__step" else 0)
    if function == "backbone_loss_adjoint" and "loss_scale_state" in attrs:
        end -= 1
        if number == end:
            return "optimizer states"
    if function != "backbone" and end - int(attrs.get("random_state_num", 0)) <= number < end:
        return "states"
    return "optimizer states" if donated else "inputs"


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
