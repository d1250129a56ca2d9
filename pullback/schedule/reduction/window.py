"""Windows: few elements are reduced into each, as in pooling. The reduction is written out, and results are vectorized.

for i in parallel(n): for y: for x in vectorized(columns):
    out[i, y, x] = max(max(in[i, 2y, 2x], in[i, 2y + 1, 2x]), max(in[i, 2y, 2x + 1], in[i, 2y + 1, 2x + 1]))
"""

from __future__ import annotations

from pullback.schedule.elementwise import nest
from pullback.schedule.reduction.nests import Moved, Place, value_at
from pullback.schedule.reduction.program import Program, Step
from pullback.tir import Buffer, Let, PrimExpr, Stmt, Var, seq
from pullback.tir.visitor import substitute

MOST = 32  # elements of a window that is written out


def fits_window(program: Program) -> bool:
    """Whether every reduction is of few elements that are no run of memory long enough to be a vector."""
    for step in program.reduces:
        domain = step.domain
        assert domain is not None
        run = domain.extents[-1] if domain.axes and program.column is None else 1
        if domain.size > MOST or run >= 4 or step.kind.startswith("arg"):
            return False
    return not program.vectors


def lower_window(program: Program, threads: bool) -> Stmt:
    """All steps at one point of the kept axes; all loads come before all stores."""
    places: dict[Buffer, Place] = {}
    bound, stores = [], []
    for step in program.steps:
        value = Moved(places).expr(_written_out(step, program) if step.role == "reduce" else step.store.value)
        target = step.result if step.role == "reduce" else step.store.buffer
        var = Var(f"v_{target.name}".replace("v_l_", "v_"), value.dtype)
        bound.append((var, value))
        if target in program.locals:
            places[target] = value_at(var)
        else:
            stores.append(type(step.store)(step.store.buffer, var, step.store.indices))
    body = seq(*stores)
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return nest(list(program.axes), list(program.extents), body, threads)


def _written_out(step: Step, program: Program) -> PrimExpr:
    domain = step.domain
    assert domain is not None
    values = [substitute(step.store.value, point) for point in domain.points]
    return domain.order.added(step.kind, values, step.store.value.dtype, program.multiply_add(step))
