"""The adjoint of a branch: a branch on the same condition.

    y = f(x) if c else g(x)        y, saved = f_and_saved(x) if c else g_and_saved(x)
                              →    x_adjoint = f_adjoint(saved, y_adjoint) if c else g_adjoint(saved, y_adjoint)

Both branches save what the adjoints of both read, zeros in the place of what belongs to the other one; values of one
type share a place, but for handles, of which one at the most is no null. Operands and results are there anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.relax.boxes import is_handle
from pullback.relax.control import branch
from pullback.relax.expr import Call, Expr, Function, Tuple, Var
from pullback.relax.struct_info import StructInfo, has_adjoint, same_info
from pullback.relax.transform.joint_region import Joint, joint_region
from pullback.relax.transform.region_writer import RegionWriter, add_twin, item, items, saving, zeros_of
from pullback.relax.transform.saved_values import saved_values
from pullback.tir.derivative import MASKED


def adjoint_of_branch(sweep: Any, var: Var, call: Call, adjoint: Sequence[Any]) -> list[Expr | None]:
    """The adjoints of the operands; ``adjoint``: those of the results."""
    operands, names = items(call.args[1]), ("then", "otherwise")
    given = {k: d for k, d in enumerate(adjoint) if d is not None and has_adjoint(d.struct_info)}
    bits, degrees = sweep.roots.region_params(call), {k: sweep.zeros.degree_of_any(d) for k, d in given.items()}
    joints = [joint_region(sweep, call.attrs[name], bits, degrees) for name in names]
    found: list[Expr | None] = [None] * len(operands)
    wanted = [k for k in range(len(operands)) if any(j.adjoints[k] is not None for j in joints)]
    if not wanted:
        return found

    read = [saved_values(j, {*j.params, *j.results}, {}) for j in joints]
    kept = [j.in_order(r - {*j.params, *j.results}) for j, r in zip(joints, read, strict=True)]
    places, slots = _shared([[v.struct_info for v in values] for values in kept])
    twin = var
    if slots:
        parts = zip(names, joints, kept, places, strict=True)
        twin = add_twin(sweep, var, {n: _saving(call.attrs[n], j, v, p, slots) for n, j, v, p in parts})

    inputs = [k for k in range(len(operands)) if any(j.params[k] in r for j, r in zip(joints, read, strict=True))]
    results = [k for k in range(len(adjoint)) if any(j.results[k] in r for j, r in zip(joints, read, strict=True))]
    arguments = [*given.values(), *(operands[k] for k in inputs), *(item(var, k) for k in results)]
    arguments += [item(twin, len(adjoint) + k) for k in range(len(slots))]
    functions = []
    for joint, values, numbers in zip(joints, kept, places, strict=True):
        own = dict(zip(numbers, values, strict=True))
        stands = [*joint.seeds.values(), *(joint.params[k] for k in inputs), *(joint.results[k] for k in results)]
        stands += [own.get(k, Var("unused", info)) for k, info in enumerate(slots)]
        functions.append(_adjoint(joint, stands, wanted))
    result = sweep.builder.emit(branch(call.args[0], arguments, *functions), f"{var.name}_adjoint")
    for n, k in enumerate(wanted):
        adjoint_of_operand = found[k] = item(result, n)
        is_of_both = all(j.adjoints[k] is not None for j in joints)
        sweep.zeros.degrees[adjoint_of_operand] = max(j.degrees[k] for j in joints) if is_of_both else MASKED
    return found


def _shared(lists: Sequence[Sequence[StructInfo]]) -> tuple[list[list[int]], list[StructInfo]]:
    """Places for values of which those of one list are never there with those of another: the numbers of their places,
    and the types of all places."""
    slots: list[StructInfo] = []
    places: list[list[int]] = []
    for infos in lists:
        own: list[int] = []
        for info in infos:
            fitting = (
                k for k, slot in enumerate(slots) if k not in own and same_info(slot, info) and not is_handle(info)
            )
            own.append(next(fitting, len(slots)))
            slots += [info] if own[-1] == len(slots) else []
        places.append(own)
    return places, slots


def _saving(
    region: Function, joint: Joint, values: Sequence[Var], places: Sequence[int], slots: Sequence[StructInfo]
) -> Function:
    own = dict(zip(places, values, strict=True))
    more = [own[k] if k in own else zeros_of(info) for k, info in enumerate(slots)]
    return saving(region, joint, more, lambda outputs: Tuple(tuple(outputs)))


def _adjoint(joint: Joint, stands: Sequence[Expr], wanted: Sequence[int]) -> Function:
    """The region that gives the adjoints of the wanted parameters; ``stands``: what its own parameters are."""
    writer = RegionWriter()
    for value in stands:
        if isinstance(value, Var) and value not in writer.env:
            writer.stand_in(value)
        else:
            writer.param(value, "unused")
    with writer.builder.dataflow():
        found = writer.write(joint, [joint.adjoints[k] for k in wanted])
        filled = [zeros_of(joint.params[k].struct_info) if f is None else f for k, f in zip(wanted, found, strict=True)]
        results = writer.outputs(filled)
    return writer.function(results, {})
