"""Global functions: Python functions by name, as ``"relay.build_module.BindParamsByName"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError, NameNotFound, suggestion

_functions: dict[str, Callable[..., Any]] = {}


def register_func(name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function under a name. Without ``f`` it is a decorator; ``@register_func`` alone takes the function's
    own name.

    Args:
        name: of the function; with ``@register_func`` alone, the function itself.
        f: the function; without it, a decorator is returned.
        override: whether a name that is taken gets another function.

    Returns:
        the function, or a decorator.

    Raises:
        ArgumentError: where the name is taken, unless ``override``.

    Examples:
        >>> @pullback.register_func("my.double")
        ... def double(x):
        ...     return 2 * x
        >>> pullback.get_global_func("my.double")(3)
        6
    """
    if callable(name):
        return register_func(name.__name__, name, override)
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a global function's name is a string, got {name!r:.80}", hint='such as "my.function"')
    if f is None:
        return lambda function: register_func(name, function, override)
    if not callable(f):
        raise ArgumentError(f"global function {name!r} must be a function, got {type(f).__name__}")
    if name in _functions and not override:
        raise ArgumentError(f"there is a global function {name!r} already", hint="pass override=True to replace it")
    _functions[name] = f
    return f


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The function that is registered under the name.

    Args:
        name: of the function.
        allow_missing: whether None is returned where there is none.

    Returns:
        the function.

    Raises:
        NameNotFound: where there is none, unless ``allow_missing``.

    Examples:
        >>> pullback.get_global_func("no.such.function", allow_missing=True) is None
        True
    """
    found = _functions.get(name)
    if found is None and not allow_missing:
        hint = f"pullback.register_func({name!r}, f) registers one"
        raise NameNotFound(f"there is no global function {name!r}{suggestion(name, _functions)}", hint=hint)
    return found


def remove_global_func(name: str) -> None:
    """Remove the function that is registered under the name, if there is one."""
    _functions.pop(name, None)


def list_global_func_names() -> list[str]:
    """The names of all global functions, sorted."""
    return sorted(_functions)
