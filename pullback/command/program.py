"""Users' Python files: run as modules, their mistakes told in a line."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

from pullback.ir.errors import ArgumentError, UserError


def run(path: str | Path, module: types.ModuleType) -> None:
    """Run a Python file in a new module, as Python runs a file: with its folder to import from, and without our
    arguments. An ArgumentError says which line of the file is to blame for what it raises.
    """
    module.__file__ = str(path)
    code = _compiled(path)
    arguments, name = sys.argv, module.__name__
    there = sys.modules.get(name)
    sys.argv, sys.modules[name] = [str(path)], module  # decorators look there for their source
    try:
        with importing_from(os.path.dirname(os.path.abspath(path))), errors_with_lines(path):
            exec(code, module.__dict__)
    finally:
        sys.argv = arguments
        sys.modules.pop(name)
        if there is not None:
            sys.modules[name] = there


@contextlib.contextmanager
def importing_from(folder: str) -> Iterator[None]:
    """Have modules of a folder found first."""
    before = list(sys.path)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before


def _compiled(path: str | Path) -> types.CodeType:
    hint = "a Python file is needed here, or what module.script() gave"
    try:
        return builtins.compile(Path(path).read_bytes(), str(path), "exec")
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        raise ArgumentError(f"{path}{place} is not Python: {error.msg}", hint=hint) from None
    except ValueError as error:  # zero bytes, in older versions of Python
        raise ArgumentError(f"{path} is not Python: {error}", hint=hint) from None


@contextlib.contextmanager
def errors_with_lines(path: str | Path) -> Iterator[None]:
    """What a file of the user's raises becomes an ArgumentError that names its line; our own errors stay."""
    try:
        yield
    except (UserError, OSError):
        raise
    except (Exception, SystemExit) as error:
        line = line_in(path, error)
        place = f"{path}, line {line}," if line is not None else f"{path}"
        hint = f"the file is run: does python {path} run?"
        raise ArgumentError(f"{place} raised {type(error).__name__}: {error}", hint=hint) from error


def line_in(path: str | Path, error: BaseException) -> int | None:
    """The last line of the file itself in the error's traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None
