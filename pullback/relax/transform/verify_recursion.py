"""Whether the driver of a recursive function does what the closed call says. Shares no code with what writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.relax.expr import Call
from pullback.relax.recursion import MAX_DEPTH, SELF
from pullback.tir.stmt import PrimFunc, Recur


def verify_recursion(
    driver: PrimFunc, call: Call, control: Any, around: Mapping[str, Any], messages: Sequence[str]
) -> str | None:
    """What is wrong with the driver that a step runs; None: nothing. ``control``: what the plan knows of the step,
    ``around``: the same of the recursive functions that the step is in, by their labels."""
    recursion = control
    if call.op is SELF:
        recursion = around.get(call.attrs["label"])
        if recursion is None or control.recursion is not recursion or driver is not recursion.whole:
            return f"it is not what runs {call.attrs['label']}"
        call = recursion.call
    plan, body = recursion.plan, driver.body
    if not isinstance(body, Recur) or body.name != plan.host.name:
        return "it does not run the function"
    params, operands = driver.buffers, len(plan.inputs)
    constants = recursion.constants
    if len(params) != operands + len(constants) + len(plan.outputs) + 1:
        return "it takes other buffers than the operands, constants, results and the heap"
    given = body.buffers
    if given[:operands] != params[:operands]:
        return "the function gets other operands"
    if body.heap is not params[-1] or (plan.needs_heap and given[-1] is not params[-1]):
        return "the function gets another heap"
    given = given[:-1] if plan.needs_heap else given
    places = {b: k for k, b in enumerate(params[operands : operands + len(constants)])}
    taken = [places.get(b) for b in given[operands : operands + len(plan.constants)]]
    for k, wanted in zip(taken, plan.constants, strict=True):
        if k is None or not _is_same(constants[k], wanted):
            return "the function gets other constants"
    results = params[operands + len(constants) : -1]
    if plan.donated or given[operands + len(plan.constants) :] != tuple(results[k] for k in plan.fresh):
        return "the function writes its results elsewhere"
    if body.nbytes < plan.arena_bytes:
        return "the function has too little memory"
    wanted = call.attrs["max_depth"]
    if not 1 <= body.most <= (wanted or MAX_DEPTH) or (wanted is not None and body.most != wanted):
        return f"it makes {body.most} calls"
    if (body.too_deep, body.code) != (recursion.too_deep, recursion.no_memory):
        return "it ends for another reason"
    if f"max_depth={body.most} " not in messages[body.too_deep - 1] or "out of memory" not in messages[body.code - 1]:
        return "its status has another message"
    return None


def _is_same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
