"""Steps as one rank runs them, as they were measured: for two numbers of ranks, and by that for others.

What a kernel or an array is for n ranks lies on a line through both: in 1/n where more ranks make it less, as pieces of
parameters, in n where they make it more, as what is gathered of all ranks. A kernel takes time in proportion to the
bytes that it moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pullback.ir.errors import ArgumentError, suggestion
from pullback.runtime.collectives import KINDS
from pullback.scale.engine import Collective
from pullback.scale.program import Compute, Item, Program, Start, Wait

STAGES = ("data", "zero1", "zero2", "zero3")  # by their number in ZeRO
FORMAT = 1  # of the file
Two = tuple[int, int]  # for the two numbers of ranks


@dataclass(frozen=True)
class Kernel:
    """A kernel call: its seconds for the first number of ranks, and the bytes that it moves for both."""

    name: str
    seconds: float
    nbytes: Two = (1, 1)


@dataclass(frozen=True)
class Begin:
    """The start of a collective: its kind, the elements of its arrays for both numbers of ranks, and the bytes of an
    element."""

    ticket: int
    kind: str
    arrays: tuple[Two, ...]
    itemsize: int


@dataclass(frozen=True)
class End:
    """The wait for a collective."""

    ticket: int


@dataclass(frozen=True)
class Memory:
    """Bytes of a rank at the peak of a step: of what it holds between steps, and in the arena. ``gradients``: what
    there is of gradients, for ZeRO's formula."""

    parameters: int
    optimizer_states: int
    others: int
    arena: int

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@dataclass(frozen=True)
class RankStep:
    """The step of a rank in one stage: what runs in order, and what it takes of memory for both numbers of ranks."""

    items: tuple[Kernel | Begin | End, ...]
    memory: tuple[Memory, Memory]

    def program(self, two: Two, ranks: int) -> Program:
        """What a rank of so many runs."""
        found: list[Item] = []
        for item in self.items:
            if isinstance(item, Kernel):
                scale = between(item.nbytes, two, ranks) / item.nbytes[0] if item.nbytes[0] else 1.0
                found.append(Compute(item.name, item.seconds * scale))
            elif isinstance(item, Begin):
                arrays = tuple(round(between(n, two, ranks)) for n in item.arrays)
                found.append(Start(item.ticket, Collective(item.kind, arrays, item.itemsize)))
            else:
                found.append(Wait(item.ticket))
        return Program(tuple(found))

    def memory_of(self, two: Two, ranks: int) -> Memory:
        """What a rank of so many holds."""
        first, last = (vars(m) for m in self.memory)
        return Memory(**{name: round(between((first[name], last[name]), two, ranks)) for name in first})


