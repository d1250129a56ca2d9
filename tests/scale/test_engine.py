"""What collectives take, against ranks whose messages are sent one by one."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from pullback.scale import engine
from pullback.scale.engine import Collective
from pullback.scale.network import Link, Network

NATIVE = Path(engine.__file__).parents[1] / "runtime" / "native"
FREE = {"addition": math.inf, "copying": math.inf}  # a processor that takes no time
LINK = Link(1e9, 1e-5, 0.0)


def exchanged(ranks: int, nbytes: float, begin: list[float]) -> list[float]:
    """When each rank has a message of each other, where each sends one after another to its neighbours on the right,
    over a link of its own, and receives over another."""
    arrivals: list[list[float]] = [[] for _ in range(ranks)]
    for sender in range(ranks):
        for k in range(1, ranks):
            arrivals[(sender + k) % ranks].append(begin[sender] + k * nbytes / LINK.bandwidth + LINK.latency)
    found = []
    for rank in range(ranks):
        time = 0.0
        for arrival in sorted(arrivals[rank]):  # a message takes the receiving link as long as the sending one
            time = max(arrival, time + nbytes / LINK.bandwidth)
        found.append(time)
    return found


def climbed(ranks: int, nbytes: float) -> float:
    """When rank 0 has the sum over a tree, and the last rank the sum back from there."""
    message = LINK.latency + nbytes / LINK.bandwidth
    ready = [0.0] * ranks
    distance = 1
    while distance < ranks:
        for r in range(0, ranks, 2 * distance):
            if r + distance < ranks:
                ready[r] = max(ready[r], ready[r + distance]) + message
        distance *= 2
    there = {0: ready[0]}
    while distance > 1:
        distance //= 2
        for r in list(there):
            if r + distance < ranks:
                there[r] = there[r + distance] = there[r] + message  # the next message leaves when this one has left
    return max(there.values())


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("elements", [5_000, 250_000, 1_000_003])
def test_direct_rounds(ranks: int, elements: int) -> None:
    part = 4 * -(-elements // ranks)
    once = exchanged(ranks, part, [0.0] * ranks)
    twice = exchanged(ranks, part, once)
    network = Network(LINK, **FREE)
    assert Collective("reduce_pieces", (elements,)).seconds(ranks, network) == pytest.approx(max(once))
    assert Collective("gather_pieces", (elements,)).seconds(ranks, network) == pytest.approx(max(once))
    assert Collective("reduce", (elements,)).seconds(ranks, network) == pytest.approx(max(twice))


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_few_ranks_send_all_of_a_small_reduction(ranks: int) -> None:
    once = exchanged(ranks, 4096, [0.0] * ranks)
    assert Collective("reduce", (1024,)).seconds(ranks, Network(LINK, **FREE)) == pytest.approx(max(once))


@pytest.mark.parametrize("ranks", [9, 16, 17, 33, 100])
def test_many_ranks_send_a_small_reduction_by_a_tree(ranks: int) -> None:
    found = Collective("reduce", (1024,)).seconds(ranks, Network(LINK, **FREE))
    assert found == pytest.approx(climbed(ranks, 4096), rel=1e-9)


@pytest.mark.parametrize("kind", ["piece", "rank"])
def test_what_sends_nothing(kind: str) -> None:
    assert Collective(kind, (1000,)).rounds(8, Network(LINK)) == ()


def test_one_rank_and_no_elements() -> None:
    assert Collective("reduce", (1 << 20,)).rounds(1, Network(LINK)) == ()
    assert Collective("reduce", (0,)).rounds(8, Network(LINK)) == ()


def test_ranks_of_a_node_share_its_link() -> None:
    """Four nodes of two ranks: six of seven messages leave the node, over a link that both ranks use."""
    local = Link(1e10, 1e-6, 0.0)
    network = Network(LINK, local, 2, **FREE)
    (found,) = Collective("gather_pieces", (8 * 1000,)).rounds(8, network)
    assert found.wire == pytest.approx(2 * 6 * 4000 / 1e9) and found.latency == 1e-5
    assert found.processor == pytest.approx(4000 / 1e10)
    (found,) = Collective("gather_pieces", (8 * 1000,)).rounds(8, Network(LINK, local, 8, **FREE))
    assert found.wire == found.processor == pytest.approx(7 * 4000 / 1e10) and found.latency == 1e-6


def test_a_processor_adds_packs_and_handles_messages() -> None:
    network = Network(Link(1e12, 0.0, 1e-6), addition=1e9, copying=1e10)
    one, several = (Collective("reduce_pieces", arrays).rounds(5, network)[0] for arrays in [(5000,), (2500, 2500)])
    assert one.processor == pytest.approx(2 * 4 * 1e-6 + 4 * 4000 / 1e9)
    assert several.processor == pytest.approx(one.processor + 4 * 4000 / 1e10)


def test_item_sizes() -> None:
    assert Collective("reduce", (1000, 24), 2).nbytes == 2048
    assert not Collective("reduce", (4096,)).is_long and Collective("reduce", (4097,)).is_long


def test_constants_are_those_of_the_engine() -> None:
    text = (NATIVE / "collective.c").read_text()
    found = {name: int(value) for name, value in re.findall(r"\b(DIRECT_\w+) = (\d+)", text)}
    assert found == {"DIRECT_BYTES": engine.DIRECT_BYTES, "DIRECT_RANKS": engine.DIRECT_RANKS}
