"""Blocks in loop functions, as TVM prints them: read as the loops and stores that they mean.

    for i, k in T.grid(4, 8):                            for i in range(4):
        with T.block("sum"):                                 B[i] = T.float32(0)
            vi, vk = T.axis.remap("SR", [i, k])       →      for k in range(8):
            with T.init():                                       B[i] = B[i] + A[i, k]
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]

What ``T.init`` says is done before the loops over a sum's axes, where these are the innermost loops around the block;
otherwise in their first step, under an ``if``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pullback.ir.node import span_scope
from pullback.script import tir as T
from pullback.tir.expr import PrimExpr, Var, as_expr, binary
from pullback.tir.stmt import For, If, Stmt, seq
from pullback.tir.visitor import distinct

if TYPE_CHECKING:
    from pullback.script.parser.loops import LoopFunctionParser

_PASSED_OVER = (T.reads, T.writes, T.block_attr, T.evaluate)


@dataclass
class Block:
    """A block that is being read: the axes of its sums with their starts, what comes first, and when it does all."""

    sums: list[tuple[PrimExpr, Any]] = field(default_factory=list)
    init: Stmt | None = None
    predicates: list[PrimExpr] = field(default_factory=list)


@dataclass(frozen=True)
class First:
    """A statement whose beginning, ``init``, belongs to the first step of loops around it."""

    sums: tuple[tuple[PrimExpr, Any], ...]
    init: Stmt
    rest: Stmt

    def stmt(self) -> Stmt:
        """The beginning under a condition."""
        condition: PrimExpr | None = None
        for value, start in self.sums:
            begins = binary("eq", value, as_expr(start, value.dtype))
            condition = begins if condition is None else binary("and", condition, begins)
        return seq(self.init if condition is None else If(condition, self.init, None), self.rest)

    def before(self, loop_var: Var, extent: PrimExpr, kind: str) -> First | None:
        """The same around a loop over ``loop_var``, where that is an axis of a sum; None where it is none."""
        mine = [s for s in self.sums if s[0] is loop_var and getattr(s[1], "value", s[1]) == 0]
        if not mine or any(part is loop_var for part in distinct(self.init)):
            return None
        others = tuple(s for s in self.sums if s not in mine)
        if any(part is loop_var for value, _ in others for part in distinct(value)):
            return None
        return First(others, self.init, For(loop_var, extent, self.rest, kind))


class Blocks:
    """Reads the blocks of one function."""

    def __init__(self, parser: LoopFunctionParser) -> None:
        self.parser = parser
        self.open: list[Block] = []
        self.first: dict[Stmt, First] = {}  # the statements that blocks with a beginning have become
        self.flat: set[Stmt] = set()  # sequences that blocks have become: part of the sequence around them

    def statement(self, node: ast.With) -> tuple[bool, Stmt | None]:
        """Whether the statement is a block or its beginning, and what it becomes."""
        call = node.items[0].context_expr
        parser = self.parser
        if len(node.items) == 1 and parser.is_call_of(call, T.block):
            return True, self.block(node)
        if len(node.items) == 1 and parser.is_call_of(call, T.init):
            self.expect_open(node, "T.init()")
            self.open[-1].init = parser.block(node.body)
            return True, None
        return False, None

    def block(self, node: ast.With) -> Stmt:
        """``with T.block(name):``."""
        parser, block = self.parser, Block()
        self.open.append(block)
        body = parser.block(node.body)
        self.open.pop()
        with span_scope(parser.source.span(node)):
            first = None if block.init is None else First(tuple(block.sums), block.init, body)
            result = body if first is None else first.stmt()
            for predicate in block.predicates:
                result = If(predicate, result, None)
        if first is not None and not block.predicates:
            self.first[result] = first
        self.flat.add(result)
        return result

    def expression(self, call: ast.Call) -> bool:
        """Whether a statement that is a call says something of the block: it is taken note of, or passed over."""
        parser = self.parser
        if any(parser.is_call_of(call, function) for function in _PASSED_OVER):
            if not parser.is_call_of(call, T.evaluate):
                self.expect_open(call, ast.unparse(call.func) + "()")
            return True
        if not parser.is_call_of(call, T.where):
            return False
        self.expect_open(call, "T.where()")
        value = parser.eval(call.args[0]) if len(call.args) == 1 and not call.keywords else None
        if not isinstance(value, PrimExpr) or value.dtype != "bool":
            raise parser.source.error(call, "T.where takes a condition", "write T.where(i * 32 + j < 100)")
        self.open[-1].predicates.append(value)
        return True

    def axes(self, target: ast.expr, value: Any, node: ast.stmt) -> bool:
        """Whether an assignment names axes: ``vi = T.axis.spatial(…)`` or ``vi, vk = T.axis.remap(…)``."""
        if isinstance(value, T.Axis):
            values = [value]
        elif isinstance(value, list) and value and all(isinstance(v, T.Axis) for v in value):
            values = value
        else:
            return False
        parser = self.parser
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        self.expect_open(node, "T.axis")
        known = [n for n in names if isinstance(n, ast.Name)]
        if not len(known) == len(names) == len(values):
            hint = 'one name for each axis: vi, vk = T.axis.remap("SR", [i, k])'
            raise parser.source.error(target, f"{len(values)} names of axes are expected here", hint)
        for name, axis in zip(known, values, strict=True):
            with parser.evaluator.blame(name):
                parser.scope.define(name.id, axis.value, parser.source.span(name))
            if axis.is_reduced:
                self.open[-1].sums.append((axis.value, axis.start))
        return True

    def expect_open(self, node: ast.AST, what: str) -> None:
        if not self.open:
            raise self.parser.source.error(node, f"{what} stands outside of a block", 'write it in with T.block("C"):')

    def around(self, variables: Sequence[Var], extents: Sequence[PrimExpr], body: Stmt, kind: str) -> Stmt:
        """Nested loops around a body; the beginning of a block that is all of it comes before those over its sums."""
        for var, extent in zip(reversed(variables), reversed(extents), strict=True):
            first = self.first.get(body)
            earlier = first.before(var, extent, kind) if first is not None else None
            if earlier is None:
                body = For(var, extent, body, kind)
                continue
            body = earlier.stmt()
            self.first[body] = earlier
            self.flat.add(body)
        return body

    def flattened(self, stmt: Stmt) -> list[Stmt]:
        """The statements of a sequence that a block has become."""
        return list(getattr(stmt, "stmts", [stmt])) if stmt in self.flat else [stmt]
