"""Rewriting graph functions: a visitor of bindings and a mutator that rebuilds functions in A-normal form."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    tuple_get_item,
)
from pullback.relax.matching import bind_size, bind_sizes, match_info
from pullback.tir.expr import PrimExpr
from pullback.tir.expr import Var as SizeVar


class ExprVisitor:
    """Walks a function: override ``visit_call`` and the like; the default goes on to the operands.

    Examples:
        >>> class Names(relax.ExprVisitor):
        ...     def visit_call(self, call):
        ...         print(call.op.name)
        ...         self.generic_visit(call)
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> Names().visit_function(relax.Function([a], relax.op.sum(relax.op.exp(a))))
        relax.sum
        relax.exp
    """

    def visit_function(self, function: Function) -> None:
        for binding in function.bindings:
            self.visit_binding(binding)
        self.visit_expr(function.body.body)

    def visit_binding(self, binding: Binding) -> None:
        self.visit_expr(binding.value)

    def visit_seq_expr(self, body: SeqExpr) -> None:
        for binding in body.bindings:
            self.visit_binding(binding)
        self.visit_expr(body.body)

    def visit_expr(self, expr: Any) -> None:
        method = getattr(self, f"visit_{_snake(type(expr).__name__)}", None)
        (method or self.generic_visit)(expr)

    def generic_visit(self, expr: Any) -> None:
        from pullback.relax.analysis import inner_bodies, sub_exprs

        for sub in sub_exprs(expr):
            self.visit_expr(sub)
        for body in inner_bodies(expr):
            self.visit_expr(body)


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class ExprMutator:
    """Rebuilds a function binding by binding.

    Override ``rewrite_call(call) -> Expr`` (operands are already rewritten) or ``rewrite_binding``. The result is in
    A-normal form again, with struct info deduced anew where that of an argument changed.

    Args:
        sizes: symbolic sizes to replace, by ints or int64 expressions.

    Examples:
        >>> class AddsAreProducts(relax.ExprMutator):
        ...     def rewrite_call(self, call):
        ...         return relax.op.multiply(*call.args) if call.op.name == "relax.add" else call
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> changed = AddsAreProducts().function(relax.Function([a], relax.op.exp(a + a)))
        >>> [str(binding.value) for binding in changed.bindings]
        ['R.multiply(a, a)', 'R.exp(gv)']
    """

    def __init__(self, sizes: Mapping[SizeVar, Any] | None = None) -> None:
        self.sizes = dict(sizes or {})
        self.env: dict[Expr, Expr] = {}
        self.builder = BlockBuilder()

    def function(self, function: Function) -> Function:
        """The rewritten function; parameters are kept unless their sizes change."""
        self.env = {}
        self.builder.begin([p.name for p in function.params])
        params = []
        for param in function.params:
            info = bind_sizes(param.struct_info, self.sizes)
            fresh = param if info is param.struct_info else Var(param.name, info, span=param.span)
            self.env[param] = fresh
            params.append(fresh)
        for block in function.body.blocks:
            if isinstance(block, DataflowBlock):
                with self.builder.dataflow():
                    self.block(block)
            else:
                self.block(block)
        body = self.builder.finish(self.expr(function.body.body))
        return Function(tuple(params), body, None, function.attrs, span=function.span)

    def block(self, block: Any) -> None:
        for binding in block.bindings:
            self.rewrite_binding(binding)

    def rewrite_binding(self, binding: Binding) -> None:
        """Rewrite one binding and record what its variable stands for."""
        if isinstance(binding.value, Function) and _calls_itself(binding.var, binding.value):
            self.bind_recursive(binding)
            return
        value = self.expr(binding.value)
        if isinstance(binding, MatchCast):
            self.env[binding.var] = self.builder.match_cast(value, bind_sizes(binding.target, self.sizes))
            return
        self.bind(binding.var, value)

    def bind_recursive(self, binding: Binding) -> None:
        """Bind a function that reads its own variable."""
        var = binding.var
        fresh = type(var)(self.builder.unique(var.name), bind_sizes(var.struct_info, self.sizes), span=var.span)
        self.env[var] = fresh
        self.builder.emit_binding(VarBinding(fresh, self.expr(binding.value), span=binding.span))

    def bind(self, var: Var, value: Expr) -> None:
        """Bind ``value`` under the name of ``var``, keeping whether it leaves its dataflow block."""
        if isinstance(value, Var) and isinstance(var, DataflowVar):
            self.env[var] = value  # an alias
        elif isinstance(var, DataflowVar):
            self.env[var] = self.builder.emit(value, var.name)
        else:
            self.env[var] = self.builder.emit_output(value, var.name)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, Var):
            return self.env.get(expr, expr)
        if isinstance(expr, Call):
            return self.rewrite_call(self._call(expr))
        if isinstance(expr, Tuple):
            fields = tuple(self.expr(f) for f in expr.fields)
            return expr if all(map(is_, fields, expr.fields)) else Tuple(fields, span=expr.span)
        if isinstance(expr, TupleGetItem):
            value = self.expr(expr.tuple_value)
            return expr if value is expr.tuple_value else tuple_get_item(value, expr.index)
        if isinstance(expr, ShapeExpr):
            return ShapeExpr(tuple(bind_size(s, self.sizes) for s in expr.values)) if self.sizes else expr
        if isinstance(expr, PrimValue) and isinstance(expr.value, PrimExpr) and self.sizes:
            return PrimValue(bind_size(expr.value, self.sizes))
        if isinstance(expr, Function):
            return self.inner_function(expr)
        if isinstance(expr, If):
            condition, then = self.expr(expr.condition), self.branch(expr.then)
            return If(condition, then, self.branch(expr.otherwise), span=expr.span)
        return expr

    def inner_function(self, function: Function) -> Function:
        """A function that reads the variables around it."""
        params = []
        for param in function.params:
            fresh = Var(param.name, bind_sizes(param.struct_info, self.sizes), span=param.span)
            self.env[param] = fresh
            params.append(fresh)
        return Function(tuple(params), self.branch(function.body), None, function.attrs, span=function.span)

    def branch(self, body: SeqExpr) -> SeqExpr:
        """A body inside the function, which reads the variables around it."""
        with self.builder.inner():
            for block in body.blocks:
                if isinstance(block, DataflowBlock):
                    with self.builder.dataflow():
                        self.block(block)
                else:
                    self.block(block)
            return self.builder.finish(self.expr(body.body))

    def _call(self, call: Call) -> Call:
        op = self.expr(call.op) if isinstance(call.op, Expr) else call.op
        args = tuple([self.expr(a) for a in call.args])
        attrs = self.bound_attrs(call)
        if not self.sizes and op is call.op and all(map(is_, args, call.args)):
            return call
        sinfo = tuple(bind_sizes(s, self.sizes) for s in call.sinfo_args) if self.sizes else call.sinfo_args
        # An op's result type follows from its arguments' types: the same of them, the same of it.
        known = not self.sizes and op is call.op and isinstance(op, Op) and all(map(_same_type, args, call.args))
        try:
            return Call(op, args, attrs, sinfo, call.info if known else None, span=call.span)
        except UserError:
            check_origin(call, self.sizes)
            raise

    def bound_attrs(self, call: Call) -> Mapping[str, Any]:
        """A call's attributes with the sizes replaced."""
        return {k: self._attr(v) for k, v in call.attrs.items()} if self.sizes else call.attrs

    def _attr(self, value: Any) -> Any:
        if isinstance(value, PrimExpr):
            return bind_size(value, self.sizes)
        if isinstance(value, Function):  # a region
            return ExprMutator(self.sizes).function(value)
        return tuple(self._attr(v) for v in value) if isinstance(value, tuple) else value

    def rewrite_call(self, call: Call) -> Expr:
        return call


