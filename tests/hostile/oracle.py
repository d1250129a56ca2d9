"""What may come of a wrong input."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

from pullback.ir import UserError

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


class Finding(AssertionError):
    """What should not have come of a wrong input."""


class Own(Exception):
    """An exception of the user's own code, which may come out as it is."""


def shown(value: Any) -> str:
    """A few characters of anything, also of what has a broken ``repr``."""
    try:
        return f"{type(value).__name__} {_short.repr(value)}"
    except BaseException as error:
        return f"{type(value).__name__} (whose repr raises {type(error).__name__})"


def outcome(what: str, call: Callable[[], Any]) -> tuple[Any, UserError | None]:
    """What a call returns, or the UserError that it raises; a Finding for anything else that it raises."""
    try:
        return call(), None
    except UserError as error:
        if not str(error).strip():
            raise Finding(f"{what}: the error says nothing") from error
        return None, error
    except MemoryError as error:
        if not str(error).startswith("out of memory: could not allocate"):
            raise Finding(f"{what}: MemoryError: {error}") from error
        return None, UserError(str(error))
    except Own as error:
        return None, UserError(str(error))
    except Exception as error:
        raise Finding(f"{what}: {type(error).__name__}: {str(error)[:300]}") from error
