"""What programs of relay compute with, and what callers see of it.

Inside, a tensor is what the executor's :class:`Arrays` says (NumPy arrays, or tensors), a tuple is a tuple of Python,
and everything else is one of the classes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback.ir.errors import CallError
from pullback.relay.adt import Constructor
from pullback.runtime.container import ADT


class RefValue:
    """A mutable cell. ``value`` is what it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"RefValue({self.value!r})"


class Data:
    """What the constructor of a data type made, inside the evaluator."""

    __slots__ = ("constructor", "fields", "tag")

    def __init__(self, tag: int, fields: Sequence[Any], constructor: Constructor | None) -> None:
        self.tag, self.fields, self.constructor = tag, list(fields), constructor


class ConstructorValue(ADT):
    """What the constructor of a data type made, for callers: a list of its fields with its ``tag`` and the
    ``constructor``.

    >>> ConstructorValue(nil.tag, [], nil).fields
    []
    """

    def __init__(self, tag: int, fields: Iterable[Any], constructor: Constructor | None = None) -> None:
        super().__init__(tag, fields)
        self.constructor = constructor

    @property
    def fields(self) -> list[Any]:
        """The fields."""
        return list(self)

    def __repr__(self) -> str:
        name = self.constructor.name if self.constructor is not None else f"constructor {self.tag}"
        return f"{name}({', '.join(map(repr, self))})"


class Closure:
    """A function with the values that it reads around it, inside the evaluator."""

    __slots__ = ("captured", "code")

    def __init__(self, code: Any, captured: list[Any]) -> None:
        self.code, self.captured = code, captured


class Builtin:
    """An operator or a constructor as a function value: a Python function of values."""

    __slots__ = ("arity", "function", "name")

    def __init__(self, name: str, function: Any, arity: int | None) -> None:
        self.name, self.function, self.arity = name, function, arity

    def check(self, count: int, span: Any = None) -> None:
        """Raise a CallError unless it takes so many arguments."""
        if self.arity is not None and count != self.arity:
            raise CallError(f"{self.name} takes {self.arity} arguments, got {count}", span=span)


def is_function(value: Any) -> bool:
    """Whether the value can be called by a program."""
    return isinstance(value, (Closure, Builtin))


def what_it_is(value: Any) -> str:
    """The kind of a value, for messages."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, RefValue):
        return "a reference"
    if isinstance(value, Data):
        return f"a value of constructor {value.constructor.name if value.constructor is not None else value.tag}"
    if is_function(value):
        return "a function"
    if hasattr(value, "shape"):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    return type(value).__name__


def shown(value: Any, arrays: Any, call: Any) -> Any:
    """A value as callers see it: tensors, :class:`ADT` for tuples, and functions that can be called.

    ``arrays`` says how a tensor is kept inside; ``call(function)`` makes a function for callers.
    """
    if isinstance(value, tuple):
        return ADT(0, [shown(v, arrays, call) for v in value])
    if isinstance(value, RefValue):
        return RefValue(shown(value.value, arrays, call))
    if isinstance(value, Data):
        return converted(value, lambda d: ConstructorValue(d.tag, (), d.constructor), lambda v: shown(v, arrays, call))
    if is_function(value):
        return call(value)
    return arrays.shown(value)


def converted(value: Any, empty: Callable[[Any], Any], field: Callable[[Any], Any]) -> Any:
    """Data of another class: ``empty`` makes it without fields, ``field`` converts one.

    Lists are as deep as they are long: the last field is followed without recursion.
    """
    kind, whole = type(value), empty(value)
    rest = whole
    while True:
        fields = list(value.fields)
        last = fields.pop() if fields and type(fields[-1]) is kind else None
        added = [field(f) for f in fields]
        inner = None if last is None else empty(last)
        held = rest if isinstance(rest, list) else rest.fields
        held.extend(added if inner is None else [*added, inner])
        if inner is None:
            return whole
        value, rest = last, inner
