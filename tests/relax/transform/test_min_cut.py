"""The least vertex cut, against trying all sets of vertices."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pullback.relax.transform.min_cut import ENDLESS, min_vertex_cut


def parts(cut, edges, sources, sinks) -> bool:
    """Whether no path leads from sources to sinks without the cut."""
    stack = [v for v in sources if v not in cut]
    seen = set(stack)
    while stack:
        vertex = stack.pop()
        if vertex in sinks:
            return False
        fresh = [v for v in edges.get(vertex, ()) if v not in cut and v not in seen]
        seen.update(fresh)
        stack += fresh
    return True


@pytest.mark.parametrize("seed", range(150))
def test_no_set_is_lighter(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    weights = {v: int(rng.choice([0, 1, 1, 2, 3, 7, ENDLESS])) for v in range(count)}
    edges = {v: [w for w in range(v + 1, count) if rng.random() < 0.4] for v in range(count)}
    sources = [v for v in range(count) if rng.random() < 0.4]
    sinks = [v for v in range(count) if rng.random() < 0.4]
    sets = [set(c) for size in range(count + 1) for c in combinations(range(count), size)]
    cuts = [c for c in sets if parts(c, edges, sources, sinks)]
    least = min(sum(weights[v] for v in c) for c in cuts)
    if least >= ENDLESS:
        return
    found = min_vertex_cut(weights, edges, sources, sinks)
    assert parts(found, edges, sources, sinks)
    assert sum(weights[v] for v in found) == least


def test_of_equal_sets_the_last():
    weights, edges = dict.fromkeys("abcd", 2), {"a": "b", "b": "cd"}
    assert min_vertex_cut(weights, edges, ["a"], ["c"]) == {"c"}
    assert min_vertex_cut(weights, edges, ["a"], ["c", "d"]) == {"b"}
    assert min_vertex_cut(weights, edges, [], ["c", "d"]) == set()
