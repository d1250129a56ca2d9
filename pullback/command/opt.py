"""`python -m pullback opt`: a module after any list of passes, or at a stage of the pipeline.

    module = read("model.py", None, print)
    for state in after_passes(module, parsed("Simplify", language(module), Target("llvm"))):
        print(state.diff)

Whatever is printed can be read again. Modules are checked after each pass, so that the one that breaks something is
named.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from pullback import relay, show
from pullback.command.passes import GRAPH, RELAY, table
from pullback.driver.pipeline import JOINED, RAISED, prepare, stages, walk
from pullback.ir.errors import ArgumentError, InternalError, UserError, suggestion
from pullback.ir.module import GLOBAL_SYMBOL, IRModule
from pullback.ir.pass_context import PassContext
from pullback.ir.passes import Pass, Sequential
from pullback.relax.analysis import check_well_formed
from pullback.relax.expr import Function
from pullback.relax.struct_info import symbolic_vars
from pullback.relay.analysis.well_formed import problems_of
from pullback.schedule.group import Machine
from pullback.script import from_source
from pullback.target import Target
from pullback.tir.scopes import check_scopes
from pullback.tir.stmt import PrimFunc

STANDARD = "-"  # the standard input
_LEVEL = 9  # of the context in which passes run: none is left out
_RELAY = re.compile(  # how relay text begins, after comments
    r"(\s|//[^\n]*|/\*.*?\*/)*(#\[|def\s+@|fn\s*[(\[]|(extern\s+)?type\s+\w+\s*[\[{;]|[%@]\w+\s*=)", re.DOTALL
)


@dataclass(frozen=True)
class State:
    """A module after a pass (``name``), and before it."""

    name: str
    before: IRModule
    module: IRModule

    @cached_property
    def diff(self) -> str:
        """What the pass changed, as a unified diff of the texts; empty where that is nothing."""
        before, after = (text_of(m).splitlines(keepends=True) for m in (self.before, self.module))
        return "".join(difflib.unified_diff(before, after, f"before {self.name}", f"after {self.name}"))


def read(file: str, name: str | None, note: Callable[[str], None]) -> IRModule:
    """The module in a file: a Python file (``.py``) is run, as `show` does; all else is text of script or of relay,
    and ``-`` that of the standard input. ``name`` says which of several definitions is meant.

    Raises ScriptError, with the place in the file, and ArgumentError where there is no module.
    """
    if file.endswith(".py"):
        return show.load_module(file, name, note)
    label = "<stdin>" if file == STANDARD else file
    data = sys.stdin.buffer.read() if file == STANDARD else Path(file).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{label} is no text: {error}", hint="a module is text in UTF-8") from None
    if _RELAY.match(text):
        return relay.parse(text, label)
    found = from_source(text, name, file=label)
    if isinstance(found, IRModule):
        return found
    return IRModule({found.name if isinstance(found, PrimFunc) else found.attrs.get(GLOBAL_SYMBOL, "main"): found})


def language(module: IRModule) -> str:
    """``GRAPH``, for kernels of the loop IR too, or ``RELAY``."""
    parts = (*module.functions.values(), *module.type_definitions.values())
    return RELAY if any(hasattr(part, "text_of") for part in parts) else GRAPH


def text_of(module: IRModule) -> str:
    """The module as text, which :func:`read` takes; that of relay with types, and without the places of the source."""
    return module.astext(annotate=_type_of) if language(module) == RELAY else module.script()


def _type_of(expr: Any) -> str:
    """A comment with the type of a value whose text does not say it."""
    found = None if isinstance(expr, (relay.Var, relay.Constant, relay.GlobalVar)) else expr.checked_type_
    return "" if found is None else f" /* ty={found} */"


def after_passes(module: IRModule, passes: Iterable[Pass], verify: bool = True) -> Iterator[State]:
    """The module after each of the passes, with what a pass requires before it.

    Raises UserError, which names the pass, where one refuses the module, or makes one that is not well-formed.
    """
    for step in passes:
        with PassContext(opt_level=_LEVEL):
            try:
                result = Sequential([step])(module)
            except UserError as error:
                raise UserError(f"{step.name}: {error.message}", span=error.span, hint=error.hint) from error
            except InternalError as error:  # of a pass that runs where it is not meant to
                hint = f"pullback opt --explain {step.name} says what it requires; if that holds, please report this"
                raise UserError(f"{step.name}: {error}", hint=hint) from error
        yield _checked(State(step.name, module, result), verify)
        module = result


def at_stage(
    module: IRModule,
    stage: str,
    is_after: bool,
    function: str | None,
    sizes: Mapping[str, int],
    target: Target,
    verify: bool = True,
) -> Iterator[State]:
    """The module after each step of the pipeline, up to a stage or pass of it; that before it unless ``is_after``. Of
    a pass that runs several times the first run is meant before it, the last one after it.

    ``function`` is the one that is compiled, by default as in `show`, and ``sizes`` its symbolic sizes.

    Raises ArgumentError for stages that are not there, and sizes that are not the function's.
    """
    if language(module) == RELAY:
        hint = "relay.lower makes one of a function of relay; --passes runs relay's passes"
        raise ArgumentError("the stages of the pipeline are those of a module of the graph IR", hint=hint)
    route = [name for name, _ in _route()]
    places = [k for k, names in enumerate(_route()) if stage in names]
    if not places:
        known = dict.fromkeys(name for names in _route() for name in names if name)
        hint = f"the stages are {', '.join(dict.fromkeys(route))}"
        raise ArgumentError(f"there is no stage {stage!r}{suggestion(stage, known)}", hint=hint)
    count = places[-1] + 1 if is_after else places[0]
    if count == 0:
        raise ArgumentError("nothing is before the source", hint="leave --before out")
    name, bound = "", dict(sizes)
    if count > route.index("inlined"):
        whole = prepare(module)
        name = function or show.main_function(whole)
        _check_sizes(whole, name, sizes)
    for step in islice(walk(module, name, bound, target), count):
        yield _checked(State(step.name or step.stage, module, step.module), verify)
        module = step.module


def _route() -> list[tuple[str, str]]:
    """Stage and pass of each step of the pipeline."""
    before = [("source", ""), *((stage, step.name) for stage, steps in (RAISED, JOINED) for step in steps)]
    inside = [(stage, step.name) for stage, steps in stages(Machine()) for step in steps]
    return [*before, ("inlined", "InlineFunctions"), *inside, ("planned", "plan_memory")]


def _check_sizes(module: IRModule, name: str, sizes: Mapping[str, int]) -> None:
    if not isinstance(module[name], Function):
        raise ArgumentError(f"{name} is no graph function", hint="--function names an @R.function")
    wanted = sorted({v.name for v in symbolic_vars(module[name].struct_info)})
    if sorted(sizes) != wanted:
        given = ", ".join(sorted(sizes)) or "none"
        hint = "write " + " ".join(f"--size {size}=64" for size in wanted) if wanted else "leave --size out"
        raise ArgumentError(f"{name} has the symbolic sizes {', '.join(wanted) or '(none)'}; got {given}", hint=hint)


def _checked(state: State, verify: bool) -> State:
    if not verify or state.module is state.before:
        return state
    try:
        check(state.module)
    except UserError as error:
        message = f"{state.name} made a module that is not well-formed: {error.message}"
        hint = "--no-verify prints it all the same; please report this if the module was well-formed before"
        raise UserError(message, span=error.span, hint=hint) from error
    return state


def check(module: IRModule) -> None:
    """Raise a UserError at what is not well-formed.

    Kernels of a schedule may see their arguments in another shape, with as many elements, so how they are called is
    checked as long as there are none.
    """
    if language(module) == RELAY:
        for problem in problems_of(module):
            raise problem
        return
    kernels = {n: f for n, f in module.items() if isinstance(f, PrimFunc)}
    for kernel in kernels.values():
        check_scopes(kernel)
    if not any(kernel.attrs.get("scheduled") for kernel in kernels.values()):
        check_well_formed(module)
        return
    check_well_formed(IRModule(kernels))
    for function in module.functions.values():
        if isinstance(function, Function):
            check_well_formed(function)


def passes_of(language: str) -> list[tuple[str, str]]:
    """The passes over modules of a language, and a line about each."""
    return [(entry.name, entry.about) for entry in table() if entry.language == language]


def stages_of() -> list[tuple[str, str]]:
    """The stages of the pipeline, and their passes."""
    names: dict[str, list[str]] = {}
    for stage, name in _route():
        names.setdefault(stage, []).extend([name] if name else [])
    return [(stage, ", ".join(found)) for stage, found in names.items()]
