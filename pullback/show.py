"""What `python -m pullback show` looks at: the module that a file defines, and the memory of its functions."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.driver import compile
from pullback.driver.memory import MemoryReport
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.expr import Function


def load_module(path: str | Path, name: str | None = None) -> IRModule:
    """The module (or that of the trainer) that a Python file or a saved script defines at its top level.

    The file is run, under another name than ``__main__``. An ArgumentError lists what there is when it defines no
    module, or several and ``name`` is not given.
    """
    found: dict[str, IRModule] = {}
    for key, value in runpy.run_path(str(path), run_name="pullback_show").items():
        module = getattr(value, "mod", value)
        if isinstance(module, IRModule) and not key.startswith("_"):
            found[key] = module
    if name is not None:
        if name not in found:
            raise ArgumentError(f"{path} defines no module or trainer {name!r}; it has: {', '.join(found) or 'none'}")
        return found[name]
    if not found:
        raise ArgumentError(f"{path} defines no module and no trainer", hint="bind one to a name at the top level")
    if len({id(m) for m in found.values()}) > 1:
        raise ArgumentError(f"{path} defines several modules: {', '.join(found)}", hint="say which by --name")
    return next(iter(found.values()))


def memory_report(module: IRModule, function: str | None, sizes: dict[str, int]) -> MemoryReport:
    """The memory of a function; by default ``__step`` of a trainer module, or the first public function."""
    executable: Any = compile(module)
    if function is None:
        functions = executable.module.functions
        public = [n for n, f in functions.items() if isinstance(f, Function) and not f.attrs.get("private")]
        if not public:
            raise ArgumentError("the module has no public function")
        function = "__step" if "__step" in functions else public[0]
    return executable.memory(function, **sizes)


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """``["n=64"]`` → ``{"n": 64}``; an ArgumentError for anything else."""
    sizes = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name.isidentifier() or not number.isdigit():
            raise ArgumentError(f"a size is written NAME=NUMBER, such as n=64; got {text!r}")
        sizes[name] = int(number)
    return sizes
