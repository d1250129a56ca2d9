"""The lines of the user's source in the stack traces that PyTorch keeps with nodes, and writes into files of ONNX."""

from __future__ import annotations

import re

_LINE = re.compile(r'File "([^"]+)", line (\d+)')

Line = tuple[str, int]  # a file, and a number from 1 on


def lines_of(trace: str) -> list[Line]:
    """The lines of a stack trace, the innermost last.

    >>> lines_of('File "net.py", line 3, in forward')
    [('net.py', 3)]
    """
    return [(file, int(line)) for file, line in _LINE.findall(trace)]


def outside_pytorch(lines: list[Line]) -> list[Line]:
    """Those of other files than PyTorch's own."""
    return [line for line in lines if "/torch/" not in "/" + line[0].replace("\\", "/")]
