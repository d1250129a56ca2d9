"""Functions of the standard library, with types that say more than their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

if TYPE_CHECKING:

    def cache(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """``functools.cache`` that keeps the function's signature, and takes classes of nodes as arguments."""

else:
    cache = functools.cache
