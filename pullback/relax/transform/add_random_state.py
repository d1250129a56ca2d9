"""AddRandomState: random ops without a state draw from a parameter, each at a site of its own.

    def f(x):                                  def f(x, random_state):
        y = R.dropout(x, p=0.1)                    site = R.random.site(random_state, 0)
        z = R.dropout(y, p=0.1)                    y = R.dropout(x, site, p=0.1)
        return z                      →            site_1 = R.random.site(random_state, 1)
                                                   z = R.dropout(y, site_1, p=0.1)
                                                   return z

The state is (seed, number of the step), uint64. Sites are numbered in the order of the program; calls are inlined, so a
function that is called twice has its sites twice. Calls of one op with the same attribute ``shared`` have one site.
What is differentiated afterwards draws the same numbers again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.errors import ArgumentError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.declared import Declared, declared_of, with_declared
from pullback.relax.expr import Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import lacks_state, no_state
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.inline_functions import inline_calls


@dataclass(frozen=True)
class AddRandomState(Pass):
    """Add the last parameter ``random_state``, R.Tensor((2,), "uint64"), to a function that draws without a state.

    ``func_name``: the function, a name or a GlobalVar; by default all public functions. Those that do not draw, or have
    a state for each draw, stay as they are.
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
            if whole is not None and any(lacks_state(b.value) for b in whole.bindings):  # type: ignore[attr-defined]
                result[key] = _AddState().function(whole)
        return result


def _is_private(function: Function) -> bool:
    return bool(function.attrs.get("private"))


def refuse_draws_without_state(function: Function) -> None:
    """Raise a UserError for the first call that cannot be computed, since it has no state."""
    for binding in function.bindings:
        value = binding.value  # type: ignore[attr-defined]
        if lacks_state(value):
            raise no_state(value.op.short, value.span)


class _AddState(ExprMutator):
    def function(self, function: Function) -> Function:
        self.builder.begin([p.name for p in function.params])
        self.state = Var(self.builder.unique("random_state"), TensorStructInfo((2,), "uint64"))
        self.sites = 0
        self.shared: dict[tuple[Op, str], Expr] = {}
        declared = declared_of(function)
        result = with_declared(super().function(function), None)
        result = Function((*result.params, self.state), result.body, None, result.attrs, span=result.span)
        return result if declared is None else with_declared(result, (*declared, Declared()))

    def rewrite_call(self, call: Call) -> Expr:
        if not lacks_state(call):
            return call
        key = (call.op, call.attrs.get("shared"))
        site = self.shared.get(key)  # type: ignore[arg-type]
        if site is None:
            site = self.builder.emit(Op.get("random.site")(self.state, self.sites), "site")
            self.sites += 1
        if key[1] is not None:
            self.shared[key] = site  # type: ignore[index]
        return Call(call.op, (*call.args, site), call.attrs, span=call.span)  # the last of the tensors
