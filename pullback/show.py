"""What `python -m pullback show` and `tune` look at: the module that a file defines, the memory of its functions, and
how fast their kernels are."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pullback.command.program import line_in, run
from pullback.driver import compile
from pullback.driver.executable import CompiledFunction
from pullback.driver.memory import MemoryReport
from pullback.driver.reading import Computing, reading
from pullback.driver.tune import FEWEST_ROUNDS, Tuned, tune
from pullback.driver.tuned import store_choices
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.nn import Module
from pullback.relax.convention import STEP
from pullback.relax.expr import Function
from pullback.relax.struct_info import symbolic_vars
from pullback.relax.training.trainer import Trainer
from pullback.target import Target
from pullback.tir.stmt import PrimFunc


def load_module(path: str | Path, name: str | None = None, note: Callable[[str], None] = lambda text: None) -> IRModule:
    """The module (or that of the trainer) that a Python file or a saved script defines at its top level.

    The file is run, under another name than ``__main__``, up to the first call of a compiled function: nothing is
    trained. Of a trainer and other modules the trainer's is taken; where there are only functions, they are a module.
    An ArgumentError lists what there is when the file
    defines no module, or several and ``name`` is not given. ``note`` gets a line about each choice that was made.
    """
    values, last = _names_of(path)
    found = {key: module for key, value in values.items() if (module := _module_of(value)) and not key.startswith("_")}
    if last is not None:
        note(f"{path} was read up to line {last}, where it would compute: names bound after that are not known")
    functions = {k: v for k, v in values.items() if isinstance(v, (Function, PrimFunc)) and not k.startswith("_")}
    if name in functions:
        return IRModule({name: functions[name]})
    if name is not None:
        if name not in found:
            hint = "--name takes a name of the file's top level"
            message = f"{path} defines no module or trainer {name!r}; it has: {', '.join(found) or 'none'}"
            raise ArgumentError(message, hint=hint)
        return found[name]
    if not found and functions:
        return IRModule(functions)
    if not found:
        raise _none_found(path, values, last)
    if len({id(m) for m in found.values()}) == 1:
        return next(iter(found.values()))
    trainers = [key for key in found if not isinstance(values[key], IRModule)]
    if len({id(found[key]) for key in trainers}) == 1:
        others = ", ".join(key for key in found if key not in trainers)
        note(f"this is the trainer {trainers[0]}; --name takes another: {others}")
        return found[trainers[0]]
    raise ArgumentError(f"{path} defines several modules: {', '.join(found)}", hint="say which by --name")


def _module_of(value: Any) -> IRModule | None:
    if isinstance(value, Trainer):
        value = vars(value).get("mod")  # an older one that is not built has none
    return value if isinstance(value, IRModule) else None


def _none_found(path: str | Path, values: dict[str, Any], last: int | None) -> ArgumentError:
    """The error for a file without a module, which says what to do with what it has."""
    nets = [k for k, v in values.items() if isinstance(v, Module) or _is_own_class(v)]
    hint = "bind one to a name at the top level"
    if nets:
        hint = f"{nets[0]} has no sizes yet: bind net.export(example), or a trainer made of it, to a name"
    elif last is not None:
        hint = f'{hint}, before line {last}, or let what computes stand under `if __name__ == "__main__":`'
    return ArgumentError(f"{path} defines no module and no trainer", hint=hint)


def _is_own_class(value: Any) -> bool:
    """Whether it is a user's class of layers."""
    return isinstance(value, type) and issubclass(value, Module) and not value.__module__.startswith("pullback.")


def _names_of(path: str | Path) -> tuple[dict[str, Any], int | None]:
    """The names that a Python file binds, and the line at which it began to compute, if it did."""
    module = types.ModuleType("pullback_show")
    try:
        with reading():
            run(path, module)
    except Computing as reached:
        return vars(module), line_in(path, reached)
    return vars(module), None


def memory_report(module: IRModule, function: str | None, sizes: dict[str, int]) -> MemoryReport:
    """The memory of a function; of :func:`main_function` by default."""
    compiled = _function(module, function, sizes)
    return compiled.memory(**sizes)


def _function(module: IRModule, name: str | None, sizes: dict[str, int]) -> CompiledFunction:
    """A function of the module, or its main one, whose symbolic sizes these are."""
    executable = compile(module)
    function = executable.function(name or main_function(executable.module))
    try:
        function.check_sizes(sizes)
    except ArgumentError as error:
        wanted = sorted({v.name for v in symbolic_vars(executable.module[function.name].struct_info)})
        hint = "write " + " ".join(f"--size {name}=64" for name in wanted) if wanted else "leave --size out"
        raise ArgumentError(error.message, hint=hint) from None
    return function


def main_function(module: IRModule) -> str:
    """``__step`` of a prepared trainer module, or the first public function."""
    public = [n for n, f in module.items() if isinstance(f, Function) and not f.attrs.get("private")]
    if not public:
        hint = "show and tune need an @R.function that is not private"
        raise ArgumentError("the module has no public function", hint=hint)
    return STEP if STEP in module else public[0]


def tune_function(
    module: IRModule, function: str | None, sizes: dict[str, int], rounds: int, progress: Callable[[str], None]
) -> tuple[list[Tuned], Path | None]:
    """Tune a function (:func:`main_function` by default) for this machine and keep what was found; returns that, and
    the file (None where the rounds are too few to tell anything, and nothing is kept). ``progress`` is told the name of
    each kernel that is done."""
    compiled = _function(module, function, sizes)
    target = Target("llvm")
    found: list[Tuned] = []
    for tuned in tune(compiled.executable.module, compiled.name, sizes, target, rounds):
        progress(tuned.name)
        found.append(tuned)
    if not found:
        hint = "products of matrices and convolutions are tuned: --function says of which function"
        raise ArgumentError(f"{compiled.name} has no contraction: there is nothing to tune", hint=hint)
    if rounds < FEWEST_ROUNDS:
        return found, None
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
