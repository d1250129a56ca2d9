"""Evaluating the expressions of a script: a subset of Python over IR values and captured Python values."""

from __future__ import annotations

import ast
import builtins
import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from pullback.ir.at_run_time import NoValueYet
from pullback.ir.depth import on_large_stack
from pullback.ir.errors import DTypeError, InternalError, ScriptError, UserError
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.words import explanation
from pullback.relax.expr import Expr
from pullback.relax.struct_info import TensorStructInfo
from pullback.script.source import Source
from pullback.tir import expr as tir


class Names(Protocol):
    """Where names are looked up; ``read`` raises a ScriptError when there is no such name."""

    def read(self, name: str) -> Any: ...


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}  # fmt: skip

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_,
    ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip

SCALAR_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip

_OUTSIDE = "do it in Python, outside of the function"
EFFECTS = {  # what people write as if it ran whenever the function does
    "print": "return the value as a further result, and print that; print(module) shows the program",
    "input": "pass the value as a parameter",
    "breakpoint": 'compile for "debug", or return the value as a further result',
    "setattr": "values never change: give the new one a name",
    "delattr": "values never change",
    "exit": _OUTSIDE,
    "quit": _OUTSIDE,
    "help": _OUTSIDE,
}

MOST_DIGITS = 1 << 20  # of a number in bits, or items of a list, that a script may have Python compute
DEEP = 60  # levels of nested expressions, from which on the rest is evaluated on a large stack

UNSUPPORTED = {
    ast.Lambda: ("a lambda", "define a Python function outside and call it"),
    ast.ListComp: ("a comprehension", "write the values out, or call a Python function that builds them"),
    ast.GeneratorExp: ("a comprehension", "write the values out, or call a Python function that builds them"),
    ast.SetComp: ("a comprehension", "write the values out, or call a Python function that builds them"),
    ast.DictComp: ("a comprehension", "write the values out, or call a Python function that builds them"),
    ast.NamedExpr: ("an assignment inside an expression", "assign on a line of its own"),
    ast.JoinedStr: ("an f-string", "build the string outside the function"),
    ast.Await: ("await", "everything in a function is computed when it is called: leave it out"),
    ast.Yield: ("yield", "return the values as a tuple"),
    ast.YieldFrom: ("yield", "return the values as a tuple"),
    ast.Set: ("a set", "use a tuple"),
}  # fmt: skip


