"""What no step of a trainer changes becomes a constant of its functions, and part of the weights that it scales.

    __step(x, w, gamma, …, head, y)                    __step(x, head, y)
        c = R.nn.conv2d(x, w)                    →         c = R.nn.conv2d(x, R.const(w · gamma / √…))
        n = R.nn.batch_norm(c, gamma, …)[0]                n = R.add(c, R.const(…))
        …                                                  …
        return (loss, w, gamma, …, head_new)               return (loss, head_new)

Parameters that are frozen, and states that the step returns as it took them: running statistics of a frozen batch norm,
and tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from pullback.driver.pipeline import prepare, whole_function
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.convention import PARAMETER, STATE, STEP, Convention, Roles, Value
from pullback.relax.expr import Constant, Function, SeqExpr, Tuple
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform import (
    CanonicalizeBindings,
    DecomposeOpsForTraining,
    FoldConstant,
    FoldScale,
    Simplify,
)
from pullback.relax.transform.bind_params import bind_params
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings

_RESOLVED = (DecomposeOpsForTraining(), CanonicalizeBindings())
_FOLDED = (*_RESOLVED, Simplify(), CanonicalizeBindings(), FoldConstant(), FoldScale(), FoldConstant())


def folded_values(trainer: Trainer) -> dict[Value, np.ndarray]:
    """The parameters and states that no step changes, with their values; a UserError where there are none."""
    module = prepare(trainer._programs.main.module)
    roles = Convention.of(module)[STEP]
    function = _applied(module, STEP, whole_function(module, STEP, {}), _RESOLVED)
    results = dict(zip(roles.returns, _fields(function), strict=True))
    stay = {v for v, p in zip(roles.takes, function.params, strict=True) if results.get(v) is p}
    kept = zip(trainer._interface.convention.kept, trainer._values.all, strict=True)
    found = {v: np.array(tensor) for v, tensor in kept if v in stay and v[0] in (PARAMETER, STATE)}
    if not found:
        raise UserError(
            "fold_frozen: a step of this trainer changes all parameters and states, so there is nothing to fold",
            hint="freeze layers before the trainer is made: net.body.freeze()",
        )
    return found


def folded(
    module: IRModule, name: str, roles: Roles, sizes: Mapping[str, int], values: Mapping[Value, np.ndarray]
) -> tuple[IRModule, Roles]:
    """A prepared module with one function that neither takes nor returns these values, and its roles."""
    function = whole_function(module, name, dict(sizes))
    constants = {p: Constant(values[v]) for v, p in zip(roles.takes, function.params, strict=True) if v in values}
    function = _applied(module, name, bind_params(function, constants), _RESOLVED)
    left = Roles(tuple(v for v in roles.takes if v not in values), tuple(v for v in roles.returns if v not in values))
    fields = [f for v, f in zip(roles.returns, _fields(function), strict=True) if v not in values]
    attrs = dict(function.attrs) | ({"donate": left.donated} if "donate" in function.attrs else {})
    body = SeqExpr(function.body.blocks, Tuple(tuple(fields)))
    function = remove_dead_bindings(Function(function.params, body, attrs=attrs, span=function.span))
    function = _applied(module, name, function, _FOLDED)
    return IRModule({**_kernels(module), name: function}, module.attrs), left


def _applied(module: IRModule, name: str, function: Function, steps: Sequence[Pass]) -> Function:
    work = IRModule({**_kernels(module), name: function}, module.attrs)
    return reduce(lambda work, step: step(work), steps, work)[name]


def _kernels(module: IRModule) -> dict[str, Any]:
    return {name: f for name, f in module.items() if not isinstance(f, Function)}


def _fields(function: Function) -> tuple[Any, ...]:
    body: Any = function.body.body
    return body.fields if isinstance(body, Tuple) else (body,)
