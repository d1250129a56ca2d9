"""Runs the Python blocks of a Markdown file, in order, as one program."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(.*)$")


def python_text(markdown: str) -> str:
    """The ``python`` blocks, each line where it stands in the document, all other lines empty."""
    lines, kind, indent = [], None, 0
    for line in markdown.splitlines():
        fence = FENCE.match(line)
        if fence is not None:
            kind, indent = (fence[2].strip() or "text", len(fence[1])) if kind is None else (None, 0)
            lines.append("")
        else:
            lines.append(line[indent:] if kind == "python" else "")
    if kind is not None:
        raise ValueError("the last block of the document is not closed")
    return "\n".join(lines) + "\n"


def run_document(path: Path, folder: Path) -> ModuleType:
    """Run the blocks in one namespace, from a real file (scripts are read from source text); returns the module.

    An error's line number is the line in the document.
    """
    name = f"document_{path.stem.lower()}"
    program = folder / f"{path.stem.lower()}.py"
    program.write_text(python_text(path.read_text(encoding="utf-8")), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module
