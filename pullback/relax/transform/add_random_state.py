"""AddRandomState: random ops without a state draw from a parameter, each at a site of its own.

    def f(x):                                  def f(x, random_state):
        y = R.nn.dropout(x, rate=0.1)              site = R.random.site(random_state, 0)
        z = R.nn.dropout(y, rate=0.1)              y = R.nn.dropout(x, site, rate=0.1)
        return z                          →        site_1 = R.random.site(random_state, 1)
                                                   z = R.nn.dropout(y, site_1, rate=0.1)
                                                   return z

The state is (seed, number of the step), uint64. Sites are numbered in the order of the program; calls are inlined, so a
function that is called twice has its sites twice. Calls of one op with the same attribute ``shared`` have one site.
What is differentiated afterwards draws the same numbers again.

A loop is a site, too, from which a seed of its own is drawn: in step k its body draws from the state (seed, k), so that
each step has other numbers. What is to be the same in all steps, such as a mask that a recurrent layer keeps, is drawn
before the loop. The two branches of an if have their sites one after another. A call of a recursive function is a site
as a loop is: it draws from the state (seed, 0), with a seed of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import BRANCH
from pullback.relax.declared import Declared, declared_of, with_declared
from pullback.relax.expr import Call, Callee, Constant, Expr, Function, Tuple, Var
from pullback.relax.mutator import ExprMutator, emit_body
from pullback.relax.op_calls import lacks_state, no_state
from pullback.relax.recursion import RECURSE, SELF, outer_labels
from pullback.relax.regions import regions
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.inline_functions import inline_calls

STATE = TensorStructInfo((2,), "uint64")


@dataclass(frozen=True)
class AddRandomState(Pass):
    """Add the last parameter ``random_state``, R.Tensor((2,), "uint64"), to a function that draws without a state.

    Functions that do not draw, or have a state for each draw, stay as they are.

    Args:
        func_name: the function, a name or a GlobalVar; by default all public functions.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32")):
        ...     return R.nn.dropout(a, rate=0.5)
        >>> module = relax.transform.AddRandomState()(pullback.IRModule({"main": main}))
        >>> [p.name for p in module["main"].params]
        ['a', 'random_state']

    Checks: raises ArgumentError where ``func_name`` is a kernel. What is called is inlined first; afterwards no call of
    the function lacks a state.
    """

    func_name: str | GlobalVar | None = None

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if name is not None and not isinstance(module[name], Function):
            raise ArgumentError(
                f"{self.name}: {name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        result = module.copy()
        for key, function in module.items():
            chosen = key == name if name is not None else isinstance(function, Function) and not _is_private(function)
            whole = inline_calls(function, module) if chosen else None
            if whole is not None and draws(whole):
                result[key] = _add_state(whole)
        return result


def _is_private(function: Function) -> bool:
    return bool(function.attrs.get("private"))


def draws(function: Function, recursions: Collection[str] = ()) -> bool:
    """Whether a closed function draws without a state, in its regions too. ``recursions``: the labels of functions
    around it that do."""
    return any(
        lacks_state(b.value)
        or not outer_labels(b.value).isdisjoint(recursions)
        or any(draws(r) for _, r in regions(b.value))
        for b in function.bindings
    )


def refuse_draws_without_state(function: Function) -> None:
    """Raise a UserError for the first call that cannot be computed, since it has no state."""
    for binding in function.bindings:
        value: Any = binding.value
        if lacks_state(value):
            raise no_state(value.op.short, value.span)
        for _, region in regions(value):
            refuse_draws_without_state(region)


class _Sites:
    """Counts the sites of one state."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count - 1


def _add_state(function: Function, sites: _Sites | None = None, recursions: Collection[str] = ()) -> Function:
    """The function with a state as its last parameter, from whose sites it draws."""
    state = Var(free_name("random_state", function), STATE)
    declared = declared_of(function)
    result = with_declared(_AddState(state, sites or _Sites(), recursions).function(function), None)
    result = Function((*result.params, state), result.body, None, result.attrs, span=result.span)
    return result if declared is None else with_declared(result, (*declared, Declared()))


