"""Whether a kernel reads elements of a buffer that it has written before, found by going through all iterations.

This is the oracle of ``in_place.py``, which proves the same without counting: slow, exact, and of another make. Time is
a number: each statement takes one unit, and statements and iterations follow one another. A read and a store of one
element are in order when the read is not later, and no parallel or vectorized loop runs them in different iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.tir.expr import Buffer, BufferLoad, IntImm, PrimExpr, Var
from pullback.tir.interpreter import evaluate
from pullback.tir.stmt import Allocate, Await, BufferStore, For, If, Let, Prefetch, PrimFunc, Seq, Stmt
from pullback.tir.visitor import walk

LIMIT = 1 << 20  # accesses that are looked at: some tenths of a second


def reads_come_first(function: PrimFunc, buffer: Buffer) -> bool | None:
    """Whether no element of ``buffer`` is read after (or while) it is written; None when it cannot be known, or when
    there are too many accesses to look at."""
    if isinstance(function.body, Await):
        return True
    try:
        trace = _Trace(buffer)
        trace.visit(function.body, _Point(0, {}, (), None))
    except _UnknownError:
        return None
    return trace.in_order()


class _UnknownError(Exception):
    """An index, a size or a condition depends on data, or there is too much to look at."""


@dataclass(frozen=True)
class _Point:
    """A place in the program: the time at which it begins, as an array over the iterations of the loops around it."""

    time: Any
    values: Mapping[Var, np.ndarray]
    unordered: tuple[tuple[For, Any, Any], ...]  # parallel and vectorized loops: node, when it begins, iteration
    mask: Any


@dataclass
class _Found:
    """Accesses as flat arrays."""

    elements: list[np.ndarray] = field(default_factory=list)
    others: list[np.ndarray] = field(default_factory=list)
    stores: list[np.ndarray] = field(default_factory=list)
    begins: list[np.ndarray] = field(default_factory=list)


class _Trace:
    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.count = buffer, 0
        self.all = _Found()  # others: time
        self.loops: dict[For, _Found] = {}  # others: iteration
        self.touching: dict[Stmt, bool] = {}

    def visit(self, node: Stmt, at: _Point) -> None:
        if not self.touches(node):
            return
        if isinstance(node, Seq):
            time = at.time
            for part in node.stmts:
                self.visit(part, _Point(time, at.values, at.unordered, at.mask))
                time = time + _duration(part)
        elif isinstance(node, For):
            extent = _extent(node)
            if np.size(at.time) * extent > LIMIT:
                raise _UnknownError
            values = {v: a[..., None] for v, a in at.values.items()}
            iteration = np.arange(extent)
            begin = np.asarray(at.time)[..., None]
            mask = None if at.mask is None else np.asarray(at.mask)[..., None]
            outer = tuple((n, np.asarray(b)[..., None], np.asarray(i)[..., None]) for n, b, i in at.unordered)
            inner = ((node, begin, iteration),) if node.kind in ("parallel", "vectorized") else ()
            time = begin + iteration * _duration(node.body)
            self.visit(node.body, _Point(time, {**values, node.var: iteration}, (*outer, *inner), mask))
        elif isinstance(node, Let):
            self.loads(node.value, at)
            values = dict(at.values)
            if node.var.dtype == "int64" and not _has_loads(node.value):
                values = {**values, node.var: self.value(node.value, at)}
            self.visit(node.body, _Point(at.time + 1, values, at.unordered, at.mask))
        elif isinstance(node, If):
            self.branches(node, at)
        elif isinstance(node, Allocate):
            self.visit(node.body, at)
        elif isinstance(node, BufferStore):
            self.loads(node.value, at)
            if node.buffer is self.buffer:
                self.record(node.indices, at, True)
        elif not isinstance(node, Prefetch):
            raise _UnknownError

    def touches(self, node: Stmt) -> bool:
        """Whether the buffer is read or written inside; by far most loops of a kernel have nothing to do with it."""
        known = self.touching.get(node)
        if known is None:
            inside = (n for n in walk(node) if isinstance(n, (BufferLoad, BufferStore)))
            known = self.touching[node] = any(n.buffer is self.buffer for n in inside)
        return known

    def branches(self, node: If, at: _Point) -> None:
        self.loads(node.condition, at)
        if _has_loads(node.condition):
            holds = fails = np.array(True)  # either may happen
        else:
            holds = self.value(node.condition, at).astype(bool)
            fails = ~holds
        for branch, taken in ((node.then, holds), (node.otherwise, fails)):
            if branch is not None:
                mask = taken if at.mask is None else at.mask & taken
                self.visit(branch, _Point(at.time, at.values, at.unordered, mask))

    def loads(self, value: PrimExpr, at: _Point) -> None:
        for node in walk(value):
            if isinstance(node, BufferLoad) and node.buffer is self.buffer:
                self.record(node.indices, at, False)

    def value(self, expr: PrimExpr, at: _Point) -> np.ndarray:
        used = {n for n in walk(expr) if isinstance(n, Var)}
        if _has_loads(expr) or not used <= set(at.values):
            raise _UnknownError
        return evaluate(expr, {v: at.values[v] for v in used})

    def record(self, indices: tuple[PrimExpr, ...], at: _Point, stores: bool) -> None:
        shape = np.shape(at.time)
        self.count += int(np.prod(shape))
        if self.count > LIMIT:
            raise _UnknownError
        element: Any = np.zeros((), np.int64)
        for index, size in zip(indices, self.buffer.shape, strict=True):
            if not isinstance(size, int):
                raise _UnknownError
            element = element * size + self.value(index, at)
        chosen = np.broadcast_to(True if at.mask is None else at.mask, shape).ravel()

        def add(found: _Found, other: Any, begin: Any) -> None:
            for items, array in ((found.elements, element), (found.others, other), (found.begins, begin)):
                items.append(np.broadcast_to(array, shape).ravel()[chosen])
            found.stores.append(np.full(int(chosen.sum()), stores))

        add(self.all, at.time, 0)
        for node, begin, iteration in at.unordered:
            add(self.loops.setdefault(node, _Found()), iteration, begin)

    def in_order(self) -> bool:
        found = self.all
        if not found.elements:
            return True
        elements, times, stores = (np.concatenate(a) for a in (found.elements, found.others, found.stores))
        if not elements.size:
            return True
        first_store = np.full(elements.max() + 1, np.iinfo(np.int64).max)
        np.minimum.at(first_store, elements[stores], times[stores])
        if np.any(times[~stores] > first_store[elements[~stores]]):
            return False
        return all(map(_one_iteration, self.loops.values()))


def _one_iteration(found: _Found) -> bool:
    """Whether, each time that a loop runs, an element that it both reads and writes belongs to one iteration of it."""
    elements, iterations, stores, begins = (
        np.concatenate(a) for a in (found.elements, found.others, found.stores, found.begins)
    )
    if not elements.size:
        return True
    group = _groups(elements, begins)
    count = group.max() + 1
    read, written = np.zeros(count, bool), np.zeros(count, bool)
    read[group[~stores]] = written[group[stores]] = True
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, group, iterations)
    np.maximum.at(most, group, iterations)
    return not np.any(read & written & (least != most))


def _groups(elements: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """A number for each pair, the same for equal ones."""
    first, span = begins.min(), int(begins.max() - begins.min()) + 1
    if span == 1:
        return elements
    if (int(elements.max()) + 1) * span >= 1 << 62:
        begins, first = np.unique(begins, return_inverse=True)[1].ravel(), 0
        span = int(begins.max()) + 1
    return np.unique(elements * span + (begins - first), return_inverse=True)[1].ravel()


def _duration(node: Stmt) -> int:
    if isinstance(node, Seq):
        return sum(map(_duration, node.stmts))
    if isinstance(node, For):
        return _extent(node) * _duration(node.body)
    if isinstance(node, Let):
        return 1 + _duration(node.body)
    if isinstance(node, Allocate):
        return _duration(node.body)
    if isinstance(node, If):
        return max(_duration(b) for b in (node.then, node.otherwise) if b is not None)
    return 1


def _extent(node: For) -> int:
    if not isinstance(node.extent, IntImm):
        raise _UnknownError
    return node.extent.value


def _has_loads(expr: PrimExpr) -> bool:
    return any(isinstance(n, BufferLoad) for n in walk(expr))
