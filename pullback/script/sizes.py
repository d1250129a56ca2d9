"""Symbolic sizes by name: ``"n"`` and ``"n * 2"`` in a shape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from pullback.ir.errors import ScriptError
from pullback.ir.node import current_span
from pullback.tir.expr import PrimExpr, Var


class Sizes:
    """The symbolic sizes of one function."""

    def __init__(self) -> None:
        self.by_name: dict[str, Var] = {}

    def declare(self, name: str, dtype: str = "int64") -> Var:
        """The size of that name, made on first mention."""
        if name not in self.by_name:
            self.by_name[name] = Var(name, dtype)
        return self.by_name[name]

    def parse(self, text: str) -> PrimExpr | int:
        """The size that a string in a shape stands for; names that are new become sizes."""
        from pullback.script.parser.evaluator import Evaluator
        from pullback.script.source import Source

        source = Source.inline(text, current_span())
        value = Evaluator(source, _SizeNames(self)).eval(source.expression)
        if not isinstance(value, (PrimExpr, int)):
            raise ScriptError(f"{text!r} is not a size", span=current_span())
        return value


class _SizeNames:
    """How names inside a size string are read."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def read(self, name: str) -> Any:
        from pullback.script import tir

        return tir if name == "T" else self.sizes.declare(name)


_current: ContextVar[Sizes | None] = ContextVar("pullback_sizes", default=None)


@contextlib.contextmanager
def sizes_scope(sizes: Sizes) -> Iterator[None]:
    """Strings in shapes that are read inside mean sizes of ``sizes``."""
    token = _current.set(sizes)
    try:
        yield
    finally:
        _current.reset(token)


def read_shape(shape: Any) -> tuple[Any, ...]:
    """The sizes of a shape as users write it: ints, symbolic expressions, strings; one size alone is fine.

    Outside a script every call has its own symbolic sizes.
    """
    values = getattr(shape, "values", shape)  # a ShapeExpr or ShapeStructInfo
    if not isinstance(values, (tuple, list)):
        values = (values,)
    sizes = _current.get() or Sizes()
    return tuple(sizes.parse(s) if isinstance(s, str) else s for s in values)
