"""What the verifier refuses of the drivers of branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pullback.driver.pipeline import lower_function, prepare
from pullback.ir.module import IRModule
from pullback.relax.transform.plan_memory import plan_memory
from pullback.relax.transform.verify_plan import PlanError, verify_plan
from pullback.script import relax as R
from pullback.target import Target
from pullback.tir import BufferStore, For, HostCall, If, IntImm, KernelCall, PrimFunc, Seq, Stmt, Stop, While, seq
from pullback.tir.visitor import Mutator
from tests.driver.test_control_native import I64, as_tuples, const, tensor
from tests.relax.test_control import build


def scan(a, b, x):
    return R.scan(lambda t, u, r: ((t + r, u * r), (t + u,)), (a, b), (x,), reverse=True)


def counted(n, a):
    return R.fori_loop(n, lambda i, t: (t + a,), (a,), max_steps=5)


def asked(a):
    return R.while_loop(lambda t: R.max(t) < const(9.0), lambda t: (t + const(1.0),), (a,), max_steps=5)


def chosen(a, b):
    return R.cond(R.sum(a) > const(0.0), lambda: (a + b, a), lambda: (a - b, b))


PROGRAMS = {
    "scan": (scan, [tensor("a", 3), tensor("b", 3), tensor("x", 4, 3)]),
    "counted": (counted, [tensor("n", dtype=I64), tensor("a", 3)]),
    "asked": (asked, [tensor("a", 3)]),
    "chosen": (chosen, [tensor("a", 3), tensor("b", 3)]),
}


class Changed(Mutator):
    """A statement tree in which ``change`` has replaced statements; None leaves one as it is."""

    def __init__(self, change: Callable[[Stmt], Stmt | None]) -> None:
        super().__init__()
        self.change = change
        self.count = 0

    def stmt(self, node: Stmt) -> Stmt:
        found = self.change(node)
        if found is None:
            return super().stmt(node)
        self.count += 1
        return found


def swapped(i: int, j: int) -> Callable[[Stmt], Stmt | None]:
    """Two buffers of each call of a region change places."""

    def change(node: Stmt) -> Stmt | None:
        if not isinstance(node, HostCall):
            return None
        buffers, rows = list(node.buffers), list(node.rows)
        for part in (buffers, rows) if rows else (buffers,):
            part[i], part[j] = part[j], part[i]
        return replace(node, buffers=tuple(buffers), rows=tuple(rows))

    return change


def each(kind: type, change: Callable) -> Callable[[Stmt], Stmt | None]:
    return lambda node: change(node) if isinstance(node, kind) else None


def first_row(node: HostCall) -> Stmt | None:
    return replace(node, rows=tuple(IntImm(0) for _ in node.rows)) if node.rows else None


def without_first(node: Seq) -> Stmt:
    return seq(*node.stmts[1:])


def to_another(node: KernelCall) -> Stmt:
    """A copy the other way round."""
    return KernelCall(node.name, node.buffers[::-1])


MISTAKES = {
    "one step fewer": ("scan", each(For, lambda n: replace(n, extent=n.extent - 1))),
    "one step more": ("scan", each(For, lambda n: replace(n, extent=n.extent + 1))),
    "always the first row": ("scan", each(HostCall, first_row)),
    "forwards": ("scan", lambda n: replace(n, rows=tuple(3 - r if k > 2 else r for k, r in enumerate(n.rows)))
                 if isinstance(n, HostCall) else None),
    "swapped carries": ("scan", swapped(1, 2)),
    "carry and row": ("scan", swapped(2, 3)),
    "a carry not begun": ("scan", each(Seq, without_first)),
    "a copy backwards": ("scan", each(KernelCall, to_another)),
    "no arena": ("scan", each(HostCall, lambda n: replace(n, arena=None))),
    "another arena": ("scan", each(HostCall, lambda n: replace(n, arena=n.buffers[1]))),
    "steps not counted": ("scan", lambda n: BufferStore(n.buffer, IntImm(3), n.indices)
                          if isinstance(n, BufferStore) and isinstance(n.value, IntImm) else None),
    "a negative count": ("counted", each(For, lambda n: replace(n, extent=n.extent + 1))),
    "no limit": ("counted", each(If, lambda n: Seq(()))),
    "no limit of a while": ("asked", lambda n: replace(n, condition=n.condition.a) if isinstance(n, While) else None),
    "no end": ("asked", each(If, lambda n: Seq(()))),
    "another status": ("asked", each(Stop, lambda n: Stop(n.code + 1))),
    "the other branch": ("chosen", each(If, lambda n: If(n.condition, n.otherwise, n.then))),
    "swapped operands": ("chosen", swapped(0, 1)),
    "swapped results": ("chosen", swapped(2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    which, change = MISTAKES[name]
    body, params = PROGRAMS[which]
    module: IRModule = build(params, lambda *values: as_tuples(body(*values)))
    lowered, donate = lower_function(prepare(module), "main", {}, Target("llvm"))
    plan = plan_memory("main", lowered["main"], lowered, donate)
    verify_plan(plan, lowered["main"], lowered, donate)
    (driver,) = (f for f in plan.inner.values() if "outputs" in f.attrs)
    mutator = Changed(change)
    plan.inner[driver.name] = PrimFunc(driver.name, driver.params, mutator.stmt(driver.body), driver.attrs)
    assert mutator.count
    with pytest.raises(PlanError):
        verify_plan(plan, lowered["main"], lowered, donate)


def test_a_plan_of_a_region_is_verified():
    body, params = PROGRAMS["scan"]
    module = build(params, lambda *values: as_tuples(body(*values)))
    lowered, donate = lower_function(prepare(module), "main", {}, Target("llvm"))
    plan = plan_memory("main", lowered["main"], lowered, donate)
    (control,) = plan.controls.values()
    region = control.plans["body"]
    region.host = replace(region.host, body=seq(*region.host.body.stmts[:-1]))
    region.sources.pop()
    with pytest.raises(PlanError, match="loop_1_body"):
        verify_plan(plan, lowered["main"], lowered, donate)
