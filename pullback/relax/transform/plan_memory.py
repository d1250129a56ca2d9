"""PlanMemory: where every value of a lowered function lives, and the host function that runs its kernels.

    lv = R.call_tir(cls.k1, (x,), …)                  host(x, out):
    y = R.call_tir(cls.k2, (lv, x), …)       →            k1(x, arena+0)
    return y                                              k2(arena+0, x, out)

A value lives in an input, a constant, an output (results are written where the caller wants them), or the arena, where
ranges are shared by values that do not live at the same time. With ``donate`` a result takes over the memory of an
input: in place when it is proven safe, else through the arena and a copy at the end, so that every check and every
read comes before the first overwriting. ``verify_plan.py`` checks the outcome, and shares no code with this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.node import Span
from pullback.relax.expr import Call, Function
from pullback.relax.op_calls import op_of
from pullback.relax.recursion import RECURSE, SELF
from pullback.relax.regions import regions
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.memory.collectives import phases
from pullback.relax.transform.memory.control import Control, carried, copied
from pullback.relax.transform.memory.host import host_function
from pullback.relax.transform.memory.offsets import Interval, assign_offsets
from pullback.relax.transform.memory.order import orders
from pullback.relax.transform.memory.recursion import Recursion, SelfCall
from pullback.relax.transform.memory.sharing import Proofs, Results, assign_blocks, check_order, place_results
from pullback.relax.transform.memory.values import Step, Steps, Value, flatten_info, read_steps
from pullback.tir import PrimFunc
from pullback.tir.stmt import FLUSH_SUBNORMALS

__all__ = ["MemoryOptions", "Place", "Plan", "flatten_info", "plan_memory"]

_WORTH_TWO_PLACES = 4096  # bytes of a carry: to copy fewer takes little


@dataclass(frozen=True)
class MemoryOptions:
    """``in_place``: temporaries may take the memory of inputs that die, from ``smallest`` bytes on (a variant of the
    kernel has to be compiled for it). ``poison``: dead memory is filled with 0xFF bytes between the kernels."""

    in_place: bool = True
    smallest: int = 4096
    poison: bool = False


@dataclass(frozen=True)
class Place:
    """Where and when a value lives: ``place`` is input, constant, output (``index`` says which) or arena (``offset``);
    ``first`` and ``last`` are numbers of steps (-1: before all; the number of steps: after all). ``role``: input,
    constant, result, temporary, saved (computed before the first result, read after it), or workspace."""

    name: str
    role: str
    place: str
    index: int
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass
class Plan:
    """What is needed to run a function: kernels, the host function, and the layout of its buffer list.

    Each region of a branch or a loop has a plan of its own: ``controls`` has those of each call of one, by its number
    among the calls and checks of the function, and ``inner`` the host functions that ``host`` calls. Status k is
    ``messages[k - 1]``, in all of them. ``kernels`` are those of all, and ``may_fail`` says whether any has a status.
    ``needs_heap``: boxes are made, for which a region takes a heap after its other buffers.

    The buffers of the host function are the flattened inputs, the constants, then the outputs in ``fresh`` (numbers of
    flattened results); ``donated`` maps the other results to the inputs whose memory they take. ``sources`` says for
    each statement of the host function which of the lowered function's calls and checks it is (None: none of them), and
    ``spans`` for each of its kernel calls where the op stands that it computes.
    """

    host: PrimFunc
    kernels: dict[str, PrimFunc]
    inputs: list[TensorStructInfo]
    outputs: list[TensorStructInfo]
    constants: list[np.ndarray]
    fresh: list[int]
    donated: dict[int, int]
    arena_bytes: int
    live_bytes: int  # the most bytes alive at one step: no arena of this order is smaller
    steps: list[str]
    messages: list[str]
    sources: list[int | None]
    places: list[Place]
    timeline: list[str]  # the steps that places count: kernels and checks, without poison
    spans: list[Span | None]
    inner: dict[str, PrimFunc] = field(default_factory=dict)
    controls: dict[int, Control | Recursion | SelfCall] = field(default_factory=dict)
    may_fail: bool = False
    needs_heap: bool = False

    @property
    def functions(self) -> dict[str, PrimFunc]:
        """What host functions call, by name."""
        return {**self.kernels, **self.inner}


def plan_memory(
    name: str,
    function: Function,
    module: IRModule,
    donate: Mapping[int, int] | None = None,
    options: MemoryOptions | None = None,
) -> Plan:
    """Plan a function that LowerToTir has lowered; ``donate`` maps flattened results to flattened inputs.

    Checks: the function is what LowerToTir leaves, with sizes that are numbers. A result is written over a donated
    input only where no read comes after it; ``verify_plan`` checks the outcome.
    """
    whole = _Whole(module, options or MemoryOptions())
    flush = {FLUSH_SUBNORMALS: True} if module.attrs.get(FLUSH_SUBNORMALS) else {}
    return whole.plan(name, function, dict(donate or {}), flush)


@dataclass
class _Whole:
    """What the plans of a function and of its regions have in common."""

    module: IRModule
    options: MemoryOptions
    messages: list[str] = field(default_factory=list)
    count: int = 0  # of branches and loops
    recursions: dict[str, Recursion] = field(default_factory=dict)  # those that are being planned, by their labels

    def control(self, call: Call) -> Control | Recursion | SelfCall:
        """Plan the regions of a branch, a loop or a recursive function."""
        if call.op is SELF:
            return SelfCall(self.recursions[call.attrs["label"]], call)
        self.count += 1
        name = f"{op_of(call).short}_{self.count}"
        if call.op is RECURSE:
            return self.recursion(name, call)
        plans = {
            n: self.body(f"{name}_{n}", f, carried(call)) if n == "body" else self.region(f"{name}_{n}", f, {})
            for n, f in regions(call)
        }
        return Control.of(name, call, plans, self.messages)

    def recursion(self, name: str, call: Call) -> Recursion:
        around, label = dict(self.recursions), call.attrs["label"]
        found = self.recursions[label] = Recursion.of(name, call, around, self.messages)
        found.finish(self.region(f"{name}_function", call.attrs["function"], {}))
        self.recursions = around
        return found

    def body(self, name: str, function: Function, donate: dict[int, int]) -> Plan:
        """The plan of a loop's body, in which carries are overwritten, but for large ones that would have to be copied:
        these get a second place."""
        count, messages = self.count, len(self.messages)
        plan = self.region(name, function, donate)
        copies = copied(plan)
        large = {k for k, i in donate.items() if copies.get(i, 0) >= _WORTH_TWO_PLACES}
        if not large:
            return plan
        self.count = count
        del self.messages[messages:]
        other = self.region(name, function, {k: i for k, i in donate.items() if k not in large})
        if sum(copied(other).values()) < sum(copies.values()):
            return other
        self.count = count
        del self.messages[messages:]
        return self.region(name, function, donate)

    def region(self, name: str, function: Function, donate: Mapping[int, int]) -> Plan:
        return self.plan(name, function, donate, {"inner": True})

    def plan(self, name: str, function: Function, donate: Mapping[int, int], attrs: Mapping[str, Any]) -> Plan:
        return _planned(name, function, self, donate, attrs)


def _planned(name: str, function: Function, whole: _Whole, donate: Mapping[int, int], attrs: Mapping[str, Any]) -> Plan:
    options = whole.options
    steps = read_steps(function, whole.module, whole.control)
    proofs = Proofs(steps)
    donated = {k: i for k, i in donate.items() if k < len(steps.results)}
    results = place_results(steps, donated, proofs)
    smallest = options.smallest if options.in_place else 1 << 62
    candidates = []
    for order in orders(steps.steps, results.before, results.updates, phases(steps)):
        check_order(order, results.before)
        candidates.append(assign_blocks([*order, *results.copies], proofs, smallest))
    chosen = min(candidates, key=lambda a: a.peak)  # the first of equals
    chosen.apply()
    arena_bytes = assign_offsets(chosen.live)
    fresh = [v for _, v in results.fresh]
    host = host_function(name, steps, chosen.order, fresh, arena_bytes, options.poison, attrs, whole.messages)
    calls = [
        (s.name, span) for s, span in zip(_statements(host.function), host.spans, strict=True) if hasattr(s, "buffers")
    ]
    return Plan(
        host.function, host.kernels, _types(steps.inputs), flatten_info(function.ret_struct_info),
        [array for _, array in steps.constants], [k for k, _ in results.fresh], donated, arena_bytes, chosen.peak,
        [name for name, _ in calls], whole.messages, host.sources, _places(steps, chosen.order, results),
        [s.kernel for s in chosen.order], [span for _, span in calls], host.inner,
        {s.source: s.control for s in steps.steps if s.control is not None and s.source is not None},
        bool(steps.checks), steps.need_heap,
    )  # fmt: skip


def _types(values: list[Value]) -> list[TensorStructInfo]:
    return [TensorStructInfo(v.shape, v.dtype) for v in values]


def _statements(host: PrimFunc) -> tuple:
    return getattr(host.body, "stmts", (host.body,))


def _places(steps: Steps, order: list[Step], results: Results) -> list[Place]:
    """Where every value lives, for those who want to see it."""
    end = len(order)
    live: dict[Value, Interval] = dict.fromkeys([*steps.inputs, *(v for v, _ in steps.constants)], (-1, end))
    for k, step in enumerate(order):
        for value in step.values:
            live[value] = (live.get(value, (k, k))[0], max(k, live.get(value, (k, k))[1]))
    kept = {v for _, v in results.fresh} | {
        v for v in steps.results if v.step is not None and v.memory.place == "input"
    }
    saved = _saved(steps)
    workspaces = {w for s in order for w in s.workspaces}
    places = []
    for value, (first, last) in live.items():
        block = value.memory
        role = block.place if first < 0 else "result" if value in kept else "temporary"
        role = "workspace" if value in workspaces else "saved" if role == "temporary" and value in saved else role
        last = end if value in kept else last
        places.append(Place(value.name, role, block.place, block.index, block.offset, value.nbytes, first, last))
    return places


def _saved(steps: Steps) -> set[Value]:
    """Values that the first result's computation makes, and that something else reads."""
    if not steps.results or steps.results[0].step is None:
        return set()
    forward, stack = {steps.results[0].step}, [steps.results[0].step]
    while stack:
        for value in stack.pop().inputs:
            if value.step is not None and value.step not in forward:
                forward.add(value.step)
                stack.append(value.step)
    return {v for s in steps.steps if s not in forward for v in s.inputs if v.step in forward}
