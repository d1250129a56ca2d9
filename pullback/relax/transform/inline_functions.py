"""InlineFunctions: calls of graph functions become the functions' bodies; branches and loops become closed calls.

    y = cls.f(x)                      →        lv = R.exp(x)
                                               y = R.add(lv, x)

    if c:                             →        @R.region
        y = R.exp(x)                           def then(x): return (R.exp(x),)
    else:                                      @R.region
        y = R.sin(x)                           def otherwise(x): return (R.sin(x),)
                                               y = R.branch(c, (x,), then=then, otherwise=otherwise)[0]

After it a function is *closed*: the only functions in it are the regions of ``branch``, ``loop`` and ``recurse``, which
read nothing but their parameters, take tensors and give tuples of tensors (``relax/control.py``, ``recursion.py``).
This is lambda lifting where the callee is known, which it is of every function that may be called: a function is no
value that is stored. ``close_loops.py``, ``tail_calls.py`` and ``recursive_calls.py`` write what is no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.passes import FunctionPass, set_over_regions
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import (
    CUSTOM,
    CUSTOM_GRADIENT,
    branch,
)
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    If,
    SeqExpr,
    Tuple,
    Var,
)
from pullback.relax.mutator import Emitter, ExprMutator
from pullback.relax.regions import is_closed, is_open, map_regions, regions, with_regions
from pullback.relax.transform.close_loops import closed_custom, closed_loop
from pullback.relax.transform.closed_form import (
    Known,
    closed,
    items_of,
    leaves_of,
    nested_value,
    sizes_of,
)
from pullback.relax.transform.recursive_calls import Recursion, recursive_call
from pullback.relax.transform.self_calls import SelfCalls
from pullback.relax.transform.tail_calls import tail_loop


@dataclass(frozen=True)
class InlineFunctions(FunctionPass):
    """Inline every call of a graph function, and close branches and loops. Functions that return what they give for
    other arguments (tail calls) become loops, of at most ``max_steps`` steps where they have that attribute. Others
    that call themselves become ``recurse``, with at most ``max_depth`` calls inside of one another.

    Checks: raises UserError where which function is called is not known when it is compiled, for a function that is
    stored or returned, and for one that calls itself without end. Afterwards all functions are closed.
    """

    straight = False

    def function(self, function: Function, module: IRModule) -> Function:
        return inline_calls(function, module)


def inline_calls(function: Function, module: IRModule) -> Function:
    """``function`` without calls of other graph functions of the module, with closed branches and loops."""
    if not _has_calls(function, module):
        return function
    inliner = Inliner(module, BlockBuilder())
    inliner.builder.begin([p.name for p in function.params])
    inliner.env.update((p, p) for p in function.params)
    name = next((name for name, f in module.items() if f is function), None)
    known = Known(name or "", function)
    if name is not None and inliner.is_recursive(known, function.params):
        with inliner.builder.dataflow(), span_scope(function.span):
            result = inliner.builder.as_output(inliner.call(known, function.params, function))
        body = inliner.builder.finish(result)
    else:
        body = inliner.branch(function.body)
    return Function(function.params, body, None, function.attrs, span=function.span)


def over_regions(function: Function, module: IRModule, change: Callable[[Function], Function]) -> Function:
    """``change`` of the function, with closed branches and loops, and before that of each region in it: how a pass for
    straight code works on a whole function."""
    if not is_closed(function):
        function = inline_calls(function, module)
    return change(map_regions(function, lambda region: over_regions(region, module, change)))


set_over_regions(over_regions)


def _has_calls(function: Function, module: IRModule) -> bool:
    return any(
        is_open(b.value)
        or (isinstance(b.value, Call) and isinstance(b.value.op, (GlobalVar, Expr)))
        or any(_has_calls(region, module) for _, region in regions(b.value))
        for b in function.bindings
    )


def _is_call(expr: Any) -> bool:
    """Whether it is a ``custom`` without an adjoint of its own."""
    return isinstance(expr, Call) and expr.op is CUSTOM and expr.attrs["adjoint"] is None


class Inliner(Emitter):
    """Emits the body of a function; in ``env`` variables of function type stand for a :class:`Known`."""

    def __init__(
        self,
        module: IRModule,
        builder: BlockBuilder,
        env: Mapping[Any, Any] | None = None,
        sizes: Mapping[Any, Any] | None = None,
        recursions: tuple[Recursion, ...] = (),
        flatten: bool = False,
    ) -> None:
        super().__init__(builder, env or {}, flatten, sizes)
        self.env: dict[Expr, Any]
        self.module, self.recursions = module, recursions
        open_functions = [r.known.function for r in recursions]
        self.self_calls = SelfCalls(module, lambda f: any(f is other for other in open_functions))

    # -- functions

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Function):
            self.env[binding.var] = Known(binding.var.name, value, self.env, self.sizes)
        elif isinstance(value, GlobalVar) or self.is_function(value):
            self.env[binding.var] = self.callee(value)
        elif isinstance(value, Call) and isinstance(value.op, (GlobalVar, Expr)):
            with span_scope(value.span):
                self.bind(binding.var, self.call(self.callee(value.op), [self.argument(a) for a in value.args], value))
        elif isinstance(value, If):
            with span_scope(value.span):
                self.bind(binding.var, self.choice(value))
        elif _is_call(value):
            function = Known(binding.var.name, value.attrs["function"])
            with span_scope(value.span):
                self.bind(binding.var, self.call(function, self.expr(value.args[0]).fields, value))
        elif isinstance(value, Call) and value.op is CUSTOM_GRADIENT:
            with span_scope(value.span):
                self.bind(binding.var, closed_custom(self, value))
        elif isinstance(value, Call) and is_open(value):
            with span_scope(value.span):
                self.bind(binding.var, closed_loop(self, value))
        else:
            super().rewrite_binding(binding)

    def bind(self, var: Var, value: Expr) -> None:
        if self.flatten:
            super().bind(var, value)
        else:
            ExprMutator.bind(self, var, value)

    def rewrite_call(self, call: Call) -> Expr:
        changed = {name: inline_calls(region, self.module) for name, region in regions(call)}
        return with_regions(call, changed) if changed else call

    def is_function(self, expr: Any) -> bool:
        return isinstance(expr, Var) and isinstance(self.env.get(expr), Known)

    def expr(self, expr: Any) -> Any:
        result = super().expr(expr)
        if isinstance(result, Known):
            raise _escapes(result, expr.span)
        return result

    def argument(self, expr: Any) -> Any:
        """An argument of a graph function, which may be a function."""
        return self.callee(expr) if self.is_function(expr) or isinstance(expr, GlobalVar) else self.expr(expr)

    def callee(self, expr: Any) -> Known:
        if isinstance(expr, GlobalVar):
            function = self.module[expr]
            if not isinstance(function, Function):
                message = f"{expr.name} is a kernel of the loop IR, not a graph function"
                raise UserError(message, hint=f"write R.call_tir(cls.{expr.name}, (x, …), R.Tensor(…))")
            return Known(expr.name, function)
        known = self.env.get(expr)
        if not isinstance(known, Known):
            name = getattr(expr, "name", "the callee")
            hint = "functions are called where they are defined, or passed to functions: they are not stored or chosen"
            raise UserError(f"which function {name} is, is not known when it is compiled", span=expr.span, hint=hint)
        return known

    def call(self, known: Known, arguments: Sequence[Any], call: Any) -> Expr:
        """The body of a known function over the arguments; of one that calls itself, a loop or a recursive call."""
        recursion = self.recursion_of(known)
        if recursion is not None:
            return recursion.again(self, arguments, call)
        if self.is_recursive(known, arguments):
            return recursive_call(self, known, arguments, call)
        if self.self_calls.calls_itself(known):
            return tail_loop(self, known, arguments, call)
        return self.entered(known, arguments).body(known.function.body)

    def is_recursive(self, known: Known, arguments: Sequence[Any]) -> bool:
        """Whether the function calls itself and does something with what that gives."""
        calls = self.self_calls
        return calls.calls_itself(known) and not calls.has_only_tail_calls(known, arguments)

    def recursion_of(self, known: Known) -> Recursion | None:
        """The recursive function being written, if it is this one."""
        return next((r for r in self.recursions if r.known.function is known.function), None)

    def entered(self, known: Known, arguments: Sequence[Any], recursion: Recursion | None = None) -> Inliner:
        """What emits the body of a function over the arguments; ``recursion``: it is the one of this function."""
        env = {**known.env, **dict(zip(known.function.params, arguments, strict=True))}
        recursions = self.recursions if recursion is None else (*self.recursions, recursion)
        return Inliner(self.module, self.builder, env, sizes_of(known, arguments), recursions, flatten=True)

    # -- branches

    def choice(self, node: If) -> Expr:
        condition = self.expr(node.condition)
        if isinstance(condition, Constant):
            return self.body(node.then if condition.data else node.otherwise)
        bodies = [self.region([], partial(self.body, body)) for body in (node.then, node.otherwise)]
        (then, otherwise), operands = closed(bodies, self.builder)
        result = self.builder.emit(branch(condition, operands, then, otherwise), "chosen")
        return nested_value(node.struct_info, items_of(result), self.builder)

    def body(self, body: SeqExpr) -> Expr:
        """A body, in the open block."""
        inner = self.inside()
        for block in body.blocks:
            inner.block(block)
        return inner.expr(body.body)

    def inside(self) -> Inliner:
        """What emits a body inside this one."""
        return Inliner(self.module, self.builder, self.env, self.sizes, self.recursions, flatten=True)

    def region(self, params: Sequence[Var], emit: Callable[[], Expr | tuple[Expr, ...]]) -> Function:
        """A function with these parameters of what is emitted, which still reads the variables around it; a group of
        results stays one."""
        with self.builder.inner():
            with self.builder.dataflow():
                result = emit()
                groups = result if isinstance(result, tuple) else (result,)
                found = [self._outputs(g) for g in groups]
            body = self.builder.finish(Tuple(tuple(found)) if isinstance(result, tuple) else found[0])
        return Function(tuple(params), body)

    def _outputs(self, value: Expr) -> Tuple:
        """The tensors of a value, as variables that may leave the block."""
        leaves = leaves_of(value)
        promote, emit = self.builder.promote, self.builder.emit_output
        return Tuple(tuple(promote(v) if isinstance(v, Var) else emit(v) for v in leaves))


def _escapes(known: Known, span: Any) -> UserError:
    return UserError(
        f"the function {known.name} is used as a value: it would have to be stored",
        span=span,
        hint="functions are called, or passed to functions and loops",
    )
