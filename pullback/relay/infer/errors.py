"""What inference reports: one mistake as itself, several of them as one error that lists all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.node import Span
from pullback.relay.infer.solver import Mismatch


class TypeInferenceError(UserError, TypeError):
    """A relay program has no type. ``errors`` lists its mistakes, each a UserError with its place."""

    def __init__(
        self, message: str, *, span: Span | None = None, hint: str | None = None, errors: Sequence[UserError] = ()
    ) -> None:
        super().__init__(message, span=span, hint=hint)
        self.errors = tuple(errors) or (self,)


_CLASSES = {"shape": ShapeError, "dtype": DTypeError, "type": TypeInferenceError}


def mismatch_error(mismatch: Mismatch, message: str, span: Span | None, hint: str | None = None) -> UserError:
    """An error of the class that says in what two types differ."""
    why = f": {mismatch.why}" if mismatch.why else ""
    return _CLASSES[mismatch.kind](f"{message}{why}", span=span, hint=hint)


def raise_all(errors: Sequence[UserError]) -> NoReturn:
    """Raise the one error, or one that lists them all."""
    if len(errors) == 1:
        raise errors[0]
    listed = "\n\n".join(f"{number}. {error}" for number, error in enumerate(errors, 1))
    raise TypeInferenceError(f"the program has {len(errors)} mistakes\n\n{listed}", errors=errors)