def free_name(name: str, function: Function) -> str:
    """The name, or that with a number, which no parameter of the function has."""
    taken = {p.name for p in function.params}
    return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(taken) + 1))) if n not in taken)


class _AddState(ExprMutator):
    def __init__(self, state: Var, sites: _Sites, recursions: Collection[str]) -> None:
        super().__init__()
        self.state, self.sites, self.recursions = state, sites, recursions
        self.shared: dict[tuple[Op, str | None], Expr] = {}

    def rewrite_call(self, call: Call) -> Expr:
        if call.op is SELF and call.attrs["label"] in self.recursions:
            return Call(call.op, (self.with_own_state(call),), call.attrs, call.sinfo_args, span=call.span)
        if any(draws(region, self.recursions) for _, region in regions(call)):
            rules: dict[Callee, Callable[[Call], Expr]] = {BRANCH: self.branch_call, RECURSE: self.recurse_call}
            return rules.get(call.op, self.loop_call)(call)
        if not lacks_state(call):
            return call
        key = (call.op, call.attrs.get("shared"))
        site = self.shared.get(key)
        if site is None:
            site = self.site()
        if key[1] is not None:
            self.shared[key] = site
        return Call(call.op, (*call.args, site), call.attrs, span=call.span)  # the last of the tensors

    def site(self) -> Expr:
        return self.builder.emit(Op.get("random.site")(self.state, self.sites.next()), "site")

    def branch_call(self, call: Call) -> Call:
        """The branches draw from the same state, at sites of their own."""
        condition, operands = call.args
        changed = {name: _add_state(region, self.sites, self.recursions) for name, region in regions(call)}
        operands = Tuple((*operands.fields, self.state))
        return Call(call.op, (condition, operands), {**call.attrs, **changed}, span=call.span)

    def seed(self) -> Expr:
        """A number that no other site gives."""
        return self.builder.emit(Op.get("random.bits")(self.site(), shape=(1,), dtype="uint64"), "seed")

    def recurse_call(self, call: Call) -> Call:
        """A recursive function draws from a state of its own in each call."""
        label = call.attrs["label"]
        function = _add_state(call.attrs["function"], _Sites(), {*self.recursions, label})
        return Call(call.op, (self.with_own_state(call),), {**call.attrs, "function": function}, span=call.span)

    def with_own_state(self, call: Call) -> Tuple:
        first = Constant(np.zeros(1, np.uint64))
        state = self.builder.emit(Op.get("concat")([self.seed(), first], axis=0), "random_state")
        return Tuple((*call.args[0].fields, state))

    def loop_call(self, call: Call) -> Call:
        """The functions of a loop draw from the state (seed, step)."""
        *others, invariants = call.args
        seed = self.seed()
        sites = _Sites()  # the condition's come after the body's
        changed = {name: _in_step(region, sites, self.recursions) for name, region in regions(call)}
        invariants = Tuple((*invariants.fields, seed))
        return Call(call.op, (*others, invariants), {**call.attrs, **changed}, span=call.span)


def _in_step(region: Function, sites: _Sites, recursions: Collection[str]) -> Function:
    """A function of a loop, with the loop's seed as its last parameter."""
    inner = _add_state(region, sites, recursions)
    *params, state = inner.params
    seed = Var(free_name("seed", inner), TensorStructInfo((1,), "uint64"))
    builder = BlockBuilder()
    builder.begin([*(p.name for p in params), seed.name])
    with builder.dataflow():
        step = Op.get("reshape")(Op.get("astype")(params[0], "uint64"), (1,))
        known: dict[Var, Expr] = {p: p for p in params}
        known[state] = builder.emit(Op.get("concat")([seed, step], axis=0), "random_state")
        result = emit_body(inner, known, builder, final=True)
    return Function((*params, seed), builder.finish(result), None, region.attrs, span=region.span)