@dataclass(frozen=True)
class Step:
    """A model's step: ``rows`` of the batch on each rank, whose kernels ran on ``threads`` threads. ``measured``: for
    which two numbers of ranks. ``alone``: seconds of a process without others on as many rows, ``call`` those of a step
    outside of kernels. ``parameters``, ``gradients``, ``optimizer_states``: bytes of all of them, whole."""

    title: str
    rows: int
    threads: int
    measured: Two
    alone: float
    call: float
    parameters: int
    gradients: int
    optimizer_states: int
    stages: Mapping[str, RankStep]

    def of(self, stage: str) -> RankStep:
        """The step in a stage. An ArgumentError where it was not measured."""
        if stage not in self.stages:
            hint = f"it was in {', '.join(self.stages) or 'none'}"
            raise ArgumentError(f"{self.title} was not measured in stage {stage!r}", hint=hint)
        return self.stages[stage]

    def program(self, stage: str, ranks: int) -> Program:
        """What a rank of so many runs in a step."""
        found = self.of(stage).program(self.measured, ranks)
        return Program((Compute("call", self.call), *found.items))

    def memory(self, stage: str, ranks: int) -> Memory:
        """What a rank of so many holds at the peak of a step."""
        return self.of(stage).memory_of(self.measured, ranks)

    def formula(self, stage: str, ranks: int) -> int:
        """Bytes of parameters, gradients and optimizer states of a rank as ZeRO's authors count them: of what a stage
        divides, 1/ranks."""
        number = STAGES.index(stage)
        parts = ((self.optimizer_states, 1), (self.gradients, 2), (self.parameters, 3))
        return sum(-(-nbytes // ranks) if number >= first else nbytes for nbytes, first in parts)

    def condensed(self) -> Step:
        """The same with fewer kernels: those that follow each other, and grow alike, are one."""
        stages = {name: replace(s, items=tuple(_condensed(s.items))) for name, s in self.stages.items()}
        return replace(self, stages=stages)

    def save(self, path: str | Path) -> None:
        """Write a file that :func:`load` reads: the step, condensed."""
        step = self.condensed()
        fields = asdict(step) | {"format": FORMAT}
        for name, stage in step.stages.items():
            fields["stages"][name]["items"] = [[type(i).__name__, *vars(i).values()] for i in stage.items]
        Path(path).write_text(json.dumps(fields, separators=(",", ":")) + "\n", encoding="utf-8")


def _condensed(items: Iterable[Kernel | Begin | End]) -> Iterator[Kernel | Begin | End]:
    run: list[Kernel] = []
    for item in (*items, None):
        if isinstance(item, Kernel) and (not run or _grow_alike(run[0], item)):
            run.append(item)
            continue
        if run:
            first, last = (sum(k.nbytes[i] for k in run) for i in (0, 1))
            name = run[0].name if len(run) == 1 else f"{len(run)} kernels"
            yield Kernel(name, math.fsum(k.seconds for k in run), (first, last))
        run = [item] if isinstance(item, Kernel) else []
        if isinstance(item, (Begin, End)):
            yield item


def _grow_alike(one: Kernel, other: Kernel) -> bool:
    (a, b), (c, d) = one.nbytes, other.nbytes
    return one.nbytes == other.nbytes or (a > 0 and c > 0 and a * d == b * c)


def between(values: Two, two: Two, ranks: int) -> float:
    """What is values[0] for two[0] ranks and values[1] for two[1], for another number of ranks."""
    (a, b), (m, n) = values, two
    if a == b:
        return a
    if a < b:
        return a + (b - a) * (ranks - m) / (n - m)
    return a + (b - a) * (1 / ranks - 1 / m) / (1 / n - 1 / m)


def check_stage(name: str) -> str:
    """The name of a stage. Raises ArgumentError for another."""
    if name not in STAGES:
        hint = f"they are {', '.join(STAGES)}"
        raise ArgumentError(f"there is no stage {name!r}{suggestion(name, STAGES)}", hint=hint)
    return name


def load(path: str | Path) -> Step:
    """What :meth:`Step.save` wrote. An ArgumentError for anything else."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        if fields.pop("format") != FORMAT:
            raise ValueError("it has another version")
        stages = {
            check_stage(name): RankStep(
                tuple(map(_item, s["items"])), (Memory(**s["memory"][0]), Memory(**s["memory"][1]))
            )
            for name, s in fields.pop("stages").items()
        }
        step = Step(**{**fields, "measured": _two(fields["measured"])}, stages=stages)
        for stage in step.stages.values():
            _check_tickets(stage)
        return step
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        hint = "python -m pullback simulate MODEL --save step.json writes one"
        problem = getattr(error, "message", None) or error or type(error).__name__
        raise ArgumentError(f"{path} is no measured step: {problem}", hint=hint) from None


def _stage(fields: dict[str, Any]) -> RankStep:
    first, last = (Memory(**m) for m in fields["memory"])
    return RankStep(tuple(map(_item, fields["items"])), (first, last))


def _two(values: Any) -> Two:
    first, second = map(int, values)
    return first, second


def _item(values: list[Any]) -> Kernel | Begin | End:
    kind, *rest = values
    if kind == "Kernel":
        return Kernel(str(rest[0]), float(rest[1]), _two(rest[2]))
    if kind == "Begin":
        ticket, collective, arrays, itemsize = rest
        if collective not in KINDS:
            raise ValueError(f"there is no collective {collective!r}")
        return Begin(int(ticket), collective, tuple(map(_two, arrays)), int(itemsize))
    if kind == "End":
        return End(int(rest[0]))
    raise ValueError(f"there is no item {kind!r}")


def _check_tickets(stage: RankStep) -> None:
    """Each collective is started once, and waited for afterwards."""
    going: set[int] = set()
    for item in stage.items:
        if isinstance(item, Begin):
            if item.ticket in going:
                raise ValueError(f"collective {item.ticket} is started twice")
            going.add(item.ticket)
        elif isinstance(item, End):
            going.remove(item.ticket)
    if going:
        raise ValueError(f"nobody waits for collective {min(going)}")
