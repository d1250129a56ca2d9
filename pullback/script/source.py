"""Source text with places: from a decorated object or a string to a syntax tree whose nodes know their spans."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ScriptError
from pullback.ir.node import Span

NESTED_HINT = "give intermediate results names, each on a line of its own"
Definition = ast.ClassDef | ast.FunctionDef
_NO_CHARACTER = re.compile("[\ud800-\udfff]")  # surrogates, which UTF-8 has no bytes for

NO_SOURCE_HINT = (
    "the parser reads source text, which python -c, exec and some consoles do not keep: put the program in a file or a "
    "notebook cell, or pass its text to pullback.script.from_source"
)

_PLACED = (
    ast.expr,
    ast.stmt,
    ast.arg,
    ast.keyword,
    ast.alias,
    ast.ExceptHandler,
    ast.pattern,
)


class Source:
    """The lines of one file, or of a string, with its syntax tree.

    ``first_line`` and ``indent`` place text that was cut out of a file and dedented. Text inside a string literal has
    one place for all its nodes, ``at``.
    """

    def __init__(self, file: str, text: str, first_line: int = 1, indent: int = 0) -> None:
        self.file, self.lines, self.first_line, self.indent = file, text.splitlines(), first_line, indent
        self.at: Span | None = None
        if not text.isascii() and (place := _NO_CHARACTER.search(text)):
            raise ScriptError(f"this is no text: {place.group()!r} at {place.start()} is half a character")
        try:
            self.tree = deep(ast.parse)(text)
        except SyntaxError as error:
            hint = NESTED_HINT if "nested" in str(error.msg) else "a script is the text of Python functions and classes"
            line, column = (error.lineno or 1), max(0, (error.offset or 1) - 1)
            end = error.end_offset if error.end_lineno == error.lineno else None
            span = self._span(line, column, end - 1 if end else None)
            raise ScriptError(f"this is not Python: {error.msg}", span=span, hint=hint) from None
        except (RecursionError, MemoryError):  # Python's parser raises the latter too
            raise ScriptError("this text is nested too deeply for Python's parser", hint=NESTED_HINT) from None

    @staticmethod
    def inline(text: str, at: Span | None) -> Source:
        """The source of an expression that stands in a string literal at that place."""
        try:
            source = Source("<string>", f"({text.strip()})")
            expression = len(source.tree.body) == 1 and isinstance(source.tree.body[0], ast.Expr)
        except ScriptError:
            expression = False
        if not expression:
            raise ScriptError(f"{text!r} is not an expression", span=at, hint='write a size as "n" or "n * 2"')
        source.at = at
        return source

    @property
    def expression(self) -> ast.expr:
        """The expression of an inline source."""
        (statement,) = self.tree.body
        assert isinstance(statement, ast.Expr)
        return statement.value

    def span(self, node: ast.AST) -> Span | None:
        """The place of a syntax node; of one that covers several lines, the part on the first."""
        if not isinstance(node, _PLACED) or self.file == "<string>":
            return self.at
        line = node.lineno
        text = self._line(line)
        last = node.end_col_offset if node.end_lineno == line else None
        end = len(text.rstrip()) if last is None else _characters(text, last)
        return self._span(line, _characters(text, node.col_offset), end)

    def span_of_name(self, node: Definition) -> Span | None:
        """The place of the name in ``def name`` or ``class name``."""
        text = self._line(node.lineno)
        column = text.find(node.name, _characters(text, node.col_offset) + 4)
        return self.span(node) if column < 0 else self._span(node.lineno, column, column + len(node.name))

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> ScriptError:
        """A ScriptError that points at the node."""
        return ScriptError(message, span=self.span(node), hint=hint)

    def _line(self, line: int) -> str:
        return self.lines[line - 1] if line <= len(self.lines) else ""

    def _span(self, line: int, column: int, end: int | None) -> Span:
        text = " " * self.indent + self._line(line)
        end = None if end is None else end + self.indent
        return Span(self.file, line + self.first_line - 1, column + self.indent, end, text)

    def definitions(self) -> Iterator[Definition]:
        return (n for n in ast.walk(self.tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef)))


def _characters(text: str, utf8_offset: int) -> int:
    """The syntax tree counts bytes of UTF-8; spans count characters."""
    return utf8_offset if text.isascii() else len(text.encode()[:utf8_offset].decode(errors="ignore"))


_parsed: dict[str, tuple[Sequence[str], Source]] = {}


def find_definition(file: str, name: str, line: int, module_globals: Mapping[str, Any]) -> tuple[Source, Definition]:
    """The source and the ``class``/``def`` statement of that name whose decorators or header stand at ``line``."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, dict(module_globals))
    if not lines:
        raise ScriptError(f"the source text of {name} is not available (it was defined in {file})", hint=NO_SOURCE_HINT)
    source = _source_of_file(file, lines, line)
    for node in source.definitions():
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) + source.first_line - 1
        header_end = node.body[0].lineno + source.first_line - 1
        if node.name == name and first <= line <= header_end:
            return source, node
    raise ScriptError(
        f"{name} was not found at {file}:{line}",
        hint="the file has probably changed since it was loaded: run the program again",
    )


def _source_of_file(file: str, lines: Sequence[str], line: int) -> Source:
    """The whole file, parsed once; of a file that is not all Python (a notebook cell with magics), the one block."""
    cached = _parsed.get(file)
    if cached is not None and cached[0] == lines:
        return cached[1]
    try:
        source = Source(file, "".join(lines))
    except ScriptError:
        block = inspect.getblock(list(lines[line - 1 :]))
        text = textwrap.dedent("".join(block))
        indent = len(block[0]) - len(block[0].lstrip())
        return Source(file, text, first_line=line, indent=indent)
    if len(_parsed) >= 16:
        _parsed.clear()
    _parsed[file] = (list(lines), source)
    return source
