"""Names while a function is parsed: its own first, then those of the place where it is defined."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.errors import ScriptError, near
from pullback.ir.node import Span
from pullback.script.environment import Environment
from pullback.script.sizes import Sizes


@dataclass(frozen=True)
class Entry:
    """What a name stands for, and where it was given; of a function inside, the names around it that it reads."""

    value: Any
    span: Span | None
    reads: Mapping[str, Entry] = field(default_factory=dict)


class Level(dict[str, Entry]):
    """The names of a body: of a branch or a loop, or of a function, whose ``assigned`` names are its own."""

    def __init__(self, is_function: bool, assigned: Iterable[str] = ()) -> None:
        super().__init__()
        self.is_function, self.assigned = is_function, set(assigned)
        self.around: dict[str, Entry] = {}  # what a function reads around it


class Scope:
    """The names of one loop function: levels of local names, symbolic sizes, and the surrounding Python names.

    A name is given once while it is visible; ``_`` may be given any number of times.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment, self.sizes = environment, Sizes()
        self.levels = [Level(is_function=True)]
        self.ended: set[str] = set()  # names of inner levels that are over

    @property
    def assigned(self) -> set[str]:
        """The names that the function assigns anywhere."""
        return {n for level in self.levels for n in level.assigned}

    @assigned.setter
    def assigned(self, names: Iterable[str]) -> None:
        self.levels[-1].assigned = set(names)

    def define(self, name: str, value: Any, span: Span | None) -> None:
        """Give a name its only meaning."""
        if name != "_":
            earlier = next((level[name] for level in self.levels if name in level), None)
            if earlier is not None:
                raise self._shadowing(name, earlier.span, span)
        self.levels[-1][name] = Entry(value, span)

    def _shadowing(self, name: str, earlier: Span | None, span: Span | None) -> ScriptError:
        where = f", first on line {earlier.line}:\n{earlier.caret()}\nagain:" if earlier is not None else ""
        hint = f"a name stands for one value: give the new one another name, such as {self._fresh(name)}"
        return ScriptError(f"{name!r} is assigned twice{where}", span=span, hint=hint)

    def _fresh(self, name: str) -> str:
        taken = self.assigned | {n for level in self.levels for n in level}
        return next(f"{name}_{k}" for k in range(1, len(taken) + 2) if f"{name}_{k}" not in taken)

    def push(self) -> None:
        """Open an inner level."""
        self.levels.append(Level(is_function=False))

    def pop(self) -> None:
        """Forget the names of the innermost level."""
        self.ended.update(self.levels.pop())

    def read(self, name: str) -> Any:
        """The meaning of a name."""
        for level in reversed(self.levels):
            if name in level:
                return level[name].value
        if name in self.sizes.by_name:
            return self.sizes.by_name[name]
        if name in self.ended:
            hint = "a name lives until the end of its block: keep the value in a buffer that is allocated before"
            raise ScriptError(f"{name!r} is not visible here: the block that assigns it has ended", hint=hint)
        if name in self.assigned:
            raise ScriptError(f"{name!r} is read before it is assigned", hint="assign it on a line above")
        return self.outside(name)

    def outside(self, name: str) -> Any:
        """The meaning of a name around the function."""
        if name in self.environment:
            return self.environment[name]
        local = [n for level in self.levels for n in level] + list(self.sizes.by_name)
        close = near(name, [*local, *self.environment])
        otherwise = "assign it before, or import it outside; a text that is read by from_source takes it by extra_vars"
        hint = self.environment.hints.get(name) or (f"did you mean {close[0]!r}?" if close else otherwise)
        raise ScriptError(f"the name {name!r} is not defined", hint=hint)


def assigned_names(body: Iterable[ast.stmt]) -> list[str]:
    """The names that statements assign, also in nested blocks, in the order of the text; those of functions inside are
    the functions' own."""
    found: list[str] = []
    rest: list[ast.AST] = list(body)
    rest.reverse()
    while rest:
        node = rest.pop()
        if isinstance(node, ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Name):
            found += [node.id] if isinstance(node.ctx, ast.Store) else []
        elif not isinstance(node, ast.Return):
            rest += list(ast.iter_child_nodes(node))[::-1]
    return found
