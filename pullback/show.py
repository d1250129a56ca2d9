"""What `python -m pullback show` and `tune` look at: the module that a file defines, the memory of its functions, and
how fast their kernels are."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pullback.driver import compile
from pullback.driver.memory import MemoryReport
from pullback.driver.tune import Tuned, tune
from pullback.driver.tuned import store_choices
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relax.convention import STEP
from pullback.relax.expr import Function
from pullback.target import Target


def load_module(path: str | Path, name: str | None = None) -> IRModule:
    """The module (or that of the trainer) that a Python file or a saved script defines at its top level.

    The file is run, under another name than ``__main__``. An ArgumentError lists what there is when it defines no
    module, or several and ``name`` is not given.
    """
    found: dict[str, IRModule] = {}
    for key, value in _run(path).items():
        module = getattr(value, "mod", value)
        if isinstance(module, IRModule) and not key.startswith("_"):
            found[key] = module
    if name is not None:
        if name not in found:
            hint = "--name takes a name of the file's top level"
            message = f"{path} defines no module or trainer {name!r}; it has: {', '.join(found) or 'none'}"
            raise ArgumentError(message, hint=hint)
        return found[name]
    if not found:
        raise ArgumentError(f"{path} defines no module and no trainer", hint="bind one to a name at the top level")
    if len({id(m) for m in found.values()}) > 1:
        raise ArgumentError(f"{path} defines several modules: {', '.join(found)}", hint="say which by --name")
    return next(iter(found.values()))


def _run(path: str | Path) -> dict[str, Any]:
    """The names that a Python file gives; its mistakes are told with the line of the file."""
    try:
        return runpy.run_path(str(path), run_name="pullback_show")
    except (UserError, OSError):
        raise
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        hint = "show and tune take a Python file, or what module.script() gave"
        raise ArgumentError(f"{path}{place} is not Python: {error.msg}", hint=hint) from None
    except ValueError as error:
        if _line_in(path, error) is None:  # it could not be read
            raise ArgumentError(f"{path} is not Python: {error}", hint="show and tune take a Python file") from None
        raise _failed(path, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from error


def _failed(path: str | Path, error: BaseException) -> ArgumentError:
    line = _line_in(path, error)
    place = f"{path}, line {line}," if line is not None else f"{path}"
    hint = f"the file is run to find its module: does python {path} run?"
    return ArgumentError(f"{place} raised {type(error).__name__}: {error}", hint=hint)


def _line_in(path: str | Path, error: BaseException) -> int | None:
    """The last line of the file itself in the error's traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None


def memory_report(module: IRModule, function: str | None, sizes: dict[str, int]) -> MemoryReport:
    """The memory of a function; of :func:`main_function` by default."""
    executable = compile(module)
    return executable.memory(function or main_function(executable.module), **sizes)


def main_function(module: IRModule) -> str:
    """``__step`` of a prepared trainer module, or the first public function."""
    public = [n for n, f in module.items() if isinstance(f, Function) and not f.attrs.get("private")]
    if not public:
        hint = "show and tune need an @R.function that is not private"
        raise ArgumentError("the module has no public function", hint=hint)
    return STEP if STEP in module else public[0]


def tune_function(
    module: IRModule, function: str | None, sizes: dict[str, int], rounds: int, progress: Callable[[str], None]
) -> tuple[list[Tuned], Path]:
    """Tune a function (:func:`main_function` by default) for this machine and keep what was found; returns that, and
    the file. ``progress`` is told the name of each kernel that is done."""
    executable = compile(module)
    function = function or main_function(executable.module)
    executable.function(function).check_sizes(sizes)
    target = Target("llvm")
    found: list[Tuned] = []
    for tuned in tune(executable.module, function, sizes, target, rounds):
        progress(tuned.name)
        found.append(tuned)
    if not found:
        hint = "products of matrices and convolutions are tuned: --function says of which function"
        raise ArgumentError(f"{function} has no contraction: there is nothing to tune", hint=hint)
    return found, store_choices(target, {key: choice for t in found for key, choice in t.choices.items()})


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """``["n=64"]`` → ``{"n": 64}``; an ArgumentError for anything else."""
    sizes = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name.isidentifier() or not number.isdigit():
            raise ArgumentError(f"a size is written NAME=NUMBER, got {text!r}", hint="such as --size n=64")
        sizes[name] = int(number)
    return sizes