def _calls_itself(var: Var, function: Function) -> bool:
    from pullback.relax.analysis import free_vars

    return var in free_vars(function)


def check_origin(call: Call, sizes: Mapping[SizeVar, Any]) -> None:
    """Raise the error that the call which the user wrote has with these sizes, if ``call`` was made of it by a pass."""
    origin = call.span.origin if call.span is not None else None
    if isinstance(origin, Call) and isinstance(origin.op, Op):
        args = [Var("x", bind_sizes(a.struct_info, sizes)) for a in origin.args]
        Call(origin.op, tuple(args), ExprMutator(sizes).bound_attrs(origin), span=origin.span)


def _same_type(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, Var) and isinstance(b, Var) and a.struct_info is b.struct_info)


def copy_with_new_vars(function: Function) -> Function:
    """The same function over fresh parameters and variables.

    Args:
        function: the graph function, which stays.

    Returns:
        A function of the same structure that shares no variable with it.
    """
    return CopyWithNewVars().function(function)


class CopyWithNewVars(ExprMutator):
    """Gives every parameter and variable a fresh identity."""

    def function(self, function: Function) -> Function:
        fresh = {p: Var(p.name, p.struct_info, span=p.span) for p in function.params}
        body = inline_body(function, fresh, self.builder_for(function))
        return Function(tuple(fresh.values()), body, None, function.attrs, span=function.span)

    def builder_for(self, function: Function) -> BlockBuilder:
        self.builder.begin([p.name for p in function.params])
        return self.builder


