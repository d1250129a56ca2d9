"""Scalar expressions of the loop IR as Python: infix with as few parentheses as precedence allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import PullbackError
from pullback.script.printer.names import Names, identifier
from pullback.tir.expr import (
    COMPARISONS,
    Binary,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    Var,
    binary,
    call,
    cast,
    select,
)

# Python's precedences, and the infix operators by kind
OR, AND, NOT, COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(1, 13)
INFIX = {
    "or": ("or", OR), "and": ("and", AND), "eq": ("==", COMPARISON), "ne": ("!=", COMPARISON), "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON), "gt": (">", COMPARISON), "ge": (">=", COMPARISON), "bitor": ("|", BIT_OR),
    "bitxor": ("^", BIT_XOR), "bitand": ("&", BIT_AND), "shl": ("<<", SHIFT), "shr": (">>", SHIFT), "add": ("+", SUM),
    "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "floordiv": ("//", PRODUCT),
    "floormod": ("%", PRODUCT),
}  # fmt: skip
FUNCTIONS = ("min", "max", "truncmod")


class ScalarPrinter:
    """Prints scalar expressions over given names."""

    def __init__(self, names: Names, free: Callable[[Any], str] | None = None) -> None:
        self.names = names
        self.free = free or (lambda symbol: identifier(symbol.name))  # the name of a symbol that has none yet

    def name(self, symbol: Any) -> str:
        return self.names.get(symbol) or self.free(symbol)

    def size(self, size: int | PrimExpr) -> str:
        """A size of a shape."""
        return str(size) if isinstance(size, int) else self.expr(size)

    def index(self, indices: tuple[Any, ...]) -> str:
        return ", ".join(self.size(i) for i in indices) if indices else "()"

    def typed(self, expr: PrimExpr) -> str:
        """As :meth:`expr`, where Python could not tell an int64 constant from a Python number."""
        return f"T.int64({expr.value})" if isinstance(expr, IntImm) and expr.type == "int64" else self.expr(expr)

    def expr(self, expr: PrimExpr, precedence: int = 0) -> str:
        """The text, in parentheses where an operator of that precedence would tear it apart."""
        text, own = self._expr(expr)
        return f"({text})" if own < precedence else text

    def _expr(self, expr: PrimExpr) -> tuple[str, int]:
        if isinstance(expr, Var):
            return self.name(expr), ATOM
        if isinstance(expr, IntImm):
            if expr.type == "int64":
                return str(expr.value), UNARY if expr.value < 0 else ATOM
            return f"T.{expr.type}({bool(expr.value) if expr.type == 'bool' else expr.value})", ATOM
        if isinstance(expr, FloatImm):
            return f"T.{expr.type}({number(expr.value)})", ATOM
        if isinstance(expr, Binary):
            return self._binary(expr)
        if isinstance(expr, Select):
            built = _rebuilt(lambda: select(expr.condition, expr.a, expr.b), expr)
            parts = [self.expr(e) for e in (expr.condition, expr.a, expr.b)]
            return f"T.{'select' if built else 'Select'}({', '.join(parts)})", ATOM
        if isinstance(expr, Cast):
            built = _rebuilt(lambda: cast(expr.type, expr.value), expr)
            return f'T.{"cast" if built else "Cast"}("{expr.type}", {self.expr(expr.value)})', ATOM
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, BufferLoad):
            return f"{self.name(expr.buffer)}[{self.index(expr.indices)}]", ATOM
        return f'I.opaque("{type(expr).__name__}")', ATOM

    def _binary(self, expr: Binary) -> tuple[str, int]:
        plain = all(isinstance(e, IntImm) and e.type == "int64" for e in (expr.a, expr.b))
        logic_on_bits = expr.kind in ("bitand", "bitor") and expr.a.dtype == "bool"
        if plain or logic_on_bits or not _rebuilt(lambda: binary(expr.kind, expr.a, expr.b), expr):
            return f'T.Binary("{expr.kind}", {self.expr(expr.a)}, {self.expr(expr.b)})', ATOM
        if expr.kind in FUNCTIONS:
            return f"T.{expr.kind}({self.expr(expr.a)}, {self.expr(expr.b)})", ATOM
        if expr.kind == "sub" and isinstance(expr.a, IntImm) and expr.a.value == 0:
            return f"-{self.expr(expr.b, UNARY)}", UNARY
        symbol, own = INFIX[expr.kind]
        left = own + 1 if expr.kind in COMPARISONS else own
        return f"{self.expr(expr.a, left)} {symbol} {self.expr(expr.b, own + 1)}", own

    def _call(self, expr: Call) -> tuple[str, int]:
        own = expr.type == call(expr.name, *expr.args).dtype
        if expr.name == "not" and own:
            return self._not(expr)
        args = [self.expr(a) if a.dtype == "int64" and expr.type == "int64" else self.typed(a) for a in expr.args]
        if expr.name == "reinterpret":
            return f'T.reinterpret("{expr.type}", {args[0]})', ATOM
        if own:
            return f"T.{expr.name}({', '.join(args)})", ATOM
        return f'T.call("{expr.name}", {", ".join(args)}, dtype="{expr.type}")', ATOM

    def _not(self, expr: Call) -> tuple[str, int]:
        operand, own = expr.args[0], NOT if expr.type == "bool" else UNARY
        if isinstance(operand, IntImm) and operand.type == "int64":
            return f"~T.int64({operand.value})", UNARY
        return f"{'not ' if own == NOT else '~'}{self.expr(operand, own)}", own


def _rebuilt(build: Callable[[], PrimExpr], expr: PrimExpr) -> bool:
    """Whether the building function gives this very node again, instead of folding it."""
    try:
        built = build()
    except PullbackError:
        return False
    if type(built) is not type(expr):
        return False
    parts = {Binary: ("kind", "a", "b"), Select: ("condition", "a", "b"), Cast: ("type", "value")}[type(expr)]
    return all(getattr(built, p) is getattr(expr, p) for p in parts)


def number(value: float) -> str:
    """A float that Python reads back exactly; NaN and infinities as strings that ``float`` takes."""
    text = repr(value)
    return text if text not in ("nan", "inf", "-inf") else f'float("{text}")'
