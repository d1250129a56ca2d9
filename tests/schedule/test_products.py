"""Sums of products that one op adds up: multiply-adds, in an order that does not depend on the kernel around them."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule import order
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.group import Group, Machine
from pullback.schedule.order import Order, halves, pieces
from pullback.schedule.reduction import Reduction
from pullback.tir import Call
from pullback.tir.arithmetic import fma
from pullback.tir.visitor import walk
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of, run

SHAPES = {
    "few terms, written out": ((40, 3), 1),
    "a row": ((3, 17), 1),
    "rows side by side": ((256, 75), 1),
    "chunks of a row": ((100, 900), 1),
    "columns": ((150, 40), 0),
    "few columns, written out": ((5, 40), 0),
    "phases": ((20_000,), 0),
    "phases of columns": ((3000, 20), 0),
}


def dot(x: te.Tensor, y: te.Tensor, axis: int, name: str = "dot") -> te.Tensor:
    """Σ x·y along an axis."""
    k = te.reduce_axis(x.shape[axis])
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        at = (*i[:axis], k.var, *i[axis:])
        return te.reduction("sum", x[at] * y[at], k)

    return te.compute(shape, element, name)


def arguments(shape: tuple[int, ...]) -> dict[te.Tensor, np.ndarray]:
    generator = np.random.default_rng(sum(shape))
    return {te.placeholder(shape, name=n): generator.standard_normal(shape).astype("f") for n in "xy"}


def in_order(x: np.ndarray, y: np.ndarray, found: Order) -> np.ndarray:
    """What `order.py` says of the terms, which are the last axis."""
    if found.cut is not None:
        size = found.cut.size
        parts = [slice(k, k + size) for k in range(0, found.terms, size)]
        chunks = [in_order(x[..., p], y[..., p], found.chunk(len(range(found.terms)[p]))) for p in parts]
        return plainly(np.stack(chunks, -1), found.of_chunks)
    lanes = np.zeros((*x.shape[:-1], order.LANES), x.dtype)
    for piece in pieces(found.inner):
        for step in range(piece.steps):
            for lane in range(piece.lanes):
                places = [piece.at(step, lane, k) for k in range(piece.terms)]
                terms = [(x[..., p], y[..., p]) for p in places]
                if len(terms) == 1:
                    lanes[..., lane] = fma(*terms[0], lanes[..., lane])
                    continue
                own = terms[-1][0] * terms[-1][1]
                for a, b in reversed(terms[:-1]):
                    own = fma(a, b, own)
                lanes[..., lane] += own
    return halved(lanes)


def plainly(terms: np.ndarray, found: Order) -> np.ndarray:
    """A sum whose terms are no products."""
    lanes = np.zeros((*terms.shape[:-1], order.LANES), terms.dtype)
    for piece in pieces(found.inner):
        for step in range(piece.steps):
            for lane in range(piece.lanes):
                t = [terms[..., piece.at(step, lane, k)] for k in range(piece.terms)]
                lanes[..., lane] += t[0] if len(t) == 1 else (t[0] + t[1]) + (t[2] + t[3])
    return halved(lanes)


def halved(lanes: np.ndarray) -> np.ndarray:
    for half, count in halves(order.LANES):
        lanes[..., :count] += lanes[..., half : half + count]
    return lanes[..., 0]


@pytest.mark.parametrize("name", SHAPES)
def test_the_order_is_as_it_is_written(name: str) -> None:
    shape, axis = SHAPES[name]
    feeds = arguments(shape)
    x, y = (np.moveaxis(v, axis, -1) for v in feeds.values())
    found = Order.of([shape[axis]], max(1, x[..., 0].size))
    assert (found.cut is None) == ("chunks" not in name and "phases" not in name)
    (result,) = natively(group_of(dot(*feeds, axis)), feeds)
    np.testing.assert_array_equal(result, in_order(x, y, found))


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_multiplied_may_be_computed_beside_it(name: str) -> None:
    """The bits are those of factors read from memory, be they cheap, or functions that have a loop of their own."""
    shape, axis = SHAPES[name]
    feeds = arguments(shape)
    x, y = feeds
    difference = te.compute(shape, lambda *i: x[i] - y[i], "difference")
    exp = te.compute(shape, lambda *i: tir.call("exp", y[i]), "exp")
    for a, b in ((difference, difference), (difference, y), (exp, y), (x, exp), (exp, exp)):
        kept = {t: te.placeholder(shape, name=f"kept_{t.name}") for t in (a, b)}
        values = {kept[t]: feeds[t] if t in feeds else computed(t, feeds) for t in (a, b)}
        np.testing.assert_array_equal(
            computed(dot(a, b, axis), feeds), computed(dot(kept[a], kept[b], axis), values), f"{a.name} {b.name}"
        )


def computed(tensor: te.Tensor, feeds: dict[te.Tensor, np.ndarray]) -> np.ndarray:
    """By a kernel of all stages."""
    group = group_of(tensor)
    return natively(group, {t: feeds[t] for t in group.inputs})[0]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_their_sum_is_right_with_and_without_multiply_adds(name: str, dtype: str) -> None:
    """A machine that lacks the instruction, where it would be a call of libm in every lane, multiplies and adds."""
    shape, axis = SHAPES[name]
    x, y = (te.placeholder(shape, dtype, n) for n in "xy")
    for machine in (Machine(64, 32), Machine(16, 16, fma=False)):
        group = group_of(dot(x, y, axis), machine=machine)
        run(group)
        fused = any(isinstance(n, Call) and n.name == "fma" for n in walk(lower(group, "kernel").body))
        assert fused == (machine.fma and dtype != "int32" and shape[axis] > order.LANES)


@pytest.mark.parametrize("fma", [True, False])
def test_multiply_adds_of_elements(fma: bool) -> None:
    """Those that an op asks for are two operations where the machine has no such instruction."""
    x, y = (te.placeholder((40,), name=n) for n in "xy")
    group = group_of(te.compute((40,), lambda i: tir.fma(x[i], y[i], x[i]), "out"), machine=Machine(16, 16, fma=fma))
    run(group)
    assert any(isinstance(n, Call) and n.name == "fma" for n in walk(lower(group, "kernel").body)) == fma


def test_products_of_another_op_are_rounded_first() -> None:
    """In a kernel with it as in one of its own."""
    feeds = arguments((30, 75))
    x, y = feeds
    product = te.compute(x.shape, lambda *i: x[i] * y[i], "product")
    ones, k = te.placeholder(x.shape, name="ones"), te.reduce_axis(75)
    total = te.compute((30,), lambda i: te.sum(product[i, k.var], k), "total")
    alone = te.compute((30,), lambda i: te.sum(ones[i, k.var], k), "total")
    (found,), (kept,) = natively(group_of(total), feeds), natively(group_of(product), feeds)
    np.testing.assert_array_equal(found, natively(group_of(alone), {ones: kept})[0])


def test_what_is_read_once_is_a_reduction() -> None:
    """A sum of products reads elements many times, and is a contraction, where either tensor lacks an axis."""

    def schedule(group: Group) -> type:
        return type(recognize(group))

    x, y = (te.placeholder((64, 96), name=n) for n in "xy")
    assert schedule(group_of(dot(x, y, 1))) is Reduction
    k, z = te.reduce_axis(96), te.placeholder((96, 64), name="z")
    matmul = te.compute((64, 64), lambda i, j: te.sum(x[i, k.var] * z[k.var, j], k), "matmul")
    assert schedule(group_of(matmul)) is Contraction
