"""The vertices of least weight that part one side of a graph from the other: Dinic's algorithm.

    s → a(3) → b(1) → t          min_vertex_cut gives {b}

Every vertex is an edge from where it is entered to where it is left, whose capacity is the vertex's weight; a greatest
flow saturates a least cut. Source: Ford and Fulkerson, Maximal flow through a network, 1956.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)

ENDLESS = 1 << 62  # the weight of a vertex that is never cut


def min_vertex_cut(
    weights: Mapping[Vertex, int],
    edges: Mapping[Vertex, Collection[Vertex]],
    sources: Collection[Vertex],
    sinks: Collection[Vertex],
) -> set[Vertex]:
    """The set of vertices of least total weight without which no path leads from ``sources`` to ``sinks``.

    Of several such sets it is the one nearest to the sinks. ``weights`` names all vertices; ``edges`` gives those that
    follow one. A path of vertices of the weight ``ENDLESS`` alone cannot be cut, and must not exist.
    """
    network = _Network()
    inner = {vertex: (network.node(), network.node()) for vertex in weights}
    for vertex, weight in weights.items():
        network.edge(*inner[vertex], weight)
        for following in edges.get(vertex, ()):
            network.edge(inner[vertex][1], inner[following][0], ENDLESS)
    for vertex in sources:
        network.edge(network.source, inner[vertex][0], ENDLESS)
    for vertex in sinks:
        network.edge(inner[vertex][1], network.sink, ENDLESS)
    network.fill()
    beyond = network.leads_to_sink()
    return {vertex for vertex, (enter, leave) in inner.items() if leave in beyond and enter not in beyond}


class _Network:
    """Edges in pairs: number ``e ^ 1`` is the way back along edge ``e``."""

    def __init__(self) -> None:
        self.leaving: list[list[int]] = []  # numbers of the edges that leave a node
        self.ends: list[int] = []
        self.room: list[int] = []  # what may still flow along an edge
        self.source, self.sink = self.node(), self.node()

    def node(self) -> int:
        self.leaving.append([])
        return len(self.leaving) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        self.leaving[start].append(len(self.ends))
        self.leaving[end].append(len(self.ends) + 1)
        self.ends += [end, start]
        self.room += [capacity, 0]

    def fill(self) -> None:
        """Let flow as much as can."""
        while True:
            level = self.levels()
            if self.sink not in level:
                return
            tried = [0] * len(self.leaving)  # of the edges that leave each node: those lead nowhere, in this phase
            while self.push(level, tried):
                pass

    def levels(self) -> dict[int, int]:
        """The distance of each node from the source along edges with room."""
        level = {self.source: 0}
        queue = deque([self.source])
        while queue:
            node = queue.popleft()
            for e in self.leaving[node]:
                if self.room[e] and self.ends[e] not in level:
                    level[self.ends[e]] = level[node] + 1
                    queue.append(self.ends[e])
        return level

    def push(self, level: dict[int, int], tried: list[int]) -> bool:
        """Let flow along one shortest path; whether there was one."""
        path: list[int] = []
        node = self.source
        while node != self.sink:
            if tried[node] == len(self.leaving[node]):  # a dead end
                if not path:
                    return False
                node = self.ends[path.pop() ^ 1]
                tried[node] += 1
                continue
            e = self.leaving[node][tried[node]]
            if self.room[e] and level.get(self.ends[e]) == level[node] + 1:
                path.append(e)
                node = self.ends[e]
            else:
                tried[node] += 1
        amount = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= amount
            self.room[e ^ 1] += amount
        return True

    def leads_to_sink(self) -> set[int]:
        """The nodes from which more could reach the sink."""
        found = {self.sink}
        queue = deque(found)
        while queue:
            node = queue.popleft()
            for e in self.leaving[node]:
                if self.room[e ^ 1] and self.ends[e] not in found:
                    found.add(self.ends[e])
                    queue.append(self.ends[e])
        return found
