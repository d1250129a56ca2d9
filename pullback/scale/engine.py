"""What the engine's collectives ask of links and processors: the algorithms of ``runtime/native/ranks.c`` as phases.

A phase is a round of messages that a rank sends and receives at the same time. The next phase begins when all that it
sends is there: a rank's piece of a sum is sent on when all ranks' terms were added.

    direct      each rank exchanges with each other, one message a pair: of pieces, (n - 1) of ⌈b/n⌉ bytes
    tree        pairs of neighbours, then pairs of pairs: ⌈log₂ n⌉ rounds of one message of b bytes

Reductions of few bytes among few ranks are one round, in which each rank gets all terms. Of more bytes they are two
direct rounds: of pieces of terms, then of pieces of sums. Of few bytes among many ranks they are a tree to rank 0, and
back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.runtime.collectives import piece_length
from pullback.scale.network import Link, Network

SMALL_BYTES = 16 << 10  # up to which a reduction is one round, or a tree
FEW_RANKS = 8  # up to which each rank gets all terms of a small reduction


@dataclass(frozen=True)
class Phase:
    """Seconds that a round takes: ``latency`` of which no link or processor knows, ``wire`` of the link, ``processor``
    of a core of the rank's node."""

    latency: float
    wire: float
    processor: float

    @property
    def seconds(self) -> float:
        """With nothing else on link and processor."""
        return self.latency + max(self.wire, self.processor)


@dataclass(frozen=True)
class Collective:
    """What ranks compute together: ``kind`` of ``runtime/collectives.py``, ``arrays`` by their elements as a whole, and
    the bytes of an element."""

    kind: str
    arrays: tuple[int, ...]
    itemsize: int = 4

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays as a whole."""
        return sum(self.arrays) * self.itemsize

    def piece_bytes(self, ranks: int) -> int:
        """Bytes of a rank's pieces."""
        return sum(piece_length(n, ranks) for n in self.arrays) * self.itemsize

    def phases(self, ranks: int, network: Network) -> tuple[Phase, ...]:
        """The rounds of a rank that is not faster than others."""
        if ranks == 1 or self.kind in ("piece", "rank"):
            return ()
        piece, whole = self.piece_bytes(ranks), self.nbytes
        if self.kind == "broadcast":
            return tree(whole, ranks, network, adds=False)
        if self.kind in ("gather_pieces", "all_to_all"):
            return (direct(piece, ranks, network, adds=False),)
        if self.kind == "reduce_pieces":
            return (direct(piece, ranks, network, adds=True),)
        assert self.kind == "reduce", self.kind
        if whole > SMALL_BYTES:
            return direct(piece, ranks, network, adds=True), direct(piece, ranks, network, adds=False)
        if ranks <= FEW_RANKS:
            return (direct(whole, ranks, network, adds=True),)
        up = tree(whole, ranks, network, adds=True)
        return (*up, *reversed(tree(whole, ranks, network, adds=False)))

    def seconds(self, ranks: int, network: Network) -> float:
        """From start to end, with nothing else going on."""
        return sum(phase.seconds for phase in self.phases(ranks, network))

    def __str__(self) -> str:
        return f"{self.kind} of {self.nbytes:,} bytes"


def direct(nbytes: int, ranks: int, network: Network, adds: bool) -> Phase:
    """A message of so many bytes from each rank to each other; with ``adds`` what arrives is added up."""
    on_node = network.on_node(ranks)
    near, far = on_node - 1, ranks - on_node
    link, local = network.link, network.local
    moved = near * nbytes / local.bandwidth  # by a processor: both ends share memory
    wire = max(moved, on_node * far * nbytes / link.bandwidth)
    messages = 2 * (near * local.message + far * link.message)
    packed = 2 * (near + far) * nbytes / network.copying  # at either end
    added = (near + far) * nbytes / network.addition if adds else 0.0
    latency = max(link.latency if far else 0.0, local.latency if near else 0.0)
    return Phase(latency, wire, moved + messages + packed + added)


def tree(nbytes: int, ranks: int, network: Network, adds: bool) -> tuple[Phase, ...]:
    """Rounds in which rank r gives what it has to rank r - d, d = 1, 2, 4, …"""
    found = []
    for level in range(math.ceil(math.log2(ranks))):
        near = 1 << level < network.on_node(ranks)
        link: Link = network.local if near else network.link
        wire = nbytes / link.bandwidth
        processor = 2 * link.message + (wire if near else 0.0) + (nbytes / network.addition if adds else 0.0)
        found.append(Phase(link.latency, wire, processor))
    return tuple(found)


def total(phases: Sequence[Phase]) -> Phase:
    """All phases added up."""
    return Phase(
        sum(p.latency for p in phases), sum(p.wire for p in phases), sum(p.processor for p in phases)
    )  # fmt: skip
