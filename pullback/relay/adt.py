"""Algebraic data types: their definitions, constructors, and the patterns that take them apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback.ir.arguments import sequence
from pullback.ir.errors import ArgumentError, InternalError
from pullback.relay.expr import Call, Expr, Var, as_expr, checked_var
from pullback.relay.shown import Shown
from pullback.relay.ty import GlobalTypeVar, Type, TypeVar


@dataclass(frozen=True, eq=False)
class Constructor(Expr):
    """A constructor of a data type: called like a function; ``tag`` is its place among those of the type.

    Two are equal that have one name in one data type.
    """

    name: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int = field(default=0, compare=False)

    shared: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", sequence("inputs of a constructor", self.inputs))

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def structural_items(self) -> list[tuple[str, Any]]:
        """Its name and its type's: types of the fields may name the type itself."""
        return [("name", self.name), ("belong_to", self.belong_to)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constructor) and (self.name, self.belong_to) == (other.name, other.belong_to)

    def __hash__(self) -> int:
        return hash((self.name, self.belong_to))


@dataclass(frozen=True, eq=False)
class TypeData(Type):
    """The definition of a data type: its name, type parameters and constructors."""

    binds = ("type_vars",)

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_vars", sequence("type_vars of a TypeData", self.type_vars))
        constructors = sequence("constructors of a TypeData", self.constructors)
        for tag, constructor in enumerate(constructors):
            vars(constructor)["tag"] = tag  # a constructor is made before its definition
        object.__setattr__(self, "constructors", constructors)

    def structural_items(self) -> list[tuple[str, Any]]:
        inputs = [(c.name, c.inputs) for c in self.constructors]
        return [("header", self.header), ("type_vars", self.type_vars), ("constructors", inputs)]


class Pattern(Shown):
    """Base of patterns."""


@dataclass(frozen=True, eq=False)
class PatternWildcard(Pattern):
    """Matches anything: ``_``."""


@dataclass(frozen=True, eq=False)
class PatternVar(Pattern):
    """Matches anything, and binds it to the variable."""

    binds = ("var",)

    var: Var

    def __post_init__(self) -> None:
        checked_var("a PatternVar", self.var)


@dataclass(frozen=True, eq=False)
class PatternConstructor(Pattern):
    """Matches what the constructor made, and its fields by ``patterns``: all of them, or none."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", sequence("patterns", self.patterns or ()))


@dataclass(frozen=True, eq=False)
class PatternTuple(Pattern):
    """Matches a tuple, and its fields by ``patterns``."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", sequence("patterns", self.patterns))


@dataclass(frozen=True, eq=False)
class Clause(Shown):
    """One case of a :class:`Match`: what matches ``lhs`` gives ``rhs``."""

    lhs: Pattern
    rhs: Expr

    def __post_init__(self) -> None:
        if not isinstance(self.lhs, Pattern):
            hint = "Clause(pattern, expression)"
            raise ArgumentError(f"a clause begins with a pattern, got {type(self.lhs).__name__}", hint=hint)
        vars(self)["rhs"] = as_expr(self.rhs)


@dataclass(frozen=True, eq=False)
class Match(Expr):
    """The right side of the first clause whose pattern matches ``data``.

    ``complete``: every value of the type is to match one; otherwise what matches none is an error at run time.
    """

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool = True

    def __post_init__(self) -> None:
        vars(self)["data"] = as_expr(self.data)
        vars(self)["clauses"] = sequence("clauses of a Match", self.clauses)


def bound_by(pattern: Pattern) -> list[Var]:
    """The variables that the pattern binds, from left to right."""
    if isinstance(pattern, PatternVar):
        return [pattern.var]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [var for inner in pattern.patterns for var in bound_by(inner)]
    if isinstance(pattern, PatternWildcard):
        return []
    raise InternalError(f"{type(pattern).__name__} is no pattern")
