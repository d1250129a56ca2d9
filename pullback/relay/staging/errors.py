"""What cannot be staged, and what to do about it."""

from __future__ import annotations

from pullback.ir.errors import UserError

HINT = (
    'the executors "vm" and "debug" run the whole language; where control does not depend on tensors,'
    " relay.transform.PartialEvaluate() and DeadCodeElimination() leave straight code"
)


class NotDataflow(UserError):
    """A construct that has no form in the graph IR."""


class Unjoinable(NotDataflow):
    """What two branches give is no value of the graph IR."""


class UnknownType(UserError):
    """A type that has to be known, and is what inference finds."""
