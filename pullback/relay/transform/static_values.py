"""What partial evaluation knows of a value, and when a recursive call may go on.

A :class:`Value` has code that stands for it, and may be known besides: a constant, a tuple or data of a constructor
whose fields are values, a function with what it captured, a cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.relay.expr import Constant, Function, GlobalVar, Var
from pullback.relay.transform.residual import Binding, Block
from pullback.relay.ty import Type, TypeVar
from pullback.relay.type_visitor import TypeVisitor, substitute


@dataclass(frozen=True, eq=False)
class Fields:
    """A tuple."""

    values: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Data:
    """What a constructor made."""

    constructor: Any
    values: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Known:
    """A function, and the variables around it."""

    function: Function
    env: Env
    time: int = 0  # when it was made; a function of the module is older than all


@dataclass(eq=False)
class Cell:
    """A cell that the program creates: its binding, and those that write to it and are not needed so far."""

    function: Block
    binding: Binding | None = None
    writes: list[Binding] = field(default_factory=list)

    @property
    def escaped(self) -> bool:
        """Whether code that is left reads it, or hands it on."""
        assert self.binding is not None
        return self.binding.needed


CLOCK = itertools.count()


class Value:
    """``code`` is a binding, or an expression that may stand anywhere; ``static`` what is known, or None."""

    __slots__ = ("code", "static", "time")

    def __init__(self, code: Any, static: Any = None) -> None:
        self.code, self.static = code, static
        self.time = next(CLOCK)

    def atom(self) -> Any:
        """The expression that stands for the value, which is needed from now on."""
        return self.code.need() if isinstance(self.code, Binding) else self.code


def same(a: Value, b: Value) -> bool:
    """Whether two values are surely the same."""
    if a is b or (isinstance(a.static, Cell) and a.static is b.static):
        return True
    if isinstance(a.code, Constant) and isinstance(b.code, Constant):
        x, y = a.code.data, b.code.data
        return (x.dtype, x.shape) == (y.dtype, y.shape) and x.numpy().tobytes() == y.numpy().tobytes()
    if isinstance(a.code, GlobalVar):
        return isinstance(b.code, GlobalVar) and a.code == b.code
    return not isinstance(a.code, Binding) and a.code is b.code


class Env:
    """Values of variables, and the types that type variables stand for: None where that is not known."""

    def __init__(self, outer: Env | None = None) -> None:
        self.outer = outer
        self.values: dict[Var, Value] = {}
        self.types: dict[TypeVar, Type | None] = {}

    def find(self, variable: Var) -> Value | None:
        env: Env | None = self
        while env is not None:
            if variable in env.values:
                return env.values[variable]
            env = env.outer
        return None

    def type(self, type_: Type | None) -> Type | None:
        """The type here; None where it is not known."""
        if type_ is None:
            return None
        known: dict[Any, Type | None] = {}
        for variable in _type_variables(type_):
            env: Env | None = self
            while env is not None and variable not in env.types:
                env = env.outer
            if env is not None:
                known[variable] = env.types[variable]
        found = {variable: t for variable, t in known.items() if t is not None}
        return None if len(found) < len(known) else substitute(type_, found)

    def all_types(self, types: Sequence[Type]) -> tuple[Type, ...]:
        """The types, or none of them where one is not known."""
        found = [t for t in map(self.type, types) if t is not None]
        return tuple(found) if len(found) == len(types) else ()


class _Variables(TypeVisitor):
    def __init__(self) -> None:
        self.found: list[TypeVar] = []

    def visit_type_var(self, type_: TypeVar) -> None:
        self.found.append(type_)


def _type_variables(type_: Type) -> list[TypeVar]:
    visitor = _Variables()
    visitor.visit(type_)
    return visitor.found


# ---- recursion
#
# A call of a function inside a call of it goes on only while its arguments become less: a count falls, or a structure
# is one that is older, such as the tail of a list. Both end. What grows, such as a counter that goes up to a bound, may
# go on where nothing but constants decides that it does, for some while.

MOST_STEPS = 2000  # calls whose arguments do not become less, in one function of the module

Fuel = Any  # None: not known; a kind and a number; or a list of fuels


def fuel_of(value: Value) -> Fuel:
    static = value.static
    if isinstance(static, Constant):
        number = scalar(value)
        return ("count", number) if number is not None and number >= 0 else None
    if isinstance(static, Fields):
        return [fuel_of(v) for v in static.values]
    return None if static is None else ("time", value.time)


def scalar(value: Value) -> int | None:
    """The number that an integer scalar is; None of anything else."""
    if not isinstance(value.static, Constant):
        return None
    data = value.static.data
    if data.shape != () or "int" not in data.dtype:
        return None
    return int(data.numpy())


def less(old: Fuel, new: Fuel) -> tuple[Fuel, bool]:
    """The smaller of two, part by part, and whether some part of ``new`` is smaller than that of ``old``."""
    if new is None or old is None:
        return (old if new is None else new), new is not None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = [less(a, b) for a, b in zip(old, new, strict=True)]
        return [p for p, _ in parts], any(progress for _, progress in parts)
    if isinstance(old, tuple) and isinstance(new, tuple) and old[0] == new[0] and new[1] < old[1]:
        return new, True
    return old, False


def constants_in(values: Sequence[Value]) -> Iterator[Any]:
    """What the constants in values are, in order; None for what is no constant."""
    for value in values:
        if isinstance(value.static, Fields):
            yield from constants_in(value.static.values)
        elif isinstance(value.static, Constant):
            data = value.static.data
            yield data.dtype, data.shape, data.numpy().tobytes()
        else:
            yield None


def identities(values: Sequence[Value]) -> Iterator[Any]:
    """What tells whether two lists of arguments are the same."""
    for value in values:
        if isinstance(value.static, Fields):
            yield from identities(value.static.values)
        elif isinstance(value.static, Constant):
            yield from constants_in([value])
        else:
            yield value


@dataclass(eq=False)
class Activation:
    """A call of a function that is being evaluated: what its arguments have shrunk to, those it had, and how many
    branches stand around it that only running decides. The age of the function counts as an argument: a closure may
    call older ones of the same code, as backpropagators do."""

    fuel: Fuel
    constants: list[Any]
    branches: int
    steps: int
    seen: frozenset[Any]

    @staticmethod
    def first(time: int, args: Sequence[Value], branches: int) -> Activation:
        """Of a call that is in no other of the function."""
        seen = frozenset([tuple(identities(args))])
        return Activation([("time", time), *map(fuel_of, args)], list(constants_in(args)), branches, 0, seen)

    def next(self, time: int, args: Sequence[Value], branches: int) -> Activation | None:
        """Of a call inside this one; None where that is not to be followed."""
        fuel, progress = less(self.fuel, [("time", time), *map(fuel_of, args)])
        constants, identity = list(constants_in(args)), tuple(identities(args))
        if not progress:
            counts = any(new is not None and new != old for old, new in zip(self.constants, constants, strict=False))
            if branches > self.branches or not counts or identity in self.seen:
                return None
        steps = 0 if progress else self.steps + 1
        return Activation(fuel, constants, branches, steps, self.seen | {identity})
