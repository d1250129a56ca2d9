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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.passes import FunctionPass, set_over_regions
from pullback.relax.analysis import free_vars
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
)
from pullback.relax.matching import match_info
from pullback.relax.mutator import Emitter, ExprMutator
from pullback.relax.regions import is_closed, is_open, map_regions, regions, with_regions
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, format_info


@dataclass(frozen=True)
class InlineFunctions(FunctionPass):
    """Inline every call of a graph function, and close branches and loops. Recursion is an error: it cannot be
    unrolled."""

    straight = False

    def function(self, function: Function, module: IRModule) -> Function:
        return inline_calls(function, module)


def inline_calls(function: Function, module: IRModule) -> Function:
    """``function`` without calls of other graph functions of the module, with closed branches and loops."""
    if not _has_calls(function, module):
        return function
    inliner = _Inliner(module, BlockBuilder())
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


@dataclass(frozen=True, eq=False)
class _Known:
    """A function as a value: what its free variables stand for, and which functions it was called in."""

    name: str
    function: Function
    env: Mapping[Any, Any] = field(default_factory=dict)
    sizes: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def struct_info(self) -> StructInfo:
        return self.function.struct_info


class _Inliner(Emitter):
    """Emits the body of a function; in ``env`` variables of function type stand for a :class:`_Known`."""

    def __init__(
        self,
        module: IRModule,
        builder: BlockBuilder,
        env: Mapping[Any, Any] | None = None,
        sizes: Mapping[Any, Any] | None = None,
        stack: tuple[_Known, ...] = (),
        flatten: bool = False,
    ) -> None:
        super().__init__(builder, env or {}, flatten, sizes)
        self.module, self.stack = module, stack

    # -- functions

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Function):
            self.env[binding.var] = _Known(binding.var.name, value, self.env, self.sizes)
        elif isinstance(value, GlobalVar) or isinstance(
            self.env.get(value) if isinstance(value, Var) else None, _Known
        ):
            self.env[binding.var] = self.callee(value)
        elif isinstance(value, Call) and isinstance(value.op, (GlobalVar, Expr)):
            with span_scope(value.span):
                self.bind(binding.var, self.call(self.callee(value.op), [self.argument(a) for a in value.args], value))
        elif isinstance(value, If):
            with span_scope(value.span):
                self.bind(binding.var, self.choice(value))
        elif _is_call(value):
            function = _Known(binding.var.name, value.attrs["function"])  # type: ignore[attr-defined]
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
        return isinstance(expr, Var) and isinstance(self.env.get(expr), _Known)

    def expr(self, expr: Any) -> Any:
        result = super().expr(expr)
        if isinstance(result, _Known):
            raise _escapes(result, expr.span)
        return result

    def argument(self, expr: Any) -> Any:
        """An argument of a graph function, which may be a function."""
        return self.callee(expr) if self.is_function(expr) or isinstance(expr, GlobalVar) else self.expr(expr)

    def callee(self, expr: Any) -> _Known:
        if isinstance(expr, GlobalVar):
            function = self.module[expr]
            if not isinstance(function, Function):
                message = f"{expr.name} is a kernel of the loop IR, not a graph function"
                raise UserError(message, hint=f"write R.call_tir(cls.{expr.name}, (x, …), R.Tensor(…))")
            return _Known(expr.name, function)
        known = self.env.get(expr)
        if not isinstance(known, _Known):
            name = getattr(expr, "name", "the callee")
            hint = "functions are called where they are defined, or passed to functions: they are not stored or chosen"
            raise UserError(f"which function {name} is, is not known when it is compiled", span=expr.span, hint=hint)
        return known

    def call(self, known: _Known, arguments: Sequence[Any], call: Any) -> Expr:
        """The body of a known function over the arguments."""
        if any(k.function is known.function for k in self.stack):
            cycle = " → ".join([*(k.name for k in self.stack), known.name])
            raise UserError(
                f"recursive functions are not supported yet: {cycle}",
                span=call.span,
                hint="write a loop: R.while_loop, R.fori_loop or R.scan",
            )
        function, sizes = known.function, dict(known.sizes)
        for param, argument in zip(function.params, arguments, strict=True):
            match_info(param.struct_info, argument.struct_info, sizes)
        sizes = {var: size for var, size in sizes.items() if var is not size}
        env = {**known.env, **dict(zip(function.params, arguments, strict=True))}
        inner = _Inliner(self.module, self.builder, env, sizes, (*self.stack, known), flatten=True)
        for block in function.body.blocks:
            inner.block(block)
        return inner.expr(function.body.body)

    # -- branches

    def choice(self, node: If) -> Expr:
        condition = self.expr(node.condition)
        if isinstance(condition, Constant):
            return self.body(node.then if condition.data else node.otherwise)
        bodies = [self.region([], lambda body=body: self.body(body)) for body in (node.then, node.otherwise)]
        (then, otherwise), operands = _closed(bodies)
        result = self.builder.emit(branch(condition, operands, then, otherwise), "chosen")
        return _nested(node.struct_info, _items(result), self)

    def body(self, body: SeqExpr) -> Expr:
        """The body of a branch, in the open block."""
        inner = _Inliner(self.module, self.builder, self.env, self.sizes, self.stack, flatten=True)
        for block in body.blocks:
            inner.block(block)
        return inner.expr(body.body)

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
        leaves = _leaves(value)
        promote, emit = self.builder.promote, self.builder.emit_output
        return Tuple(tuple(promote(v) if isinstance(v, Var) else emit(v) for v in leaves))

    # -- gradients of the user's

    def custom(self, call: Call) -> Expr:
        """A call with a gradient of its own in its closed form."""
        function, adjoint = (self.callee(f) for f in call.args[:2])
        operands = _leaves(self.expr(call.args[2]))
        results = _leaves(Var("result", call.struct_info))
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
        return _nested(call.struct_info, _items(result), self)

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
        flat = _leaves(carries)
        for value in flat:
            if not isinstance(value.struct_info, TensorStructInfo):
                message = f"a carry of {op.short} is {format_info(value.struct_info)}"
                raise UserError(message, span=call.span, hint="carries are tensors, and tuples of tensors")

        def variables() -> tuple[Var, list[Var], list[Var]]:
            rows = [Var(f"row_{k}", row(x.struct_info)) for k, x in enumerate(xs.fields)]
            return Var("step", STEP), [Var(_name(v), v.struct_info) for v in flat], rows

        def ask() -> Function:
            step, values, _ = variables()
            arguments = _nested(carries.struct_info, values, self).fields
            return self.region([step, *values], lambda: self.call(condition, arguments, call))

        def do() -> Function:
            step, values, rows = variables()
            arguments = [*([step] if numbered else []), *_nested(carries.struct_info, values, self).fields, *rows]

            def emit() -> tuple[Expr, ...]:
                result = self.call(known, arguments, call)
                return tuple(result) if op is SCAN else (result, Tuple(()))  # type: ignore[arg-type]

            return self.region([step, *values, *rows], emit)

        functions = [do(), *([_scalar(ask())] if condition is not None else [])]
        closed, invariants = _closed(functions)
        result = loop(
            count, flat, xs, invariants, closed[0], closed[1] if condition is not None else None,
            length, attrs.get("reverse", False), attrs["checkpoint_every"],
        )  # fmt: skip
        whole = self.builder.emit(result, "looped")
        (kept, stacks) = (self.builder.emit(TupleGetItem(whole, k), n) for k, n in enumerate(("carries", "stacked")))
        after = _nested(carries.struct_info, _items(kept), self)
        return Tuple((after, Tuple(tuple(_items(stacks))))) if op is SCAN else after

    def count(self, number: Expr, most: int | None) -> tuple[Expr | None, Any]:
        """The count and the length of a fori_loop."""
        if isinstance(number, PrimValue):
            return None, number.value
        if isinstance(number, Constant):
            return None, max(0, int(number.data))
        return number, most


