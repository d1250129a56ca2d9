"""Changes drawn from a source file: every comparison, sign, bound, constant and check that can be another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*",
    ast.Div: "*", ast.Mod: "//", ast.And: "or", ast.Or: "and",
}  # fmt: skip
_FUNCTIONS = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any", "sin": "cos",
    "sorted": "list", "floor": "ceil",
}  # fmt: skip
_TYPING = ("TypeVar", "cast", "field", "dataclass", "NamedTuple")
_FOR_TESTS = ("sample", "Sample", "Floats", "Ints", "Bools")  # what an op is tested on


@dataclass(frozen=True)
class Change:
    """The characters from ``start`` to ``end`` of a file become ``new``; ``line`` is where."""

    file: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def shown(self, text: str) -> str:
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end)
        return (
            f"{text[first:last].strip()}   →   {(text[first : self.start] + self.new + text[self.end : last]).strip()}"
        )


def changes(file: str, text: str) -> list[Change]:
    """All changes of a source file, in its order."""
    lines = [0]
    for line in text.encode().split(b"\n"):
        lines.append(lines[-1] + len(line) + 1)
    data = text.encode()

    def place(line: int, column: int) -> int:
        return len(data[: lines[line - 1] + column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def change(node: ast.AST, new: str, at: tuple[int, int] | None = None) -> Change:
        return Change(file, node.lineno, *(at or span(node)), new)  # type: ignore[attr-defined]

    def between(left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Change]:
        """The operator between two operands."""
        start, end = span(left)[1], span(right)[0]
        at = text.find(old, start, end)
        if at >= 0:
            yield change(left, new, (at, at + len(old)))

    found = _walk(ast.parse(text), text, span, change, between)
    return sorted(found, key=lambda c: (c.start, c.end))


def parses(text: str) -> bool:
    """Whether a changed text is a program: an operand in parentheses may have been cut in two."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _walk(tree: ast.AST, text: str, span, change, between) -> Iterator[Change]:
    names = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
             ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
             ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%", ast.And: "and", ast.Or: "or"}  # fmt: skip
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        pending.extend(c for c in ast.iter_child_nodes(node) if not _is_only_words(c))
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from between(left, right, names[type(op)], _OPERATORS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in names and not _has_text(node):
                yield from between(left, right, names[type(op)], _OPERATORS[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield from between(left, right, names[type(op)], _OPERATORS[type(op)])
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield change(node, text[slice(*span(operand))])
            case ast.Constant(value=bool() as value):
                yield change(node, repr(not value))
            case ast.Constant(value=int() as value):
                yield change(node, repr(value + 1))
            case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
                yield change(function, _FUNCTIONS[name])
            case ast.Call(func=ast.Attribute(attr=name) as function) if name in _FUNCTIONS:
                end = span(function)[1]
                yield change(function, _FUNCTIONS[name], (end - len(name), end))
            case ast.Raise():
                yield change(node, "pass")
            case ast.Expr(value=ast.Call()):
                yield change(node, "pass")
            case ast.Tuple(elts=[*_, before, last], ctx=ast.Load()) if not isinstance(last, ast.Starred):
                yield change(node, ",", (span(before)[1], span(last)[1]))
            case ast.If(test=test) if not isinstance(test, ast.Constant):
                yield change(test, "False")


def _is_only_words(node: ast.AST) -> bool:
    """Docstrings, annotations, imports, messages and samples: nothing of these is computed with."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.arguments, ast.JoinedStr, ast.AnnAssign)):
        return not isinstance(node, ast.AnnAssign) or node.value is None
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TYPING + _FOR_TESTS
    return is_call or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _has_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, (ast.JoinedStr, ast.List)) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
               for n in ast.walk(node))  # fmt: skip
