"""The order of kernels: what must come before what, and orders in which values die early.

Besides the data that steps pass on, there is one more reason to wait. A step that overwrites a donated input waits for
all other readers of the old value, and for all checks: a failed call changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping

from pullback.relax.transform.memory.collectives import feeding, overlapped
from pullback.relax.transform.memory.values import Step, Value

Before = dict[Step, set[Step]]  # the steps that each step has to wait for
After = dict[Step, set[Step]]  # those that wait for it
_MUCH = 16  # times the bytes of little


def data_dependences(steps: list[Step]) -> Before:
    """Every step after those that compute what it reads."""
    return {s: {v.step for v in s.inputs if v.step is not None} for s in steps}


def followers(before: Before) -> After:
    """The same, seen from the steps that others wait for."""
    after: After = {s: set() for s in before}
    for step, sources in before.items():
        for source in sources:
            after[source].add(step)
    return after


def leads_to(step: Step, others: Collection[Step], after: After) -> bool:
    """Whether any of the others has to wait for the step, directly or through others."""
    stack, seen = [step] if others else [], {step}
    while stack:
        fresh = after[stack.pop()] - seen
        if not fresh.isdisjoint(others):
            return True
        seen |= fresh
        stack.extend(fresh)
    return False


def orders(
    steps: list[Step], before: Before, updates: Collection[Step], phases: Mapping[Step, tuple[str, str]] | None = None
) -> list[list[Step]]:
    """Orders worth trying, the preferred one first.

    The first keeps that of the program, but some steps come as soon as they can. A sum over much does, while that is in
    the cache; and so does an update of donated memory: right after its gradient, which dies there. The second takes at
    each point the step after which the fewest bytes are alive. Where ranks compute something together (``phases``, see
    ``collectives.py``), only the first is of use: what hides their messages is work between start and wait.
    """
    number = {s: k for k, s in enumerate(steps)}
    if phases:
        return [_overlapped(steps, before, updates, phases)]
    early = _topological(steps, before, lambda s, k: -2 if _condenses(s) else -1 if s in updates else k)
    return [early, _greedy(steps, before, number)]


def _overlapped(
    steps: list[Step], before: Before, updates: Collection[Step], phases: Mapping[Step, tuple[str, str]]
) -> list[Step]:
    """The first order, in which collectives start as early, and are awaited as late, as may be. Updates come first of
    all else: what was received lives until then."""
    after = followers(before)
    early = feeding(steps, after, phases)

    def key(step: Step, k: int) -> int:
        return -3 if step in early else -2 if step in updates else -1 if _condenses(step) else k

    plain = _topological(steps, before, lambda s, k: k)
    return overlapped(plain, before, after, phases, key)


def _condenses(step: Step) -> bool:
    """Whether a step makes little of much."""
    return _MUCH * sum(v.nbytes for v in step.outputs) <= sum(v.nbytes for v in dict.fromkeys(step.inputs))


def _topological(steps: list[Step], before: Before, key: Callable[[Step, int], int]) -> list[Step]:
    number = {s: k for k, s in enumerate(steps)}
    waiting, after = {s: len(before[s]) for s in steps}, followers(before)
    heap = [(key(s, number[s]), number[s]) for s in steps if not waiting[s]]
    heapq.heapify(heap)
    order: list[Step] = []
    while heap:
        step = steps[heapq.heappop(heap)[1]]
        order.append(step)
        for s in after[step]:
            waiting[s] -= 1
            if not waiting[s]:
                heapq.heappush(heap, (key(s, number[s]), number[s]))
    return order


def _greedy(steps: list[Step], before: Before, number: Mapping[Step, int]) -> list[Step]:
    readers: dict[Value, set[Step]] = {}  # those that are still to come
    for step in steps:
        for value in step.inputs:
            readers.setdefault(value, set()).add(step)
    waiting, after = {s: len(before[s]) for s in steps}, followers(before)
    heap: list[tuple[int, int]] = []

    def growth(step: Step) -> int:
        """Bytes more that are alive after the step."""
        new = sum(v.nbytes for v in step.outputs if v.block is None)
        return new - sum(v.nbytes for v in dict.fromkeys(step.inputs) if v.block is None and len(readers[v]) == 1)

    def push(step: Step) -> None:
        """A step that is pushed again grows less than before: its older entries come when it is done."""
        heapq.heappush(heap, (growth(step), number[step]))

    for step in steps:
        if not waiting[step]:
            push(step)
    done: dict[Step, None] = {}
    while heap:
        step = steps[heapq.heappop(heap)[1]]
        if step in done:
            continue
        done[step] = None
        for value in dict.fromkeys(step.inputs):
            readers[value].discard(step)
            if len(readers[value]) == 1:
                (last,) = readers[value]
                if not waiting[last]:
                    push(last)
        for s in after[step]:
            waiting[s] -= 1
            if not waiting[s]:
                push(s)
    return list(done)
