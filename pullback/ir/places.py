"""Places in the user's source: the instruction that a frame executes, as a span."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

from pullback.ir.node import Span

PACKAGE = str(Path(__file__).parents[1])
_spans: dict[tuple[CodeType, int, str | None], Span] = {}


def place(code: CodeType, instruction: int, line: int, layer: str | None = None) -> Span:
    """The span of an instruction; made once."""
    if (code, instruction, layer) not in _spans:
        start = end = None
        if hasattr(code, "co_positions"):  # from Python 3.11 on
            places = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
            first, last, start, end = places
            line = first or line
            end = end if first == last else None
        _spans[code, instruction, layer] = Span(code.co_filename, line, start or 0, end, layer=layer)
    return _spans[code, instruction, layer]


def caller(between: Sequence[str]) -> Span | None:
    """Where a user called, if only code of the package that begins with one of ``between`` lies in between; None where
    the package called itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(tuple(between)):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(PACKAGE):
        return None
    return place(frame.f_code, frame.f_lasti, frame.f_lineno)
