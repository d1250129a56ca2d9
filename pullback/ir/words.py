"""Calls and attributes that do not exist, explained: what a user of another system meant, and what to write here.

SGD(learning_rate=0.1)    →    SGD(): argument 'learning_rate' does not exist
                               hint: did you mean lr?; its arguments are (lr)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pullback.ir.errors import CallError, NoAttribute, near, suggestion
from pullback.ir.foreign import ARGUMENTS, ATTRIBUTES, CLASSES, NO_ARGUMENT

Callee = TypeVar("Callee", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


_METHOD = {"__init__": "", "__call__": ""}  # how users write the call of a method that has no name


def unknown_argument(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint for an argument that does not exist."""
    known = list(known)
    meant = next((n for n in ARGUMENTS.get(name.lower(), "").split() if n in known), None)
    if meant is None and name.lower() in NO_ARGUMENT:
        return NO_ARGUMENT[name.lower()]
    close = [meant] if meant else near(name, known)
    return f"did you mean {close[0]}? {otherwise}" if close else otherwise


def explained(function: Callee, name: str | None = None) -> Callee:
    """``function``, with a CallError in the user's words where arguments do not fit its parameters. ``name`` is what
    users call; by default it is a method, of the class of its object."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            called = name or f"{type(args[0]).__name__}{_METHOD.get(function.__name__, f'.{function.__name__}')}"
            problem = explanation(error, called, function, args, kwargs)
            if problem is None:
                raise
        raise problem

    return cast(Callee, call)


def explanation(
    error: TypeError, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> CallError | None:
    """The error of a call whose arguments do not fit: it names the first unknown one, or says what Python says. None
    where the TypeError comes from inside the function, or nothing is known of its parameters."""
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    is_method = next(iter(signature.parameters), None) in ("self", "cls")
    shown = signature.replace(
        parameters=list(signature.parameters.values())[is_method:], return_annotation=inspect._empty
    )
    known = [
        n for n, p in shown.parameters.items() if p.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    listed = ", ".join(
        n if p.default is p.empty else f"{n}={p.default!r}"
        for n, p in shown.parameters.items()
    )  # fmt: skip
    arguments = f"its arguments are ({listed})"
    for given in kwargs:
        if given not in known:
            return CallError(
                f"{name}(): argument {given!r} does not exist", hint=unknown_argument(given, known, arguments)
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return CallError(f"{name}(): {error}", hint=arguments)
    return None


def guided(cls: Class) -> Class:
    """Decorator of classes for users: calls that do not fit and attributes that do not exist are explained."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name in _METHOD or not name.startswith("_")):
            setattr(cls, name, explained(member))
    if not hasattr(cls, "__getattr__"):
        type.__setattr__(cls, "__getattr__", _no_attribute)
    return cls


def _no_attribute(self: Any, name: str) -> Any:
    raise no_attribute(type(self).__name__, name, dir(type(self)))


def no_attribute(what: str, name: str, known: Iterable[str]) -> NoAttribute:
    """The error of an attribute that does not exist."""
    message = f"{what} has no attribute {name!r}"
    if name.startswith("_"):
        return NoAttribute(message)
    public = [k for k in known if not k.startswith("_")]
    close = [] if name in ATTRIBUTES else near(name, public)
    hint = f"did you mean {close[0]}?" if close else ATTRIBUTES.get(name)
    return NoAttribute(message, hint=hint or f"it has {', '.join(public)}" if public else None)


def missing_from(names: dict[str, Any]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package with these ``globals()``: an error that suggests names."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("_"):
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        known = list(names.get("__all__", ()))
        longer = [k for k in known if k.lower().startswith(name.lower()) or name.lower().startswith(k.lower())]
        found = suggestion(name, known, CLASSES) or (f": did you mean {longer[0]}?" if longer else "")
        raise NoAttribute(f"{names['__name__']} has no {name!r}{found}")

    return __getattr__
