"""What a step takes on so many ranks, and what each of them holds: predictions, and their table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.runtime.tables import Table
from pullback.scale.network import Network
from pullback.scale.simulate import simulate
from pullback.scale.step import STAGES, Memory, Step, check_stage

STEPS = 20  # that are played where ranks differ


@dataclass(frozen=True)
class Prediction:
    """A step in one stage on so many ranks: mean seconds of a step, of which ``compute`` are kernels and ``waiting``
    waits for collectives; ``hidden``, the share of the collectives' time in which ranks compute; ``sent``, bytes of all
    arrays that collectives take. ``efficiency``: the time of a process alone with a rank's rows, over this time.
    ``formula``: bytes of parameters, gradients and optimizer states by ZeRO's formula."""

    stage: str
    ranks: int
    rows: int
    seconds: float
    compute: float
    waiting: float
    hidden: float
    efficiency: float
    sent: int
    memory: Memory
    formula: int

    @property
    def rows_per_second(self) -> float:
        return self.ranks * self.rows / self.seconds

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        memory = vars(self.memory) | {"total": self.memory.total}
        return vars(self) | {"rows_per_second": self.rows_per_second, "memory": memory}


def predict(
    step: Step, stage: str, ranks: int, network: Network, *, speed: float = 1.0, jitter: float = 0.0,
    slowest: float = 1.0, seed: int = 0,
) -> Prediction:  # fmt: skip
    """Predict a step. ``speed``: how many times as fast as where they were measured kernels run; ``jitter``: how much
    the speed of a rank differs from step to step, as the standard deviation of its logarithm; ``slowest``: how many
    times as long as the others one rank takes.

    >>> predict(step, "zero1", 1024, Network(parse_link("100Gb/10us"))).seconds
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 2:
        raise ArgumentError(f"the number of ranks must be an int ≥ 2, got {ranks!r}", hint="one rank sends nothing")
    if not 0 < speed < math.inf:
        raise ArgumentError(f"speed must be a number > 0, got {speed!r}", hint="2.0 is twice as fast as here")
    program = step.program(check_stage(stage), ranks).faster(speed)
    played = [
        simulate(program, ranks, network, threads=step.threads, speeds=speeds)
        for speeds in _speeds(ranks, jitter, slowest, seed)
    ]
    seconds, compute, waiting, covered = (
        math.fsum(getattr(p, name) for p in played) / len(played)
        for name in ("seconds", "compute", "waiting", "communication")
    )
    return Prediction(
        stage, ranks, step.rows, seconds, compute, waiting, 1.0 if not covered else max(0.0, 1 - waiting / covered),
        step.alone / speed / seconds, program.sent, step.memory(stage, ranks), step.formula(stage, ranks),
    )  # fmt: skip


def _speeds(ranks: int, jitter: float, slowest: float, seed: int) -> Iterator[Sequence[float]]:
    """What the kernels of each rank take, for each step that is played, over what they took."""
    if not jitter and slowest == 1.0:
        yield ()
        return
    draw = np.random.default_rng(seed)
    for _ in range(STEPS if jitter else 1):
        speeds: np.ndarray = np.exp(jitter * draw.standard_normal(ranks)) if jitter else np.ones(ranks)
        speeds[-1] *= slowest
        yield list(speeds)


def table(predictions: Sequence[Prediction], title: str = "") -> Table:
    """Predictions, a row for each."""
    heading = ["stage", "ranks", "step ms", "waits ms", "hidden", "efficiency", "rows/s", "MB a rank", "ZeRO's MB"]
    rows = [
        [
            p.stage, f"{p.ranks:,}", f"{1e3 * p.seconds:.3g}", f"{1e3 * p.waiting:.3g}", f"{p.hidden:.0%}",
            f"{p.efficiency:.0%}", f"{p.rows_per_second:,.0f}", _megabytes(p.memory.total),
            _megabytes(p.formula),
        ]
        for p in predictions
    ]  # fmt: skip
    return Table(heading, rows, title)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f}" if nbytes >= 1e7 else f"{nbytes / 1e6:.3g}"


def parse_ranks(text: str) -> tuple[int, ...]:
    """``8``, ``2,4,8`` or ``2-4096``, powers of 2 between, as numbers of ranks. Raises ArgumentError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or not 2 <= int(first) <= int(last or first):
            hint = "such as 8, or 2,4,8, or 2-4096: 2 and its doubles up to 4096"
            raise ArgumentError(f"ranks are numbers ≥ 2, got {part.strip()!r}", hint=hint)
        number = int(first)
        while number <= int(last or first):
            found.append(number)
            number *= 2
    return tuple(dict.fromkeys(found))


def parse_stages(text: str) -> tuple[str, ...]:
    """``data,zero1`` as names of stages, ``all`` as all of them. Raises ArgumentError."""
    return STAGES if text.strip() == "all" else tuple(dict.fromkeys(check_stage(s.strip()) for s in text.split(",")))


def parse_share(text: str) -> float:
    """``5%`` or ``0.05`` as a number. Raises ArgumentError."""
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise ArgumentError(f"a share is a number such as 5% or 0.05, got {text!r}", hint="0 where ranks do not differ")
    return value
