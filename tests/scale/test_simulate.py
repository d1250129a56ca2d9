"""Steps played through, against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pullback.scale.engine import Collective
from pullback.scale.network import Link, Network
from pullback.scale.program import Compute, Item, Program, Start, Wait
from pullback.scale.simulate import simulate

NETWORK = Network(Link(1e9, 1e-5, 0.0), addition=math.inf, copying=math.inf, polling=0.0)
RANKS, ELEMENTS = 4, 250_000
ROUND = 3 * ELEMENTS / 1e9  # seconds of the link in each of a reduction's two rounds
REDUCE = Collective("reduce", (ELEMENTS,))


def played(*items: Item, **options):
    return simulate(Program(items), RANKS, options.pop("network", NETWORK), **options)


def test_kernels_alone() -> None:
    found = played(Compute("a", 1e-3), Compute("b", 2e-3))
    assert found.seconds == found.compute == pytest.approx(3e-3) and found.waiting == 0 and found.hidden == 1
    assert [(s.name, s.kind) for s in found.spans] == [("a", "compute"), ("b", "compute")]


def test_a_collective_alone() -> None:
    found = played(Start(0, REDUCE), Wait(0))
    assert found.seconds == found.waiting == found.communication == pytest.approx(2 * (ROUND + 1e-5))
    assert found.hidden == 0


@pytest.mark.parametrize("seconds", [1e-4, 1e-3, 5e-3])
def test_what_is_between_start_and_wait_hides_it(seconds: float) -> None:
    found = played(Start(0, REDUCE), Compute("a", seconds), Wait(0))
    alone = 2 * (ROUND + 1e-5)
    assert found.seconds == pytest.approx(max(seconds, alone))
    assert found.hidden == pytest.approx(min(1.0, seconds / alone))


def test_two_share_the_link() -> None:
    """The second is served while the first one's messages are on their way, and no later."""
    found = played(Start(0, REDUCE), Start(1, REDUCE), Wait(0), Wait(1))
    assert found.seconds == pytest.approx(4 * ROUND + 1e-5)
    ends = [s.end for s in found.spans if s.kind == "collective"]
    assert ends[0] < ends[1]


def test_many_are_bounded_by_the_link() -> None:
    items: list[Item] = []
    for k in range(40):
        items += [Start(k, REDUCE), *([Wait(k - 1)] if k else [])]
    found = played(*items, Wait(39))
    assert found.seconds == pytest.approx(40 * 2 * ROUND, rel=1e-2) and found.seconds >= 80 * ROUND


def test_short_ones_rest_until_they_are_waited_for() -> None:
    short = Collective("reduce", (2,))
    found = played(Start(0, short), Compute("a", 1e-3), Wait(0))
    assert found.seconds == pytest.approx(1e-3 + short.seconds(RANKS, NETWORK))


def test_who_computes_sees_messages_late() -> None:
    """The engine's own thread looks for them now and then: of both rounds."""
    network = replace(NETWORK, polling=1e-4)
    items = [Start(0, REDUCE), Compute("a", 5e-3), Wait(0)]
    ends = [next(s.end for s in played(*items, network=n).spans if s.kind == "collective") for n in (NETWORK, network)]
    assert ends[1] - ends[0] == pytest.approx(2e-4)
    assert played(Start(0, REDUCE), Wait(0), network=network) == played(Start(0, REDUCE), Wait(0))


def test_one_core_does_both() -> None:
    """Adding up takes as much from the kernels as it takes: nothing is hidden."""
    network = Network(Link(1e12, 0.0, 0.0), cores=1, addition=1e9, copying=math.inf, polling=0.0)
    work = 3 * ELEMENTS / 1e9
    found = played(Start(0, REDUCE), Compute("a", 4e-3), Wait(0), network=network)
    assert found.seconds == pytest.approx(4e-3 + work, rel=1e-2) and found.waiting == 0
    spare = Network(Link(1e12, 0.0, 0.0), cores=2, addition=1e9, copying=math.inf, polling=0.0)
    assert played(Start(0, REDUCE), Compute("a", 4e-3), Wait(0), network=spare).seconds == pytest.approx(4e-3)


def test_more_ranks_than_cores_take_turns() -> None:
    network = Network(Link(1e9, 1e-5, 0.0), ranks_per_node=4, cores=2)
    assert played(Compute("a", 1e-3), network=network).seconds == pytest.approx(2e-3)
    assert played(Compute("a", 1e-3), network=network, threads=2).seconds == pytest.approx(4e-3)


def test_all_wait_for_the_slowest() -> None:
    items = [Compute("a", 1e-3), Start(0, REDUCE), Wait(0), Compute("b", 1e-3)]
    alone = 2 * (ROUND + 1e-5)
    even, uneven = played(*items), played(*items, speeds=[1, 1, 1.5, 1])
    assert even.seconds == pytest.approx(2e-3 + alone)
    assert uneven.seconds == pytest.approx(3e-3 + alone)
    assert uneven.waiting == pytest.approx(alone + 0.5e-3)
    assert played(*items, speeds=[2.0] * 4).seconds == pytest.approx(4e-3 + alone)


def test_a_slow_rank_is_hidden_where_there_is_slack() -> None:
    """Where each rank is slow once, kernels after the wait hide nothing, but those before it do."""
    items = [Start(0, REDUCE), Compute("a", 1e-3), Wait(0)]
    alone = 2 * (ROUND + 1e-5)
    assert alone > 1.4e-3 and played(*items, speeds=[1, 1.4, 1, 1]).seconds == pytest.approx(alone)


@pytest.mark.parametrize("seed", range(20))
def test_bounds(seed: int) -> None:
    """No step is shorter than its kernels, or than its link is busy; none longer than one thing after another."""
    draw = np.random.default_rng(seed)
    items: list[Item] = []
    going: list[int] = []
    for k in range(12):
        items.append(Compute(f"k{k}", float(draw.exponential(5e-4))))
        kind = draw.choice(["reduce", "reduce_pieces", "gather_pieces", "broadcast"])
        items.append(Start(k, Collective(str(kind), (int(draw.integers(1, 300_000)),))))
        going.append(k)
        while len(going) > 2 or (going and draw.random() < 0.3):
            items.append(Wait(going.pop(0)))
    program = Program((*items, *map(Wait, going)))
    ranks = int(draw.integers(2, 20))
    found = simulate(program, ranks, NETWORK)
    rounds = [r for c in program.collectives for r in c.rounds(ranks, NETWORK)]
    assert max(program.compute, sum(r.wire for r in rounds)) <= found.seconds * (1 + 1e-9)
    assert found.seconds <= (program.compute + sum(r.seconds for r in rounds)) * (1 + 1e-9)
    assert found.compute + found.waiting == pytest.approx(found.seconds)
