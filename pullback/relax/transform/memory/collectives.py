"""When collectives start, and when they are awaited.

    start(g1)   …the gradient before it…   start(g2)   …   wait(g1)   start(g3)   …   wait(g2)   update   wait(g3) …

What lies between start and wait hides what the ranks send. A reduction starts as soon as its operands are there. What
depends on nothing that the function computes, as parameters that are gathered from pieces, could start at once: it
takes its place in the sequence by its first reader. Collectives start in one sequence, at most ``IN_FLIGHT`` at a time,
since what is sent, and what it becomes, takes memory until it was awaited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.relax.transform.memory.values import Step, Steps
from pullback.tir.stmt import COLLECTIVE

START, WAIT = "start", "wait"
IN_FLIGHT = 2


def phases(steps: Steps) -> dict[Step, str]:
    """The steps that start collectives, and those that wait for them."""
    found: dict[Step, str] = {}
    for step in steps.steps:
        kernel = steps.kernels.get(step.kernel)
        phase = None if kernel is None else kernel.attrs.get(COLLECTIVE)
        if phase in (START, WAIT):
            found[step] = str(phase)
    return found


def waits_of(starts: Sequence[Step], phases: Mapping[Step, str], after: Mapping[Step, set[Step]]) -> dict[Step, Step]:
    """The step that waits for what each step starts: it reads the ticket."""
    return {s: next(w for w in after[s] if phases.get(w) == WAIT and s.outputs[-1] in w.inputs) for s in starts}


def first_use(
    step: Step, phases: Mapping[Step, str], after: Mapping[Step, set[Step]], number: Mapping[Step, int]
) -> int:
    """The place of a step in the order of the program; that of its first reader, of what could start at once."""
    if phases[step] == WAIT or any(v.step is not None for v in step.inputs):
        return number[step]
    wait = waits_of([step], phases, after)[step]
    return min((number[s] for s in after[wait]), default=number[step])


def in_flight(
    before: Mapping[Step, set[Step]], starts: Sequence[Step], waits: Mapping[Step, Step]
) -> dict[Step, set[Step]]:
    """The dependences, with those that keep the sequence of ``starts`` and limit how many run at a time."""
    result = {s: set(b) for s, b in before.items()}
    for k, step in enumerate(starts):
        if k:
            result[step].add(starts[k - 1])
        if k >= IN_FLIGHT:
            result[step].add(waits[starts[k - IN_FLIGHT]])
    return result
