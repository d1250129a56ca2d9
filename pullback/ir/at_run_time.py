"""What has a value when a program runs, and none when it is written: Python may not ask for it then.

Without this Python would answer, once, something about the object: a length, a NumPy array with one object in it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pullback.ir.errors import UserError


class NoValueYet(UserError):
    """Python asked for a value that there is only when the program runs."""


class AtRunTime:
    """A base of expressions. A subclass says what it is, and how to mend what was tried."""

    described = "a symbolic value"
    to_choose = to_convert = to_count = to_change = ""

    def _refuse(self, problem: str, hint: str) -> NoReturn:
        raise NoValueYet(f"{self.described} {problem} at compile time", hint=hint)

    def __bool__(self) -> bool:
        self._refuse("has no truth value", self.to_choose)

    def __contains__(self, value: Any) -> bool:
        self._refuse("cannot be searched", self.to_choose)

    def __float__(self) -> float:
        self._refuse("is no number", self.to_convert)

    def __int__(self) -> int:
        self._refuse("is no number", self.to_convert)

    def __complex__(self) -> complex:
        self._refuse("is no number", self.to_convert)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("is no array", self.to_convert)

    def __len__(self) -> int:
        self._refuse("has no length", self.to_count)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._refuse("cannot be changed in place", self.to_change)

    def __delitem__(self, index: Any) -> None:
        self._refuse("cannot be changed in place", self.to_change)
