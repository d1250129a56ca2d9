"""Loop functions: from the syntax tree of ``@T.prim_func`` to a PrimFunc."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.errors import ScriptError
from pullback.ir.node import span_scope
from pullback.relax.expr import Expr
from pullback.script import tir as T
from pullback.script.parser.blocks import Blocks
from pullback.script.parser.evaluator import BINARY, describe
from pullback.script.parser.function import FunctionParser, is_docstring
from pullback.script.sizes import sizes_scope
from pullback.tir.expr import Buffer, PrimExpr, Var, as_expr
from pullback.tir.stmt import Allocate, BufferStore, If, Let, PrimFunc, Seq, Stmt, While, store


@dataclass(frozen=True)
class Binder:
    """A statement whose body is the rest of its block: Let (with a value) or Allocate."""

    symbol: Any
    value: PrimExpr | None
    span: Any

    def close(self, rest: Stmt) -> Stmt:
        with span_scope(self.span):
            return Allocate(self.symbol, rest) if self.value is None else Let(self.symbol, self.value, rest)


class LoopFunctionParser(FunctionParser):
    """Reads one ``@T.prim_func``."""

    kind = "@T.prim_func"
    hints = {  # noqa: RUF012
        ast.While: "loops have an extent: for i in range(n)",
        ast.FunctionDef: "write a Python function outside that returns an expression, and call it",
        ast.Return: "a loop function writes its results to buffer parameters",
        ast.With: 'the blocks of a loop function are: with T.scope(): and with T.block("C"):',
        ast.AnnAssign: "give it a value: name: T.float32 = value",
        ast.AugAssign: "a name stands for one value: use a new name, or an element of a buffer",
    }

    def parse(self) -> PrimFunc:
        """The function."""
        with sizes_scope(self.scope.sizes):
            params = self.parameters()
            if self.node.returns is not None:
                raise self.source.error(self.node.returns, "a loop function returns nothing", self.hints[ast.Return])
            self.enter_body()
            body = self.block(self.node.body)
        params = self.matched_parameters(params)
        alias = self.attrs.get("tir.noalias")
        attrs = dict(self.attrs)
        if alias is not None and getattr(alias, "value", alias):  # it goes without saying: parameters never overlap
            del attrs["tir.noalias"]
        return PrimFunc(self.node.name, params, body, attrs, span=self.span)

    def matched_parameters(self, params: Sequence[Buffer | Var | T.Handle]) -> tuple[Buffer | Var, ...]:
        """The parameters, with buffers for handles."""
        left = next((p for p in params if isinstance(p, T.Handle) and p.name not in self.matches), None)
        if left is not None:
            hint = f'write A = T.match_buffer({left.name}, (4, 8), "float32"), or {left.name}: T.Buffer((4, 8))'
            arg = next(a for a in self.arguments(self.node) if a.arg == left.name)
            raise self.source.error(arg, f"no T.match_buffer says what {left.name!r} is", hint)
        return tuple(self.matches[p.name] if isinstance(p, T.Handle) else p for p in params)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.blocks = Blocks(self)
        self.matches: dict[str, Buffer] = {}  # of parameters that are handles

    def parameters(self) -> tuple[Buffer | Var | T.Handle, ...]:
        """Scalars are read first, so that buffers may have them in their shapes."""
        arguments, values = self.arguments(self.node), {}
        for arg in arguments:
            if arg.annotation is None:
                hint = f'write {arg.arg}: T.Buffer((4, 8), "float32") or {arg.arg}: T.int64'
                raise self.source.error(arg, f"parameter {arg.arg!r} has no type", hint)
            if not isinstance(arg.annotation, ast.Call):
                values[arg.arg] = self.eval_annotation(arg.annotation)
            if isinstance(values.get(arg.arg), T.DType):
                self.scope.sizes.declare(arg.arg, values[arg.arg].name)
        for arg in arguments:
            if arg.arg not in values and arg.annotation is not None:
                values[arg.arg] = self.eval_annotation(arg.annotation)
            values[arg.arg] = self.parameter(arg, values[arg.arg])
            self.scope.define(arg.arg, values[arg.arg], self.source.span(arg))
        return tuple(values[arg.arg] for arg in arguments)

    def parameter(self, arg: ast.arg, annotation: Any) -> Buffer | Var | T.Handle:
        if annotation is T.handle:
            return T.Handle(arg.arg)
        if isinstance(annotation, T.DType):
            return self.scope.sizes.declare(arg.arg, annotation.name)
        if isinstance(annotation, Buffer):
            return replace(annotation, name=arg.arg, span=self.source.span(arg))
        hint = 'a parameter is a T.Buffer((4, 8), "float32") or a scalar such as T.int64'
        raise self.source.error(arg, f"parameter {arg.arg!r} has the annotation {describe(annotation)}", hint)

    # -- statements

    def block(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Statements in a scope of their own. ``pass`` in front makes a sequence of a single statement explicit."""
        self.scope.push()
        groups: list[tuple[list[Stmt], bool, Binder | None]] = []
        stmts: list[Stmt] = []
        explicit = False
        for node in nodes:
            if isinstance(node, ast.Pass):
                explicit = True
                continue
            result = self.statement(node)
            if isinstance(result, Binder):
                groups.append((stmts, explicit, result))
                stmts, explicit = [], False
            elif result is not None:
                stmts.append(result)
        groups.append((stmts, explicit, None))
        self.scope.pop()
        rest: Stmt | None = None
        for stmts, explicit, binder in reversed(groups):
            if binder is not None:
                assert rest is not None  # the last group has none
                stmts = [*stmts, binder.close(rest)]
            alone = len(stmts) == 1 and not explicit
            rest = stmts[0] if alone else Seq(tuple(part for s in stmts for part in self.blocks.flattened(s)))
        assert rest is not None
        return rest

    def statement(self, node: ast.stmt) -> Stmt | Binder | None:
        if is_docstring(node):
            return None
        if isinstance(node, ast.Assign):
            return self.assignment(node)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self.annotated(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            return self.update(node)
        if isinstance(node, ast.For) and not node.orelse:
            return self.loop(node)
        if isinstance(node, ast.If):
            return self.condition(node)
        if isinstance(node, ast.While) and not node.orelse and self.attrs.get("kind") == "host":
            with self.evaluator.blame(node):
                return While(as_expr(self.eval(node.test)), self.block(node.body))
        if isinstance(node, ast.With) and self.is_call_of(node.items[0].context_expr, T.scope):
            return self.block(node.body)
        if isinstance(node, ast.With):
            is_block, result = self.blocks.statement(node)
            if is_block:
                return result
        if isinstance(node, ast.Expr):
            return self.expression(node)
        raise self.unsupported(node)

    def expression(self, node: ast.Expr) -> Stmt | None:
        if self.is_call_of(node.value, T.func_attr):
            self.add_attrs(node.value)
            return None
        if isinstance(node.value, ast.Call) and self.blocks.expression(node.value):
            return None
        value = self.eval(node.value)
        if value is not None and not isinstance(value, Stmt):
            hint = "assign it to a name or to an element of a buffer, or delete the line"
            raise self.source.error(node, "the value of this expression is not used", hint)
        return value

    # -- assignments

    def assignment(self, node: ast.Assign) -> Stmt | Binder | None:
        if len(node.targets) != 1:
            raise self.source.error(node, "several assignments on one line", "write one name = value a line")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self.store(target, node, self.eval(node.value))
        if isinstance(target, ast.Tuple | ast.List) and self.blocks.axes(target, self.eval(node.value), node):
            return None
        if not isinstance(target, ast.Name):
            hint = "write name = value, or buffer[i] = value, one a line"
            raise self.source.error(target, "only names and elements of buffers can be assigned", hint)
        span = self.source.span(target)
        scalar = self.new_scalar(target.id, node.value)
        value = scalar if scalar is not None else self.eval(node.value)
        if self.blocks.axes(target, value, node):
            return None
        if isinstance(value, T.Match):
            self.match(target, value, node)
            return None
        if isinstance(value, Expr):
            raise self.source.error(node.value, f"{describe(value)} has no place in a loop function")
        if isinstance(value, PrimExpr) and scalar is None:
            return self.let(target, Var(target.id, value.dtype, span=span), value, node)
        if isinstance(value, T.Allocation):
            buffer = replace(value.buffer, name=target.id, span=span)
            self.scope.define(target.id, buffer, span)
            return Binder(buffer, None, self.source.span(node))
        if isinstance(value, Buffer) and value.name == T.UNNAMED:
            value = replace(value, name=target.id, span=span)
        self.scope.define(target.id, value, span)
        return None

    def match(self, target: ast.Name, value: T.Match, node: ast.stmt) -> None:
        """``A = T.match_buffer(a, …)``: the parameter is this buffer."""
        if value.handle.name in self.matches:
            message = f"{value.handle.name!r} is matched twice"
            raise self.source.error(node, message, "a parameter is one buffer: use the name that it has")
        buffer = replace(value.buffer, name=target.id, span=self.source.span(target))
        self.matches[value.handle.name] = buffer
        self.scope.define(target.id, buffer, buffer.span)

    def annotated(self, node: ast.AnnAssign) -> Binder:
        """``x: T.float32 = value``."""
        dtype = self.eval_annotation(node.annotation)
        if not isinstance(node.target, ast.Name) or not isinstance(dtype, T.DType) or node.value is None:
            hint = "a scalar has a dtype of T: T.float32, T.int64, …"
            raise self.source.error(node, "an annotated assignment is written name: T.float32 = value", hint)
        value = self.eval(node.value)
        with self.evaluator.blame(node.value):
            value = as_expr(value, dtype.name)
        return self.let(node.target, Var(node.target.id, dtype.name, span=self.source.span(node.target)), value, node)

    def let(self, target: ast.Name, var: Var, value: PrimExpr, node: ast.stmt) -> Binder:
        with self.evaluator.blame(node):
            if var.dtype != value.dtype:
                hint = f"convert it: T.cast({var.dtype!r}, …)"
                raise ScriptError(f"{target.id} is declared {var.dtype} but its value is {value.dtype}", hint=hint)
            self.scope.define(target.id, var, self.source.span(target))
        return Binder(var, value, self.source.span(node))

    def store(self, target: ast.Subscript, node: ast.stmt, value: Any) -> BufferStore:
        """``A[i, j] = value``."""
        buffer, index = self.eval(target.value), self.eval(target.slice)
        if not isinstance(buffer, Buffer):
            raise self.source.error(
                target.value, f"only buffers have elements that can be assigned, not {describe(buffer)}"
            )
        with self.evaluator.blame(node):
            return store(buffer, index, value)

    def update(self, node: ast.AugAssign) -> BufferStore:
        """``A[i] += value``."""
        assert isinstance(node.target, ast.Subscript)
        old, value = self.eval(node.target), self.eval(node.value)
        with self.evaluator.blame(node):
            new = BINARY[type(node.op)](old, value)
        return self.store(node.target, node, new)

    # -- control flow

    def loop(self, node: ast.For) -> Stmt:
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [n for n in targets if isinstance(n, ast.Name)]
        loop = self.loop_range(node.iter)
        if not len(names) == len(targets) == len(loop.extents):
            hint = "one name for each extent: for i in range(n), for i, j in T.grid(m, n)"
            raise self.source.error(node.target, f"{len(loop.extents)} loop variables are expected here", hint)
        self.scope.push()
        variables = []
        for name, extent in zip(names, loop.extents, strict=True):
            span = self.source.span(name)
            var = Var(name.id, loop.dtype or extent.dtype, span=span)
            shifted = var if isinstance(loop.start, int) and loop.start == 0 else var + loop.start
            with self.evaluator.blame(name):
                self.scope.define(name.id, shifted, span)
            variables.append(var)
        body = self.block(node.body)
        self.scope.pop()
        with span_scope(self.source.span(node)):
            return self.blocks.around(variables, loop.extents, body, loop.kind)

    def loop_range(self, node: ast.expr) -> T.Loop:
        """What a for statement goes over."""
        if isinstance(node, ast.Call) and self.eval(node.func) is range:
            args = [self.eval(a) for a in node.args]
            with self.evaluator.blame(node):
                value = T.serial(*args)
        else:
            value = self.eval(node)
        if not isinstance(value, T.Loop):
            hint = "loops go over range(n), T.grid(m, n), T.parallel(n), T.vectorized(n) or T.unrolled(n)"
            raise self.source.error(node, f"a loop cannot go over {describe(value)}", hint)
        return value

    def condition(self, node: ast.If) -> Stmt:
        """``if``: of the loop IR, or decided now when the condition is a Python value."""
        condition = self.eval(node.test)
        if not isinstance(condition, PrimExpr):
            return self.block(node.body if condition else node.orelse)
        if condition.dtype != "bool":
            hint = "compare it with something: x != 0"
            raise self.source.error(node.test, f"a condition must be bool, not {condition.dtype}", hint)
        then = self.block(node.body)
        otherwise = self.block(node.orelse) if node.orelse else None
        with span_scope(self.source.span(node)):
            return If(condition, then, otherwise)
