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

    Args:
        name: of the constructor.
        inputs: the types of its fields, which may use the type variables of the data type.
        belong_to: the name of the data type.
        tag: its place among the constructors, which :class:`TypeData` sets.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for inputs that are no sequence.
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
    """The definition of a data type: its name, type parameters and constructors.

    Args:
        header: the name.
        type_vars: the type parameters; empty for a type that has none.
        constructors: of the type, in order: their tags become 0, 1, ….
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for type_vars or constructors that are no sequence.

    Examples:
        >>> from pullback import relay
        >>> name, a = relay.GlobalTypeVar("Maybe"), relay.TypeVar("a")
        >>> nothing, just = relay.Constructor("Nothing", [], name), relay.Constructor("Just", [a], name)
        >>> module = pullback.IRModule()
        >>> module[name] = relay.TypeData(name, [a], [nothing, just])
        >>> print(module[name])
        type Maybe[a] {
          Nothing,
          Just(a),
        }
    """

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
    """Base of patterns.

    Args:
        span: place in the user's source, for errors; by default the current one, if there is one.
    """


@dataclass(frozen=True, eq=False)
class PatternWildcard(Pattern):
    """Matches anything: ``_``.

    Args:
        span: place in the user's source, for errors; by default the current one, if there is one.
    """


@dataclass(frozen=True, eq=False)
class PatternVar(Pattern):
    """Matches anything, and binds it to the variable.

    Args:
        var: the variable, for the right side of the clause.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for what is no :class:`Var`.
    """

    binds = ("var",)

    var: Var

    def __post_init__(self) -> None:
        checked_var("a PatternVar", self.var)


@dataclass(frozen=True, eq=False)
class PatternConstructor(Pattern):
    """Matches what the constructor made, and its fields by ``patterns``: all of them, or none.

    Args:
        constructor: of a data type.
        patterns: one for each field; none where the fields do not matter.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for patterns that are no sequence.
    """

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", sequence("patterns", self.patterns or ()))


@dataclass(frozen=True, eq=False)
class PatternTuple(Pattern):
    """Matches a tuple, and its fields by ``patterns``.

    Args:
        patterns: one for each field.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for patterns that are no sequence.
    """

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", sequence("patterns", self.patterns))


@dataclass(frozen=True, eq=False)
class Clause(Shown):
    """One case of a :class:`Match`: what matches ``lhs`` gives ``rhs``.

    Args:
        lhs: the pattern.
        rhs: an expression, in which the variables of the pattern are bound.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for an lhs that is no pattern, and an rhs that is no expression.
    """

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

    Args:
        data: a value of a data type, or a tuple.
        clauses: the cases, tried in order.
        complete: whether the clauses cover all values.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for data that is no expression, and clauses that are no sequence of clauses.

    Examples:
        >>> from pullback import relay
        >>> x, a, b = relay.var("x", shape=(3,)), relay.var("a"), relay.var("b")
        >>> pair = relay.PatternTuple([relay.PatternVar(a), relay.PatternVar(b)])
        >>> f = relay.Function([x], relay.Match(relay.Tuple([x, x]), [relay.Clause(pair, a * b)]))
        >>> print(f)
        fn (%x: Tensor[(3), float32]) {
          %0 = (%x, %x);
          match (%0) {
            (%a, %b) => {
              multiply(%a, %b)
            },
          }
        }
        >>> relay.create_executor().evaluate(f)(np.float32([1, 2, 3])).numpy()
        array([1., 4., 9.], dtype=float32)
    """

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool = True

    def __post_init__(self) -> None:
        vars(self)["data"] = as_expr(self.data)
        clauses = sequence("clauses of a Match", self.clauses)
        for clause in clauses:
            if not isinstance(clause, Clause):
                hint = "write relay.Clause(pattern, expression) for each"
                raise ArgumentError(f"{type(clause).__name__} is no clause of a Match", hint=hint)
        vars(self)["clauses"] = clauses


def bound_by(pattern: Pattern) -> list[Var]:
    """The variables that the pattern binds, from left to right."""
    if isinstance(pattern, PatternVar):
        return [pattern.var]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [var for inner in pattern.patterns for var in bound_by(inner)]
    if isinstance(pattern, PatternWildcard):
        return []
    raise InternalError(f"{type(pattern).__name__} is no pattern")
