"""What the engine's collectives ask of links and processors: the algorithms of ``runtime/native/collective.c``, as
rounds.

In a round a rank sends and receives messages at the same time. The next round begins when all of them are there: a
rank's part of a sum is sent on when all ranks' terms were added.

    direct      each rank exchanges with each other, one message a pair
    tree        rank r gives what it has to rank r - d, d = 1, 2, 4, …: ⌈log₂ n⌉ rounds of one message

Reductions of few bytes among few ranks are one round, in which each rank gets all terms. Of more bytes they are two
direct rounds: of parts of terms, ⌈b/n⌉ bytes each, then of parts of the sum. Of few bytes among many ranks they are a
tree to rank 0, and back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pullback.runtime.collectives import LOCAL, piece_length
from pullback.scale.network import Network

DIRECT_BYTES = 16 << 10  # up to which a reduction is one round, or a tree; longer ones go on while nobody waits
DIRECT_RANKS = 8  # up to which each rank gets all terms of a small reduction


@dataclass(frozen=True)
class Round:
    """Seconds that a round takes: ``wire`` of the link, ``processor`` of a core of the rank's node, and then
    ``latency``, in which both do something else."""

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

    @property
    def is_long(self) -> bool:
        """Whether it goes on while nobody waits for it."""
        return self.nbytes > DIRECT_BYTES

    def rounds(self, ranks: int, network: Network) -> tuple[Round, ...]:
        """What each rank does, one round after another."""
        if ranks == 1 or self.kind in LOCAL or not self.nbytes:
            return ()
        many = len(self.arrays) > 1
        if self.kind == "broadcast":
            return tree(self.nbytes, ranks, network, adds=False)
        if self.kind == "reduce":
            return self._reduction(ranks, network)
        piece = sum(piece_length(n, ranks) for n in self.arrays) * self.itemsize
        if self.kind == "reduce_pieces":
            return (direct(piece, ranks, network, copied=many, adds=True),)
        assert self.kind in ("gather_pieces", "all_to_all"), self.kind
        return (direct(piece, ranks, network, copied=2.0 * many),)

    def _reduction(self, ranks: int, network: Network) -> tuple[Round, ...]:
        if self.is_long:
            part = piece_length(sum(self.arrays), ranks) * self.itemsize
            parted = min(1.0, (len(self.arrays) - 1) / ranks)  # the share of messages that are not in one piece
            first = direct(part, ranks, network, copied=parted, adds=True)
            return first, direct(part, ranks, network, copied=2 * parted)
        if ranks <= DIRECT_RANKS:
            return (direct(self.nbytes, ranks, network, adds=True),)
        there = tree(self.nbytes, ranks, network, adds=True)
        return (*there, *reversed(tree(self.nbytes, ranks, network, adds=False)))

    def seconds(self, ranks: int, network: Network) -> float:
        """From start to end, with nothing else going on."""
        return sum(r.seconds for r in self.rounds(ranks, network))

    def __str__(self) -> str:
        return f"{self.kind} of {self.nbytes:,} bytes"


def direct(nbytes: int, ranks: int, network: Network, *, copied: float = 0.0, adds: bool = False) -> Round:
    """A message of so many bytes from each rank to each other. ``copied``: how often a processor copies it, besides the
    transport; with ``adds`` what arrives is added up."""
    on_node = network.on_node(ranks)
    near, far = on_node - 1, ranks - on_node
    link, local = network.link, network.local
    moved = near * nbytes / local.bandwidth  # by a processor: both ends share memory
    wire = max(moved, on_node * far * nbytes / link.bandwidth)
    work = moved + 2 * (near * local.message + far * link.message)
    work += copied * (near + far) * nbytes / network.copying
    work += (near + far) * nbytes / network.addition if adds else 0.0
    return Round(max(link.latency if far else 0.0, local.latency if near else 0.0), wire, work)


def tree(nbytes: int, ranks: int, network: Network, *, adds: bool) -> tuple[Round, ...]:
    """Rounds in which rank r gives what it has to rank r - d, d = 1, 2, 4, …"""
    found = []
    for level in range(math.ceil(math.log2(ranks))):
        near = 1 << level < network.on_node(ranks)
        link = network.local if near else network.link
        wire = nbytes / link.bandwidth
        work = 2 * link.message + (wire if near else 0.0) + (nbytes / network.addition if adds else 0.0)
        found.append(Round(link.latency, wire, work))
    return tuple(found)
