"""When collectives start, and when they are awaited.

    start(g1)   …the gradient before it…   start(g2)   …   wait(g1)   start(g3)   update   …   wait(g2)   …

What lies between start and wait hides what the ranks send. So a collective starts as soon as its operands are there,
which are computed as soon as they can be, and is awaited when there is nothing else to do, or when ``IN_FLIGHT`` others
of its kind have started: what is sent, and what it becomes, takes memory until then.

What could start at once, as parameters that are gathered from pieces, starts when its turn comes: as many as
``IN_FLIGHT`` are gathered ahead of the step that reads them. The piece of a parameter is taken just before its update.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from pullback.relax.transform.memory.values import Step, Steps
from pullback.tir.stmt import COLLECTIVE, Collective

START, WAIT, WHOLE = "start", "wait", "whole"
IN_FLIGHT = 2

Key = Callable[[Step, int], int]


def phases(steps: Steps) -> dict[Step, tuple[str, str]]:
    """The steps that start collectives, wait for them, or do the whole of one: which of these, and the kind."""
    found: dict[Step, tuple[str, str]] = {}
    for step in steps.steps:
        kernel = steps.kernels.get(step.kernel)
        if kernel is not None and (phase := kernel.attrs.get(COLLECTIVE)) is not None:
            body = kernel.body
            found[step] = str(phase), body.kind if isinstance(body, Collective) else ""
    return found


def overlapped(
    plain: Sequence[Step], before: Mapping[Step, set[Step]], after: Mapping[Step, set[Step]],
    phases: Mapping[Step, tuple[str, str]], key: Key,
) -> list[Step]:  # fmt: skip
    """An order in which what lies between start and wait hides what is sent. ``plain`` is one without that, by which
    it is known what is read first; ``key`` says which of other steps comes first."""
    return _Scheduler(plain, before, after, phases, key).run()


def feeding(
    steps: Sequence[Step], after: Mapping[Step, set[Step]], phases: Mapping[Step, tuple[str, str]]
) -> set[Step]:
    """The steps that compute nothing but what one collective sends: the gradient of a weight, not that of a layer's
    input, on which all layers before it depend."""
    sent_by: dict[Step, Step | None] = {}
    for step in reversed(steps):
        if phases.get(step, ("", ""))[0] == START:
            sent_by[step] = step
            sent_by |= {w: step for w in after[step] if phases.get(w, ("", ""))[0] == WAIT}  # it names what was sent
            continue
        starts = {sent_by.get(s) for s in after[step]}
        waits_for_something = any(v.step is not None for v in step.inputs)
        is_other = phases.get(step, (WHOLE, ""))[0] == WHOLE
        if is_other and len(starts) == 1 and waits_for_something and not step.may_fail:
            sent_by[step] = starts.pop()
    return {s for s, start in sent_by.items() if start is not None and phases.get(s, (WHOLE, ""))[0] == WHOLE}


class _Scheduler:
    def __init__(
        self, plain: Sequence[Step], before: Mapping[Step, set[Step]], after: Mapping[Step, set[Step]],
        phases: Mapping[Step, tuple[str, str]], key: Key,
    ) -> None:  # fmt: skip
        self.after, self.phases, self.key = after, phases, key
        self.number = {s: k for k, s in enumerate(plain)}
        self.steps = list(plain)
        self.missing = {s: len(before[s]) for s in plain}
        starts = [s for s in plain if self.is_start(s)]
        self.wait_of = {s: next(w for w in after[s] if phases.get(w, ("", ""))[0] == WAIT) for s in starts}
        self.start_of = {w: s for s, w in self.wait_of.items()}
        free = [s for s in starts if not any(v.step is not None for v in s.inputs)]
        self.before = before
        self.late = {s for s, (phase, _) in phases.items() if phase == WHOLE and not before[s] and after[s]}
        self.turns = deque(sorted(free, key=self.first_use))  # those whose operands are there from the beginning
        self.turn = set(free)
        self.ahead: set[Step] = set()  # of these, those that started and whose reader is still to come
        self.flying: dict[str, deque[Step]] = {}  # starts that were not awaited, by kind
        self.heap: list[tuple[int, int]] = []
        self.order: list[Step] = []
        self.done: set[Step] = set()

    def is_start(self, step: Step) -> bool:
        return self.phases.get(step, ("", ""))[0] == START

    def first_use(self, start: Step) -> int:
        wait = self.wait_of[start]
        return min((self.number[s] for s in self.after[wait]), default=len(self.number))

    def run(self) -> list[Step]:
        for step in self.steps:
            if not self.missing[step] and step not in self.turn and step not in self.late:
                self.push(step)
        for step in self.steps:
            self.take_late(step)
        self.take_turns()
        while self.heap or self.turns:
            if not self.heap:  # a step reads more of what is gathered than there may be ahead
                self.place(self.turns.popleft())
                continue
            step = self.steps[heapq.heappop(self.heap)[1]]
            if step not in self.done:
                self.place(step)
        return self.order

    def push(self, step: Step) -> None:
        at = self.number[step]
        if step in self.start_of:  # when there is nothing else to do, the one that is needed first
            rank = len(self.steps) + self.first_use(self.start_of[step])
        else:
            rank = -4 if self.is_start(step) else self.key(step, at)
        heapq.heappush(self.heap, (rank, at))

    def take_late(self, step: Step) -> None:
        """Do what a step waits for, where that was left for the last moment and nothing else is missing."""
        left = [s for s in self.before[step] if s in self.late] if self.missing[step] else []
        if left and self.missing[step] == len(left):
            self.late.difference_update(left)
            for other in sorted(left, key=self.number.__getitem__):
                self.place(other)

    def take_turns(self) -> None:
        """Start what could have started before, as many as there may be ahead."""
        while self.turns and len(self.ahead) < IN_FLIGHT and not self.missing[self.turns[0]]:
            self.place(self.turns.popleft())

    def place(self, step: Step) -> None:
        if self.is_start(step):
            self.make_room(self.phases[step][1])
            self.flying.setdefault(self.phases[step][1], deque()).append(step)
            if step in self.turn:
                self.ahead.add(step)
        elif step in self.start_of:
            start = self.start_of[step]
            self.flying[self.phases[start][1]].remove(start)
        self.order.append(step)
        self.done.add(step)
        read = {s for s in self.ahead if step in (self.after[self.wait_of[s]] or {self.wait_of[s]})}
        self.ahead -= read
        for follower in sorted(self.after[step], key=self.number.__getitem__):  # all ranks find the same order
            self.missing[follower] -= 1
            self.take_late(follower)
            if not self.missing[follower] and follower not in self.turn:
                self.push(follower)
        if read:
            self.take_turns()

    def make_room(self, kind: str) -> None:
        """Wait for the oldest of a kind where as many are in flight as there may be."""
        flying = self.flying.get(kind)
        if flying is not None and len(flying) >= IN_FLIGHT:
            self.place(self.wait_of[flying[0]])
