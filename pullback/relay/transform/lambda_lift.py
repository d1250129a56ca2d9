"""LambdaLift: functions inside functions become functions of the module.

    def @main(%x) {                   def @main(%x) { @map(@lifted_name(%x), …) }
      @map(fn (%y) { %x + %y }, …)  →
    }                                 def @lifted_name(%x) { fn (%y) { %x + %y } }     // Closure=1

What a function captures becomes parameters of a function that returns it. One that captures nothing is a function of
the module itself. In a function that calls itself, its name becomes such a call, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.analysis import free_type_vars, free_vars
from pullback.relay.duplicate import duplicate
from pullback.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from pullback.relay.transform.infra import optimizable
from pullback.relay.transform.lets import LetMutator
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.transform.to_basic_block import to_basic_block_normal_form

NAME = "lifted_name"


@dataclass(frozen=True)
class LambdaLift(Pass):
    """Lifts the functions inside all functions of a module. Types are inferred before and after.

    Checks: fused functions, and those for outside compilers, stay as they are.
    """

    opt_level = 1

    def run(self, module: IRModule) -> IRModule:
        from pullback.relay.infer import infer_module

        blocks = module.copy()  # what a function inside shares with those around becomes a variable, which it captures
        for name, function in module.items():
            if optimizable(function):
                blocks[name] = to_basic_block_normal_form(function)
        result = infer_module(blocks)
        for name, function in result.items():
            if optimizable(function) and not is_primitive(function):
                result[name] = function.replace(body=_Lifter(result, {}).visit(function.body))
        return infer_module(result)


class _Lifter(LetMutator):
    """Lifts what is inside one function into the module."""

    def __init__(self, module: IRModule, values: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.module = module
        self.memo_map.update(values)

    def visit_function(self, function: Function) -> Expr:
        return self._lift(function, None)

    def binding(self, let: Let) -> Expr:
        if isinstance(let.value, Function):
            self.memo_map[let.value] = self._lift(let.value, let.variable)
        return self.visit(let.value)

    def _lift(self, function: Function, itself: Var | None) -> Expr:
        if is_primitive(function):
            return function
        captured = [v for v in free_vars(function) if v is not itself]
        types = tuple(free_type_vars(function.replace(params=(*captured, *function.params))))
        name = GlobalVar(self.module.unique_name(NAME))
        self.module[name.name] = function  # the name is taken
        lifted: Expr = Call(name, tuple(captured), {}, types, span=function.span) if captured else name
        inner = _Lifter(self.module, {} if itself is None else {itself: lifted})
        body = inner.visit(function.body)
        made = function.replace(body=body, type_params=(*function.type_params, *(() if captured else types)))
        if captured:
            made = Function(tuple(captured), made, function.checked_type, types, {"Closure": 1}, span=function.span)
        self.module[name.name] = duplicate(made)
        if not captured:
            return name
        return Call(name, tuple(self.visit(v) for v in captured), {}, types, span=function.span)
