"""The environment variables that pullback reads, and what each may be: one table, checked before anything is compiled.

A value that is not allowed is a UserError, an unknown name that begins with ``PULLBACK_`` a warning.
"""

from __future__ import annotations

import os
import re
import warnings

from pullback.ir.errors import UserError, suggestion

MOST_THREADS = 256  # PB_MAX_THREADS of runtime/native/rt.h

VARIABLES: dict[str, tuple[str, str]] = {  # name: a pattern of its values, and these in words
    "PULLBACK_DEBUG": ("[0-5]", "a number from 0 to 5"),
    "PULLBACK_POISON": ("[01]", "0 or 1"),
    "PULLBACK_VERIFY": ("[01]", "0 or 1"),
    "PULLBACK_TUNED": ("[01]", "0 or 1"),
    "PULLBACK_OFFLINE": ("[01]", "0 or 1"),
    "PULLBACK_NUM_THREADS": (r"\+?0*[1-9]\d*", f"a whole number from 1 to {MOST_THREADS}"),
    "PULLBACK_RANKS_TIMEOUT": (r"0*[1-9]\d{0,8}", "a whole number of seconds"),
    "PULLBACK_LAUNCHED": ("[01]", "0 or 1: train --ranks sets it"),
    "PULLBACK_REPORTS": (".*", "the path of a socket: train --ranks sets it"),
    "PULLBACK_MPI": (".*", "the path of a library of MPI"),
    "PULLBACK_CACHE": (".*", "what driver/cache.py says"),
    "PULLBACK_CACHE_DIR": (".*", "a folder"),
    "PULLBACK_DATA": (".*", "a folder"),
    "PULLBACK_WITHOUT": (".*", "names of schedules, separated by commas"),
    "PULLBACK_REQUIRE_TORCH": (".*", "anything: of the tests"),
    "PULLBACK_REQUIRE_TOOLS": (".*", "anything: of the tests"),
}


def variable(name: str, default: str = "") -> str:
    """The value of one of the variables, checked; an empty one counts as not set."""
    text = os.environ.get(name, "") or default
    pattern, words = VARIABLES[name]
    too_many = name == "PULLBACK_NUM_THREADS" and text.strip().isdigit() and int(text) > MOST_THREADS
    if text and (not re.fullmatch(pattern, text.strip(), re.DOTALL) or too_many):
        raise UserError(f"{name} must be {words}, not {text!r}", hint=f"set it to {words}, or unset it")
    return text.strip()


def switch(name: str, default: str = "0") -> bool:
    """Whether a variable that is 0 or 1 is 1."""
    return variable(name, default) == "1"


def check_environment() -> None:
    """A UserError at the first variable whose value is not allowed; a RuntimeWarning for each that does not exist."""
    for name in sorted(n for n in os.environ if n.startswith("PULLBACK_")):
        if name in VARIABLES:
            variable(name)
        else:
            message = f"the environment variable {name} is not read{suggestion(name, VARIABLES)}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
