"""The names of a graph function, which may be assigned again, and of the functions inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ScriptError
from pullback.ir.node import Span
from pullback.script.parser.scope import Entry, Level, Scope


@dataclass(frozen=True)
class Refused:
    """The value of a name that is known, and may not be read."""

    message: str
    hint: str


class GraphScope(Scope):
    """A name stands for its last value. A function inside reads what stood around it where it was defined, which must
    be what Python would find there when it is called."""

    def define(self, name: str, value: Any, span: Span | None, reads: Mapping[str, Entry] | None = None) -> None:
        """Give a name its next value."""
        self.levels[-1][name] = Entry(value, span, dict(reads or {}))

    def enter(self, is_function: bool = False, assigned: Iterable[str] = ()) -> Level:
        """Open a level, of a function or of a body inside one."""
        self.levels.append(Level(is_function, assigned))
        return self.levels[-1]

    def close(self, name: str) -> None:
        """A dataflow variable's block has ended: the name may not be read any more."""
        message = f"{name!r} is a dataflow variable: it is not visible after its block"
        refused = Refused(message, f"add it to the block's outputs: R.output(…, {name})")
        self.levels[-1][name] = Entry(refused, self.levels[-1][name].span)

    def own(self, name: str) -> Entry | None:
        """What the name stands for in the function that is being read, if it has been assigned there."""
        for level in reversed(self.levels):
            if name in level:
                return None if isinstance(level[name].value, Refused) else level[name]
            if level.is_function:
                return None
        return None

    def behind(self, name: str) -> Iterator[str]:
        """The names that the function of that name reads around it."""
        entry = next((level[name] for level in reversed(self.levels) if name in level), None)
        return iter(entry.reads if entry is not None else ())

    def read(self, name: str) -> Any:
        depth, entry = self._find(name)
        if entry is None:
            return self.sizes.by_name[name] if name in self.sizes.by_name else self.outside(name)
        if isinstance(entry.value, Refused):
            raise ScriptError(entry.value.message, hint=entry.value.hint)
        for around, was in entry.reads.items():
            now = self._find(around, depth)[1]
            if now is not was:
                raise _assigned_since(name, around, was.span, now.span if now is not None else None)
        return entry.value

    def _find(self, name: str, most: int | None = None) -> tuple[int, Entry | None]:
        """What a name stands for, and how many functions around it there are; in functions inside of no more than
        ``most`` others. Functions that the search leaves note that they read it."""
        left: list[Level] = []
        depth = sum(level.is_function for level in self.levels)
        for level in reversed(self.levels):
            if most is None or depth <= most:
                if name in level:
                    for function in left:
                        function.around[name] = level[name]
                    return depth, level[name]
                if level.is_function and name in level.assigned and name not in self.sizes.by_name:
                    raise ScriptError(f"{name!r} is read before it is assigned", hint="assign it on a line above")
            if level.is_function:
                left.append(level)
                depth -= 1
        return 0, None


def _assigned_since(function: str, name: str, was: Span | None, now: Span | None) -> ScriptError:
    where = f":\n{was.caret()}\nagain:\n{now.caret()}" if was is not None and now is not None else ""
    return ScriptError(
        f"{function!r} reads {name!r}, which is assigned again between its definition and here{where}\nread:",
        hint=f"give the new value another name, or pass {name} to {function} as an argument",
    )