class Evaluator:
    """Evaluates expression nodes; every IR node that is built takes the span of its source."""

    def __init__(self, source: Source, names: Names) -> None:
        self.source, self.names = source, names
        self._level = 0  # of nested expressions

    def eval(self, node: ast.expr) -> Any:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            what, hint = UNSUPPORTED.get(type(node), (f"{type(node).__name__}", "write it as a call of an op"))
            raise self.source.error(node, f"{what} cannot be used in a script", hint)
        self._level += 1
        try:
            return on_large_stack(method, node) if self._level == DEEP else method(node)
        finally:
            self._level -= 1

    @contextlib.contextmanager
    def blame(self, node: ast.AST, what: Callable[[], str] | None = None) -> Iterator[None]:
        """IR built inside takes the span of ``node``; what goes wrong inside is shown there."""
        span = self.source.span(node)
        with span_scope(span):
            try:
                yield
            except UserError as error:
                if error.span is not None:
                    raise
                raise type(error)(error.message, span=span, hint=error.hint) from None
            except InternalError as error:
                raise ScriptError(str(error), span=span, hint=self._advice(node)) from error
            except Exception as error:
                doing = what() if what is not None else "this"
                message = f"{doing} raised {type(error).__name__}: {error}"
                raise ScriptError(message, span=span, hint=self._advice(node)) from error

    def _advice(self, node: ast.AST) -> str:
        """What to do about an error that Python raised: of a function that has the name of an op, call the op."""
        instead = self._op_instead(node)
        at_once = "this is computed by Python when the text is read"
        return instead or f"{at_once}; what is computed when the function runs are ops"

    def _op_instead(self, node: ast.AST) -> str | None:
        name = node.func if isinstance(node, ast.Call) else None
        last = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
        op = next((n for n in (last, f"nn.{last}") if Op.find(f"relax.{n}") is not None), None)
        return op and f"functions of Python do not work on graph values: R.{op}({Op.get(op).signature})"

    # -- leaves and containers

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        with self.blame(node):
            return self.names.read(node.id)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                with self.blame(node):
                    items.extend(self.eval(node.value))
            else:
                items.append(self.eval(node))
        return items

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                with self.blame(value):
                    result.update(self.eval(value))
            else:
                name, item = self.eval(key), self.eval(value)
                with self.blame(key, lambda: "a key"):
                    result[name] = item
        return result

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self.eval(part) for part in (node.lower, node.upper, node.step)))

    # -- attributes, items, calls

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.eval(node.value)
        with self.blame(node):
            try:
                return getattr(value, node.attr)
            except AttributeError as error:
                hint = getattr(error, "hint", None) or self._names_of(node)
                raise ScriptError(getattr(error, "message", str(error)), hint=hint) from None

    def _names_of(self, node: ast.Attribute) -> str:
        """Where the names are listed among which an attribute was looked for."""
        owner = ast.unparse(node.value)
        return "python -m pullback ops lists the ops" if owner.startswith("R") else f"dir({owner}) lists the names"

    def _subscript(self, node: ast.Subscript) -> Any:
        value, index = self.eval(node.value), self.eval(node.slice)
        with self.blame(node, lambda: f"the index {ast.unparse(node.slice)}"):
            return value[index]

    def _call(self, node: ast.Call) -> Any:
        function = self.eval(node.func)
        args = self._items(node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            with self.blame(keyword.value):
                kwargs.update({keyword.arg: value} if keyword.arg is not None else value)
        return self.call(node, function, args, kwargs)

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a Python value; parsers extend it for what only they understand."""
        with self.blame(node, lambda: f"calling {ast.unparse(node.func)}"):
            if not callable(function):
                hint = "values are combined by ops, R.multiply(a, b), or operators, a * b"
                raise ScriptError(f"{ast.unparse(node.func)} cannot be called: it is {describe(function)}", hint=hint)
            self.refuse_effects(function)
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                problem = explanation(error, ast.unparse(node.func), function, args, kwargs)
                raise problem or error from None
            except NoValueYet as error:
                raise NoValueYet(error.message, hint=self._op_instead(node) or error.hint) from None

    def refuse_effects(self, function: Any) -> None:
        """A ScriptError where a call would do something once, while the text is read, that looks as if it were done
        whenever the function runs."""
        name = next((n for n in EFFECTS if getattr(builtins, n, self) is function), None)
        if name is not None:
            message = f"{name} would run once, when this text is read, not when the function runs"
            raise ScriptError(message, hint=EFFECTS[name])

    # -- operators

    def _binop(self, node: ast.BinOp) -> Any:
        a, b = self.eval(node.left), self.eval(node.right)
        with self.blame(node, lambda: ast.unparse(node)):
            _expect_moderate(node.op, a, b)
            if isinstance(b, tir.PrimExpr) and not isinstance(a, tir.PrimExpr | Expr):
                a = tir.as_expr(a, b.dtype)
            return BINARY[type(node.op)](a, b)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.eval(node.operand)
        with self.blame(node, lambda: ast.unparse(node)):
            if isinstance(node.op, ast.Not):
                if _is_flag(value):
                    return Op.get("logical_not")(value)
                return _negation(value) if isinstance(value, tir.PrimExpr) else not value
            if isinstance(node.op, ast.USub):
                return -value
            return +value if isinstance(node.op, ast.UAdd) else ~value

    def _boolop(self, node: ast.BoolOp) -> Any:
        kind = "and" if isinstance(node.op, ast.And) else "or"
        result = self.eval(node.values[0])
        for part in node.values[1:]:
            if not isinstance(result, tir.PrimExpr | Expr) and bool(result) == (kind == "or"):
                return result  # as Python: the rest is not evaluated
            value = self.eval(part)
            with self.blame(node, lambda: ast.unparse(node)):
                result = self._logic(kind, result, value)
        return result

    def _logic(self, kind: str, a: Any, b: Any) -> Any:
        if isinstance(a, Expr) or isinstance(b, Expr):
            if not all(isinstance(x, bool) or _is_flag(x) for x in (a, b)):
                message = f"{kind!r} works on bool scalars, not on tensors"
                raise ScriptError(message, hint=f"use R.logical_{kind}(a, b)")
            if isinstance(a, bool) or isinstance(b, bool):
                known, other = (a, b) if isinstance(a, bool) else (b, a)
                return other if known == (kind == "and") else known
            return Op.get(f"logical_{kind}")(a, b)
        if isinstance(a, tir.PrimExpr):
            return tir.binary(kind, a, tir.const(b, "bool") if isinstance(b, bool) else b)
        return b  # a is a Python value that decides nothing

    def _compare(self, node: ast.Compare) -> Any:
        left, result = self.eval(node.left), None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node)
            with self.blame(node, lambda: ast.unparse(node)):
                part = self._comparison(op, left, right)
                result = part if result is None else self._logic("and", result, part) if result is not False else False
            left = right
        return result

    def _comparison(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(a, tir.PrimExpr) or isinstance(b, tir.PrimExpr):
            if type(op) not in SCALAR_COMPARE:
                raise ScriptError("scalars of the loop IR have no identity or membership")
            return tir.binary(SCALAR_COMPARE[type(op)], a, b)
        if isinstance(op, ast.Eq | ast.NotEq):
            equal = isinstance(op, ast.Eq)
            if isinstance(a, Expr) or isinstance(b, Expr):
                return Op.get("equal" if equal else "not_equal")(a, b)
            return a == b if equal else a != b
        return COMPARE[type(op)](a, b)

    def _ifexp(self, node: ast.IfExp) -> Any:
        condition = self.eval(node.test)
        if isinstance(condition, Expr):
            raise self.source.error(node, "a choice between tensors needs R.where", "write R.where(condition, a, b)")
        if isinstance(condition, tir.PrimExpr):
            a, b = self.eval(node.body), self.eval(node.orelse)
            with self.blame(node):
                return tir.select(condition, a, b)
        return self.eval(node.body if condition else node.orelse)


def _expect_moderate(op: ast.operator, a: Any, b: Any) -> None:
    """A ScriptError where Python's own arithmetic would give something of millions of digits or items."""
    if not isinstance(b, int) and not isinstance(a, int):
        return
    if isinstance(op, ast.Pow) and isinstance(a, int) and isinstance(b, int):
        size = a.bit_length() * max(b, 0)
    elif isinstance(op, ast.LShift) and isinstance(a, int) and isinstance(b, int):
        size = a.bit_length() + max(b, 0) if a else 0
    elif isinstance(op, ast.Mult) and isinstance(a, str | bytes | list | tuple) and isinstance(b, int):
        size = len(a) * max(b, 0)
    elif isinstance(op, ast.Mult) and isinstance(b, str | bytes | list | tuple) and isinstance(a, int):
        size = len(b) * max(a, 0)
    else:
        return
    if size > MOST_DIGITS:
        hint = "numbers of the host have 64 bits; a float is written 1e10"
        raise ScriptError(f"this value would have {size} digits or items", hint=hint)


def _is_flag(value: Any) -> bool:
    """Whether it is a bool scalar of the graph, which Python's ``and``, ``or`` and ``not`` work on."""
    info = getattr(value, "struct_info", None)
    return isinstance(info, TensorStructInfo) and info.dtype == "bool" and info.ndim == 0


def _negation(value: tir.PrimExpr) -> tir.PrimExpr:
    if value.dtype != "bool":
        hint = "compare it with something: x == 0; ~x inverts the bits of an integer"
        raise DTypeError(f"not needs a bool, got {value.dtype}", hint=hint)
    return tir.call("not", value)


def describe(value: Any) -> str:
    """A value as messages name it."""
    if isinstance(value, Expr):
        return f"a graph value of type {value.struct_info!r}"
    return f"{type(value).__name__} {value!r}"
