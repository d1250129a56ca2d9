"""A step of many ranks, played through event by event.

All ranks run the same program, so one of them stands for all: its threads, which compute or wait, and its engine, which
serves the collectives under way. The engine serves one round of messages at a time, the oldest collective's that is
ready; while one round is on its way (its latency), another is served. Short collectives rest until they are waited for.
Threads and engines share the cores of the node: where there are fewer cores than want to run, all run slower alike.

What differs between ranks is how long their kernels take. A rank's *lag* is how far it is behind the fastest; a
collective is ready when the last rank has started it, and ends for all at once, which levels their lags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pullback.ir.errors import InternalError
from pullback.scale.engine import Round
from pullback.scale.network import Network
from pullback.scale.program import Compute, Program, Start

_EPSILON = 1e-12  # seconds: less than that is rounding


@dataclass(frozen=True)
class Span:
    """Something that took from ``begin`` to ``end``, in seconds of the step: a kernel, a wait, or a collective."""

    name: str
    kind: str  # compute, wait, collective
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step: its seconds, until the last rank is done; of the fastest rank those of kernels (slower where cores are
    shared) and those in which it waits; those in which any collective is under way; and what happened when."""

    seconds: float
    compute: float
    waiting: float
    communication: float
    spans: tuple[Span, ...] = field(repr=False)

    @property
    def hidden(self) -> float:
        """The share of the collectives' time in which the rank computes: 1 where nothing waits, or is sent."""
        return 1.0 if not self.communication else max(0.0, 1 - self.waiting / self.communication)


def simulate(
    program: Program, ranks: int, network: Network, *, threads: int = 1, speeds: Sequence[float] = ()
) -> Timeline:
    """Play a step of so many ranks of ``threads`` threads each. ``speeds``: for each rank, what its kernels take over
    what they take in the program; all 1 if not given.

    >>> simulate(Program((Compute("k", 1.0),)), 4, Network(Link(1e9, 1e-5))).seconds
    1.0
    """
    return _Play(ranks, network, threads, np.asarray(speeds, np.float64)).run(program)


def _covered(spans: Sequence[Span]) -> float:
    """Seconds in which there is a collective."""
    total, end = 0.0, 0.0
    for begin, until in sorted((s.begin, s.end) for s in spans if s.kind == "collective"):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


@dataclass
class _Job:
    """A collective under way. ``ready``: when its next round may be served; ``rests``: not before it is waited for."""

    name: str
    rounds: deque[Round]
    begun: float
    ready: float
    rests: bool


@dataclass
class _Served:
    """The round that the engine serves: what is left of it."""

    job: _Job
    wire: float
    processor: float
    latency: float


class _Play:
    def __init__(self, ranks: int, network: Network, threads: int, speeds: np.ndarray) -> None:
        self.ranks, self.network, self.threads = ranks, network, threads
        self.slower = speeds - speeds.min() if speeds.size else np.zeros(0)
        self.fastest = float(speeds.min()) if speeds.size else 1.0
        self.lag = np.zeros(speeds.size)
        self.now = 0.0
        self.jobs: dict[int, _Job] = {}
        self.ended: set[int | None] = set()
        self.served: _Served | None = None
        self.spans: list[Span] = []

    def run(self, program: Program) -> Timeline:
        compute = waiting = 0.0
        for item in program.items:
            begun = self.now
            if isinstance(item, Compute):
                self.play(item.seconds * self.fastest)
                self.lag += item.seconds * self.slower
                compute += self.now - begun
                self.spans.append(Span(item.name, "compute", begun, self.now))
            elif isinstance(item, Start):
                rounds = deque(item.collective.rounds(self.ranks, self.network))
                ready, rests = self.now + self.last, bool(rounds) and not item.collective.is_long
                self.jobs[item.ticket] = _Job(str(item.collective), rounds, ready, ready, rests)
            else:
                self.wake(item.ticket)
                self.play(0.0, item.ticket)
                self.level(begun)
                waiting += self.now - begun
                if self.now > begun:
                    self.spans.append(Span("wait", "wait", begun, self.now))
        if self.jobs:
            raise InternalError("a step ends before its collectives do")
        return Timeline(self.now + self.last, compute, waiting, _covered(self.spans), tuple(self.spans))

    @property
    def last(self) -> float:
        """How far the slowest rank is behind the fastest."""
        return float(self.lag.max()) if self.lag.size else 0.0

    def level(self, begun: float) -> None:
        """The fastest rank has waited from ``begun`` until now, the others from when they were there."""
        if self.lag.size:
            there = np.maximum(begun + self.lag, self.now)
            self.now = float(there.min())
            self.lag = there - self.now

    def wake(self, ticket: int) -> None:
        """A collective is waited for, which all ranks do from when the last of them does."""
        if ticket in self.jobs and self.jobs[ticket].rests:
            job = self.jobs[ticket]
            job.rests, job.begun = False, self.now + self.last
            job.ready = job.begun

    def play(self, work: float, ticket: int | None = None) -> None:
        """Let time pass until so many seconds of kernels are computed, or until a collective has ended."""
        while True:
            self.serve(work > 0)
            if work <= _EPSILON and (ticket is None or ticket in self.ended):
                self.ended.discard(ticket)
                return
            threads, engine = self.rates(work > 0)
            served = None if self.served is None else self.served.job
            events = [job.ready - self.now for job in self.jobs.values() if job is not served and not job.rests]
            if self.served is not None:
                events += [self.served.wire, self.served.processor / engine]
            if work > 0:
                events.append(work / threads)
            if not events:
                raise InternalError(f"collective {ticket} is waited for, but was not started")
            step = min((e for e in events if e > _EPSILON), default=0.0)
            self.now += step
            work = max(0.0, work - step * threads)
            if self.served is not None:
                self.served.wire -= step
                self.served.processor -= step * engine

    def rates(self, computing: bool) -> tuple[float, float]:
        """Seconds of work in a second, of the rank's threads and of its engine."""
        network = self.network
        if network.cores is None:
            return 1.0, 1.0
        serving = self.served is not None and self.served.processor > 0
        wanted = network.on_node(self.ranks) * (self.threads * computing + serving)
        rate = min(1.0, network.cores / wanted) if wanted else 1.0
        return rate, rate

    def serve(self, computing: bool) -> None:
        """End the round that was served, and collectives whose last round is there; take up the next round, of the
        oldest collective that is ready."""
        if self.served is not None and max(self.served.wire, self.served.processor) <= _EPSILON:
            unseen = self.network.polling if computing else 0.0
            self.served.job.ready = self.now + self.served.latency + unseen
            self.served = None
        served = None if self.served is None else self.served.job
        for ticket, job in list(self.jobs.items()):
            if job is served or job.rests or job.ready > self.now + _EPSILON:
                continue
            if not job.rounds:
                del self.jobs[ticket]
                self.ended.add(ticket)
                self.spans.append(Span(job.name, "collective", job.begun, job.ready))
            elif self.served is None:
                found = job.rounds.popleft()
                self.served = _Served(job, found.wire, found.processor, found.latency)
