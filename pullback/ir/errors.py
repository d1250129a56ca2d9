"""The error classes: mistakes of the user apart from mistakes of the compiler.

A user error says what was expected, what came, where (a span with a caret under the source line), and how to mend it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.ir.node import Span


def suggestion(
    name: str, known: Iterable[str], words: Mapping[str, str] = MappingProxyType({}), start: str = ""
) -> str:
    """``: did you mean …?``, or nothing.

    A dotted name that ends in ``name`` is the best guess. Next ``words`` say what to write for those of other systems,
    and only then come names that are spelled nearly the same. ``start`` stands before all known names: ``R.``.
    """
    known = list(known)
    last = name.rpartition(".")[2]
    same = [k for k in known if k.rpartition(".")[2].lower() == last.lower()]
    if not same and last.lower() in words:
        return f": {words[last.lower()]}"
    close = same or _nearly(name, known)
    return f": did you mean {start}{close[0]}?" if close else ""


def near(name: str, known: Iterable[str]) -> list[str]:
    """The known name that is spelled nearly the same: one or two letters differ. At most one, in a list."""
    longer = 1 if len(name) < 6 else 2
    alike = [k for k in known if abs(len(k) - len(name)) <= longer]
    return difflib.get_close_matches(name, alike, n=1, cutoff=0.75)


def _nearly(name: str, known: list[str]) -> list[str]:
    """The known names whose last part is spelled nearly as that of ``name``, those of the same namespace first."""
    prefix, _, last = name.rpartition(".")
    ends = {k.rpartition(".")[2] for k in known}
    close = near(last, ends)
    found = [k for k in known if k.rpartition(".")[2] in close]
    return sorted(found, key=lambda k: k.rpartition(".")[0] != prefix)


class PullbackError(Exception):
    """Base of everything that pullback raises on purpose."""


class UserError(PullbackError):
    """A mistake in what the user wrote or passed.

    ``span`` is the place in the user's source that is to blame, when one is known; it is shown with a caret.
    ``hint`` says how to mend it.
    """

    def __init__(self, message: str, *, span: Span | None = None, hint: str | None = None) -> None:
        self.message, self.span, self.hint = message, span, hint
        parts = [message]
        if span is not None:
            parts.append(span.caret())
        if hint is not None:
            parts.append(f"hint: {hint}")
        super().__init__("\n".join(parts))


class ShapeError(UserError, ValueError):
    """Ranks or sizes do not fit."""


class DTypeError(UserError, TypeError):
    """Element types do not fit; nothing is promoted implicitly."""


class ScriptError(UserError, SyntaxError):
    """Source text that is not a well-formed program of one of the IRs."""

    def __init__(self, message: str, *, span: Span | None = None, hint: str | None = None) -> None:
        UserError.__init__(self, message, span=span, hint=hint)

    def __str__(self) -> str:
        return str(self.args[0])


class CallError(UserError, TypeError):
    """A function of pullback's was called with arguments that it does not take."""


class NoAttribute(UserError, AttributeError):
    """An object of pullback's has no such method or attribute."""


class NameNotFound(UserError, KeyError, ValueError):
    """A function, parameter, operator or attribute of that name does not exist. It is a ValueError too, as in TVM."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class DifferentiationError(UserError):
    """Something has no derivative: every offending place is listed."""


class ArgumentError(UserError, ValueError):
    """A call at run time got arguments that do not fit its signature."""


class CheckpointError(UserError):
    """A checkpoint is truncated, foreign, damaged, or made for another model."""


class TargetError(UserError, ValueError):
    """The target or device does not exist or cannot do what is asked."""


class CompileError(UserError):
    """Code could not be made on this machine: memory ended, or the process that makes it was killed."""


class InternalError(PullbackError):
    """A mistake of pullback's own: please report it."""
