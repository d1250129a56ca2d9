"""The debug ladder: ``PULLBACK_DEBUG=1..5`` shows more and more of what the compiler does, on standard error.

1  one line per compiled function: stages, kernels, bytes, milliseconds, cache hits
2  and the graph IR after each pass
3  and the loop IR of each kernel and the host function, and what was chosen for each kernel
4  and the LLVM IR
5  and the assembly

Two switches beside it look for mistakes in memory, at the price of time:

PULLBACK_POISON=1  memory that holds no live value is filled with 0xFF bytes (NaN) between kernels, fresh outputs too:
                   a kernel that reads what nobody wrote gives NaN instead of a stale number
PULLBACK_VERIFY=1  the check of each memory plan goes through the iterations of kernels that work in place (on rung 1
                   of the ladder too); the rest of the check is always done

``PULLBACK_WITHOUT=Contraction`` switches schedules off by name, to see what each is worth. ``PULLBACK_TUNED=0``
does not read what `python -m pullback tune` has found.
"""

from __future__ import annotations

import sys
from typing import Any

from pullback.ir.environment import switch, variable
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.schedule.choose import SCHEDULES
from pullback.tir import PrimFunc
from pullback.tir.description import description_of


def level() -> int:
    """The rung asked for, 0 by default."""
    return int(variable("PULLBACK_DEBUG", "0"))


def poison() -> bool:
    """Whether dead memory is to be filled with NaN."""
    return switch("PULLBACK_POISON")


def verify() -> bool:
    """Whether memory plans are to be checked with all that kernels do in place."""
    return switch("PULLBACK_VERIFY") or level() >= 1


def switched_off() -> tuple[str, ...]:
    """The schedules to do without, sorted; none by default."""
    names = sorted(filter(None, variable("PULLBACK_WITHOUT").split(",")))
    known = [kind.__name__ for kind in SCHEDULES]
    for name in names:
        if name not in known:
            raise UserError(f"PULLBACK_WITHOUT: there is no schedule {name!r}", hint=f"there are {', '.join(known)}")
    return tuple(names)


def say(rung: int, text: str) -> None:
    """Print when the ladder reaches that high."""
    if level() >= rung:
        print(text, file=sys.stderr, flush=True)


def show_stage(stage: str, result: Any, name: str) -> Any:
    """Show the graph IR after a pass, the loop IR after lowering, with what was chosen for each kernel; returns
    ``result``."""
    rung = 3 if stage in ("LowerToTir", "plan_memory") else 2
    if level() >= rung:
        say(rung, f"# {name} after {stage}\n{_schedules(result)}{result}\n")
    return result


def _schedules(result: Any) -> str:
    """What was chosen for the kernels of a module, a comment for each."""
    kernels = [(n, f) for n, f in result.items() if isinstance(f, PrimFunc)] if isinstance(result, IRModule) else []
    found = [(n, description_of(f)) for n, f in kernels]
    return "".join(f"# {n}: {description.line}\n" for n, description in found if description is not None)
