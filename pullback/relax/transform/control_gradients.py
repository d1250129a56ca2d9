"""Adjoints of branches, loops and recursive functions: these themselves, so they have adjoints in their turn.

    for k in range(n):                     for k in range(n):
        t = tanh(t * a)         →              saved[k] = t
                                               t = tanh(t * a)
                                           after = t
                                           for k in reversed(range(n)):
                                               d = t_adjoint * (1 - after * after)
                                               a_adjoint = a_adjoint + d * saved[k]
                                               t_adjoint = d * a
                                               after = saved[k]

The regions are differentiated as any function (``joint_region.py``). What the adjoint reads of a step or a branch is
one more output of the loop or branch, its *twin*; ``saved_values.py`` says what is worth it. ``loop_gradients.py``,
``branch_gradients.py`` and ``recursion_gradients.py`` write the adjoints.
"""

from __future__ import annotations

from typing import Any

from pullback.relax.control import BRANCH
from pullback.relax.expr import Binding, Call
from pullback.relax.recursion import RECURSE, SELF
from pullback.relax.transform.branch_gradients import adjoint_of_branch
from pullback.relax.transform.loop_gradients import LoopGradient
from pullback.relax.transform.recursion_gradients import RecursionGradient


def adjoint_of_control(sweep: Any, binding: Binding, adjoint: Any) -> list[Any]:
    """The adjoints of the arguments of a branch, a loop or a recursive function, as lists where these are tuples.
    ``adjoint``: of the result, nested lists of them, None for zero."""
    call = binding.value
    assert isinstance(call, Call)
    if call.op is BRANCH:
        return [None, adjoint_of_branch(sweep, binding.var, call, adjoint)]
    if call.op is SELF:
        return [sweep.recursions[call.attrs["label"]].adjoints_of_self(sweep, binding.var, call, adjoint)]
    if call.op is RECURSE:
        return [RecursionGradient(sweep, binding.var, call, adjoint).adjoints()]
    return [None, *LoopGradient(sweep, binding.var, call, adjoint).adjoints()]