def inline_body(function: Function, arguments: Mapping[Var, Expr], builder: BlockBuilder) -> Any:
    """The body of ``function`` over ``arguments``, block structure kept, as a SeqExpr."""
    mutator = Emitter(builder, arguments)
    for block in function.body.blocks:
        if isinstance(block, DataflowBlock):
            with builder.dataflow():
                mutator.block(block)
        else:
            mutator.block(block)
    return builder.finish(mutator.expr(function.body.body))


def emit_body(function: Function, arguments: Mapping[Var, Expr], builder: BlockBuilder, final: bool = False) -> Expr:
    """Append the bindings of ``function`` over ``arguments`` to the current block of ``builder``.

    Returns what the function returns. Symbolic sizes of the parameters take the arguments' sizes. Inside a dataflow
    block everything becomes a DataflowVar unless ``final``.
    """
    sizes: dict[SizeVar, Any] = {}
    for param in function.params:
        if param in arguments:
            match_info(param.struct_info, arguments[param].struct_info, sizes)
    sizes = {var: size for var, size in sizes.items() if var is not size}
    mutator = Emitter(builder, arguments, flatten=not final, sizes=sizes)
    for block in function.body.blocks:
        mutator.block(block)
    return mutator.expr(function.body.body)


class Emitter(ExprMutator):
    """Emits bindings of one function into the builder of another; binding always makes a fresh variable.

    ``arguments`` say what the variables (and constants) of the first stand for in the second. With ``flatten``
    everything becomes local to the open dataflow block.
    """

    def __init__(
        self,
        builder: BlockBuilder,
        arguments: Mapping[Any, Expr],
        flatten: bool = False,
        sizes: Mapping[SizeVar, Any] | None = None,
    ) -> None:
        super().__init__(sizes)
        self.builder, self.env, self.flatten = builder, dict(arguments), flatten

    def expr(self, expr: Any) -> Any:
        return self.env[expr] if isinstance(expr, Constant) and expr in self.env else super().expr(expr)

    def branch(self, body: SeqExpr) -> SeqExpr:
        flatten, self.flatten = self.flatten, False
        try:
            return super().branch(body)
        finally:
            self.flatten = flatten

    def bind(self, var: Var, value: Expr) -> None:
        emit = self.builder.emit if self.flatten or isinstance(var, DataflowVar) else self.builder.emit_output
        self.env[var] = emit(value, var.name)