def _closed(functions: Sequence[Function]) -> tuple[list[Function], list[Var]]:
    """The functions with the variables that they read around them as parameters at the end, the same for all."""
    outer = list(dict.fromkeys(v for f in functions for v in free_vars(f)))
    result = []
    for function in functions:
        fresh = {v: Var(v.name, v.struct_info, span=v.span) for v in outer}
        mutator = ExprMutator()
        mutator.builder.begin([*(p.name for p in function.params), *(v.name for v in outer)])
        mutator.env = {**{p: p for p in function.params}, **fresh}
        body = mutator.branch(function.body)
        result.append(Function((*function.params, *fresh.values()), body, span=function.span))
    return result, outer


def _scalar(function: Function) -> Function:
    """The function that gives one value, not a tuple of one."""
    body = function.body
    assert isinstance(body.body, Tuple)
    return Function(function.params, SeqExpr(body.blocks, body.body.fields[0]), span=function.span)


def _leaves(value: Expr) -> list[Expr]:
    """The values of nested tuples that are no tuples."""
    if isinstance(value.struct_info, TupleStructInfo):
        fields = value.fields if isinstance(value, Tuple) else tuple(value)
        return [leaf for f in fields for leaf in _leaves(f)]
    return [value]


def _items(value: Expr) -> Iterator[Expr]:
    return iter(TupleGetItem(value, k) for k in range(len(value.struct_info.fields)))  # type: ignore[attr-defined]


def _nested(info: StructInfo, leaves: Any, inliner: _Inliner) -> Any:
    """Values in the nested tuples of a type; items are bound to variables."""
    leaves = iter(leaves)
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(_nested(f, leaves, inliner) for f in info.fields))
    value = next(leaves)
    return value if isinstance(value, Var) else inliner.builder.emit(value)


def _name(value: Expr) -> str:
    return value.name if isinstance(value, Var) else "carry"


def _escapes(known: _Known, span: Any) -> UserError:
    return UserError(
        f"the function {known.name} is used as a value: it would have to be stored",
        span=span,
        hint="functions are called, or passed to functions and loops",
    )
