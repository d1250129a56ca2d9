"""Elementary functions of a contraction's results have loops of their own, and the values that they have elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.group import Group
from pullback.tir import BufferStore, Call, For, PrimExpr, Var
from pullback.tir.visitor import walk
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of, matmul, run


def erf(x: PrimExpr) -> PrimExpr:
    return tir.call("erf", x)


def exp(x: PrimExpr) -> PrimExpr:
    return tir.call("exp", x)


FUNCTIONS: dict[str, tuple[Callable[[PrimExpr], PrimExpr], int]] = {  # and how many loops
    "gelu": (lambda x: x * (erf(x * 0.7071) + 1.0) * 0.5, 1),
    "its gradient": (lambda x: (erf(x * 0.7071) + 1.0) * 0.5 + x * exp(x * x * -0.5) * 0.39894, 2),
    "mish": (lambda x: x * tir.call("tanh", tir.call("log1p", exp(x))), 3),
    "one twice": (lambda x: exp(x) / (exp(x) + 1.0), 1),
    "of another's sum": (lambda x: exp(exp(x * 0.1) + x * 0.1), 2),
}


def fused(m: int, n: int, k: int, function: Callable[[PrimExpr], PrimExpr], and_sums: bool = False) -> Group:
    product, bias = matmul(m, n, k), te.placeholder((n,), name="bias")
    total = te.compute((m, n), lambda i, j: product[i, j] * 0.1 + bias[j], "total")
    out = te.compute((m, n), lambda i, j: function(total[i, j]), "out")
    return group_of(*((total, out) if and_sums else (out,)))


def loops(group: Group) -> list[For]:
    """Those that compute functions and nothing else."""
    return [
        n for n in walk(lower(group, "kernel").body)
        if isinstance(n, For) and n.kind == "vectorized" and isinstance(getattr(n.body, "value", None), Call)
    ]  # fmt: skip


@pytest.mark.parametrize("and_sums", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sizes", [(12, 16, 8), (13, 24, 40), (7, 10, 5)], ids=str)
def test_values(sizes: tuple[int, int, int], name: str, and_sums: bool) -> None:
    group = fused(*sizes, FUNCTIONS[name][0], and_sums)
    assert isinstance(recognize(group), Contraction)
    run(group)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_once_in_a_loop_of_its_own(name: str) -> None:
    function, count = FUNCTIONS[name]
    kernel = lower(fused(12, 16, 8, function), "kernel")
    found = loops(fused(12, 16, 8, function))
    calls = [n for n in walk(kernel.body) if isinstance(n, Call) and n.name != "fma"]
    assert len(found) == len(calls) and len(found) % count == 0


@pytest.mark.parametrize(("and_sums", "kept"), [(False, False), (True, True)])
def test_sums_are_kept_where_they_are_needed_after_the_functions(and_sums: bool, kept: bool) -> None:
    kernel = lower(fused(12, 16, 8, exp, and_sums), "kernel")
    stores = [n for n in walk(kernel.body) if isinstance(n, BufferStore) and n.buffer.name == "value"]
    assert any(getattr(n.indices[0], "value", None) == 1 for n in stores) == kept


def test_what_is_no_function_stays_where_it_is() -> None:
    assert not loops(fused(12, 16, 8, lambda x: tir.call("sqrt", tir.call("abs", x))))
    assert not loops(fused(12, 16, 8, lambda x: tir.call("sin", x)))  # asks libm now and then


def test_tiles_of_parts_of_vectors_are_as_they_were() -> None:
    """Their rows would not follow on one another."""
    assert not loops(fused(12, 3, 8, exp))


@pytest.mark.parametrize("sizes", [(37, 64, 40), (64, 96, 300)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits_as_in_a_kernel_of_its_own(name: str, sizes: tuple[int, int, int]) -> None:
    function = FUNCTIONS[name][0]
    both = fused(*sizes, function, and_sums=True)
    rng = np.random.default_rng(0)
    totals, results = natively(both, {t: rng.standard_normal(t.shape).astype(t.dtype) for t in both.inputs})
    x = te.placeholder(totals.shape, name="x")
    alone = te.compute(x.shape, lambda i, j: function(x[i, j]), "alone")
    np.testing.assert_array_equal(results, natively(group_of(alone), {x: totals})[0])


def test_all_is_read_before_anything_is_written() -> None:
    """Of one element: so an output may have the memory of what another one is computed from."""
    product, kept = matmul(12, 16, 8), te.placeholder((12, 16), name="kept")
    total = te.compute((12, 16), lambda i, j: product[i, j] + kept[i, j], "total")
    out = te.compute((12, 16), lambda i, j: exp(total[i, j]) + kept[i, j], "out")
    body = lower(group_of(total, out), "kernel").body
    stores = [n for n in walk(body) if isinstance(n, BufferStore) and n.buffer.name in ("total", "out")]
    assert stores and all(isinstance(n.value, Var) for n in stores)
    run(group_of(total, out))
