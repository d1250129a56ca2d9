"""InlineFunctions: calls of graph functions become the functions' bodies; branches and loops become closed calls.

    y = cls.f(x)                      →        lv = R.exp(x)
                                               y = R.add(lv, x)

    if c:                             →        @R.region
        y = R.exp(x)                           def then(x): return (R.exp(x),)
    else:                                      @R.region
        y = R.sin(x)                           def otherwise(x): return (R.sin(x),)
                                               y = R.branch(c, (x,), then=then, otherwise=otherwise)[0]

After it a function is *closed*: the only functions in it are the regions of ``branch`` and ``loop``, which read nothing
but their parameters, take tensors and give tuples of tensors (``relax/control.py``). This is lambda lifting where the
callee is known, which it is of every function that may be called: a function is no value that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass, set_over_regions
from pullback.relax.analysis import called_functions, free_vars, used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import (
    CUSTOM,
    CUSTOM_GRADIENT,
    FORI,
    SCAN,
    STEP,
    WHILE,
    branch,
    custom,
    loop,
    row,
    scan_length,
    with_floats,
)
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    If,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from pullback.relax.matching import bind_sizes
from pullback.relax.mutator import Emitter, ExprMutator
from pullback.relax.regions import is_closed, is_open, map_regions, regions, with_regions
from pullback.relax.struct_info import TensorStructInfo, flat_infos, format_info
from pullback.relax.transform.closed_form import (
    Known,
    closed,
    items_of,
    leaves_of,
    nested_value,
    scalar_function,
    sizes_of,
)
from pullback.relax.transform.tail_calls import Tail


@dataclass(frozen=True)
class InlineFunctions(FunctionPass):
    """Inline every call of a graph function, and close branches and loops. Functions that return what they give for
    other arguments (tail calls) become loops, of at most ``max_steps`` steps where they have that attribute; other
    recursion is an error."""

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
        stack: tuple[Known, ...] = (),
        flatten: bool = False,
    ) -> None:
        super().__init__(builder, env or {}, flatten, sizes)
        self.module, self.stack = module, stack

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
            function = Known(binding.var.name, value.attrs["function"])  # type: ignore[attr-defined]
            with span_scope(value.span):
                self.bind(binding.var, self.call(function, self.expr(value.args[0]).fields, value))  # type: ignore[attr-defined]
        elif isinstance(value, Call) and value.op is CUSTOM_GRADIENT:
            with span_scope(value.span):
                self.bind(binding.var, self.custom(value))
        elif is_open(value):
            with span_scope(value.span):
                self.bind(binding.var, self.loop(value))
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
        """The body of a known function over the arguments."""
        if self.is_open(known):
            cycle = " → ".join([*(k.name for k in self.stack), known.name])
            raise UserError(
                f"recursive calls whose results are used further are not supported yet: {cycle}",
                span=call.span,
                hint="return what the call gives, as it is, or write a loop: R.while_loop, R.fori_loop or R.scan",
            )
        if self.calls_itself(known):
            return self.tail_loop(known, arguments, call)
        return self.entered(known, arguments).body(known.function.body)

    def entered(self, known: Known, arguments: Sequence[Any]) -> Inliner:
        """What emits the body of a function over the arguments."""
        env = {**known.env, **dict(zip(known.function.params, arguments, strict=True))}
        sizes = sizes_of(known, arguments)
        return Inliner(self.module, self.builder, env, sizes, (*self.stack, known), flatten=True)

    # -- recursion

    def is_open(self, known: Known) -> bool:
        """Whether the function is being inlined."""
        return any(k.function is known.function for k in self.stack)

    def calls_itself(self, known: Known) -> bool:
        """Whether the function may call itself, directly or by way of others."""
        if any(value is known for value in known.env.values()):  # a function inside, which reads its own name
            names = {v for v, value in known.env.items() if value is known}
            return not names.isdisjoint(used_vars(known.function))
        reached, stack = set(), called_functions(known.function)
        while stack:
            name = stack.pop()
            function = self.module.functions.get(name)
            if name not in reached and isinstance(function, Function):
                reached.add(name)
                stack += called_functions(function)
        return known.name in reached and self.module.functions.get(known.name) is known.function

    def tail_loop(self, known: Known, arguments: Sequence[Any], call: Any) -> Expr:
        """A function that returns what it gives for other arguments, as a loop over its arguments.

        def f(x): return f(x * 2) if x < 9 else x    →    while not done: x, y, done = (x * 2, 0, False) or (x, x, True)
        """
        ret = bind_sizes(known.function.ret_struct_info, sizes_of(known, arguments))
        is_value = [not isinstance(a, Known) for a in arguments]
        begin = Tuple(tuple(a for a, kept in zip(arguments, is_value, strict=True) if kept))
        zeros = [Op.get("zeros")(info.shape, info.dtype) for info in flat_infos(ret)]  # type: ignore[attr-defined]
        flat = [*leaves_of(begin), *zeros, const(False)]
        first = len(flat) - 1 - len(zeros)

        def variables() -> list[Var]:
            return [Var("step", STEP), *(Var(_name(v), v.struct_info) for v in flat)]

        asked = variables()
        ask = self.region(asked, lambda: Op.get("logical_not")(asked[-1]))
        given = variables()

        def emit() -> tuple[Expr, ...]:
            values = iter(nested_value(begin.struct_info, given[1 : first + 1], self.builder).fields)
            now = [next(values) if kept else a for a, kept in zip(arguments, is_value, strict=True)]
            tail = Tail(known, arguments, given[1 : first + 1], given[first + 1 : -1])
            found = tail.of(self.entered(known, now), known.function.body)
            if not tail.ends:
                raise UserError(
                    f"{known.name} calls itself without end",
                    span=call.span,
                    hint="one way through it has to return something else: if …: return x",
                )
            return found, Tuple(())

        body = self.region(given, emit)
        (body, ask), invariants = closed([body, scalar_function(ask)], self.builder)
        most = known.function.attrs.get("max_steps")
        result = loop(None, flat, (), invariants, body, ask, most)
        whole = self.builder.emit(result, "looped")
        kept = list(items_of(self.builder.emit(TupleGetItem(whole, 0), "carries")))
        return nested_value(ret, kept[first:-1], self.builder)

    # -- branches

    def choice(self, node: If) -> Expr:
        condition = self.expr(node.condition)
        if isinstance(condition, Constant):
            return self.body(node.then if condition.data else node.otherwise)
        bodies = [self.region([], lambda body=body: self.body(body)) for body in (node.then, node.otherwise)]
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
        return Inliner(self.module, self.builder, self.env, self.sizes, self.stack, flatten=True)

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

    # -- gradients of the user's

    def custom(self, call: Call) -> Expr:
        """A call with a gradient of its own in its closed form."""
        function, adjoint = (self.callee(f) for f in call.args[:2])
        operands = leaves_of(self.expr(call.args[2]))
        results = leaves_of(Var("result", call.struct_info))
        seeds = with_floats([r.struct_info for r in results])
        regions = []
        for what, known, more in (("function", function, []), ("adjoint", adjoint, seeds)):
            params = [Var(_name(v), v.struct_info) for v in operands]
            params += [Var(f"adjoint_{k}", info) for k, info in enumerate(more)]
            region = self.region(params, lambda known=known, params=params: self.call(known, params, call))
            outer = free_vars(region)
            if outer:
                raise UserError(
                    f"custom_gradient: {what} reads {outer[0].name}, which is around it and would get no gradient",
                    span=call.span,
                    hint="make it an operand",
                )
            regions.append(region)
        result = self.builder.emit(custom(operands, *regions), "result")
        return nested_value(call.struct_info, items_of(result), self.builder)

    # -- loops

    def loop(self, call: Call) -> Expr:
        """A loop in its closed form."""
        op, attrs = call.op, self.bound_attrs(call)
        count, length, condition, xs, numbered = None, None, None, Tuple(()), False
        if op is WHILE:
            asked, function, carries = call.args
            condition, length = self.callee(asked), attrs["max_steps"]
        elif op is FORI:
            number, function, carries = call.args
            count, length = self.count(self.expr(number), attrs["max_steps"])
            numbered = True
        else:
            function, carries, xs = call.args
            xs = self.expr(xs)
            length = scan_length([x.struct_info for x in xs.fields], attrs["length"])
        carries, known = self.expr(carries), self.callee(function)
        flat = leaves_of(carries)
        for value in flat:
            if not isinstance(value.struct_info, TensorStructInfo):
                message = f"a carry of {op.short} is {format_info(value.struct_info)}"
                raise UserError(message, span=call.span, hint="carries are tensors, and tuples of tensors")

        def variables() -> tuple[Var, list[Var], list[Var]]:
            rows = [Var(f"row_{k}", row(x.struct_info)) for k, x in enumerate(xs.fields)]
            return Var("step", STEP), [Var(_name(v), v.struct_info) for v in flat], rows

        def ask() -> Function:
            step, values, _ = variables()
            arguments = nested_value(carries.struct_info, values, self.builder).fields
            return self.region([step, *values], lambda: self.call(condition, arguments, call))

        def do() -> Function:
            step, values, rows = variables()
            arguments = [
                *([step] if numbered else []),
                *nested_value(carries.struct_info, values, self.builder).fields,
                *rows,
            ]

            def emit() -> tuple[Expr, ...]:
                result = self.call(known, arguments, call)
                return tuple(result) if op is SCAN else (result, Tuple(()))  # type: ignore[arg-type]

            return self.region([step, *values, *rows], emit)

        functions = [do(), *([scalar_function(ask())] if condition is not None else [])]
        found, invariants = closed(functions, self.builder)
        result = loop(
            count, flat, xs, invariants, found[0], found[1] if condition is not None else None,
            length, attrs.get("reverse", False), attrs["checkpoint_every"],
        )  # fmt: skip
        whole = self.builder.emit(result, "looped")
        (kept, stacks) = (self.builder.emit(TupleGetItem(whole, k), n) for k, n in enumerate(("carries", "stacked")))
        after = nested_value(carries.struct_info, items_of(kept), self.builder)
        return Tuple((after, Tuple(tuple(items_of(stacks))))) if op is SCAN else after

    def count(self, number: Expr, most: int | None) -> tuple[Expr | None, Any]:
        """The count and the length of a fori_loop."""
        if isinstance(number, PrimValue):
            return None, number.value
        if isinstance(number, Constant):
            return None, max(0, int(number.data))
        return number, most


def _name(value: Expr) -> str:
    return value.name if isinstance(value, Var) else "carry"


def _escapes(known: Known, span: Any) -> UserError:
    return UserError(
        f"the function {known.name} is used as a value: it would have to be stored",
        span=span,
        hint="functions are called, or passed to functions and loops",
    )
