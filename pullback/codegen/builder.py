"""Builds the text of one LLVM function: blocks, instructions, value numbering.

Pure instructions are numbered: asking twice for the same text, where the first result is still in scope, gives the
first result. They also leave the loops in which they don't change. So whoever emits code may repeat itself freely, the
text stays small, and LLVM has little left to do.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Something = TypeVar("Something")
_NAMES = re.compile(r"%[\w.]+")
ATTRIBUTES = '"no-builtins" "prefer-vector-width"="512"'


class Globals:
    """What the functions of one LLVM module share: declarations and small helper functions, by name."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}

    def declare(self, name: str, text: str) -> str:
        self.declarations[name] = text
        return name

    def define(self, name: str, text: str) -> str:
        self.definitions[name] = text
        return name


@dataclass
class _Loop:
    """An open loop: where to put what does not change in it."""

    preheader: list[str]
    scope: int  # index of the scope around the loop
    entered: int  # the clock when it was entered
    conditional: int = 0  # how many conditions are open inside, up to the next inner loop


class FunctionBuilder:
    """The body of one function under construction; ``block`` is the label of the block that grows.

    Pure instructions go in front of all loops in which their operands don't change.
    """

    def __init__(self, header: str, shared: Globals) -> None:
        self.header, self.shared = header, shared
        self.entry: list[str] = []  # allocas and loads of arguments
        self.lines: list[str | list[str]] = []
        self.block = "start"
        self.clock = 0  # counts events that make loads out of date
        self.ended = 0  # scopes
        self._count = 0
        self._known: dict[object, Any] = {}  # the results that are in scope, by text and version
        self._scopes: list[list[object]] = [[]]  # what was numbered in each open scope
        self._loops: list[_Loop] = []
        self._depth: dict[str, int] = {}  # the loop depth at which a name is defined

    def text(self) -> str:
        """The whole function."""
        body = ["entry:", *self.entry, "  br label %start", "start:"]
        for line in self.lines:
            if isinstance(line, str):
                body.append(line)
            else:
                body.extend(line)
        return f"{self.header} nounwind {ATTRIBUTES} {{\n" + "\n".join(body) + "\n}\n"

    def tick(self) -> int:
        """The next time on the clock."""
        self.clock += 1
        return self.clock

    def name(self, stem: str = "") -> str:
        self._count += 1
        return f"%{stem}{self._count}" if stem else f"%t{self._count}"

    def effect(self, text: str) -> None:
        """An instruction without result."""
        self.lines.append("  " + text)

    def fresh(self, text: str, stem: str = "") -> str:
        """An instruction that stays where it is and must not be shared."""
        name = self.name(stem)
        self._depth[name] = len(self._loops)
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str, version: int | None = None, speculate: bool = True) -> str:
        """An instruction whose result depends on its text alone; for loads, on the time of the last write too.

        ``speculate``: it may run although the program would not get there.
        """
        key = text if version is None else (text, version)
        known = self._known.get(key)
        if known is not None:
            return known
        depth = self._invariant_depth(text, version, speculate and version is None)
        if depth == len(self._loops):
            name = self._known[key] = self.fresh(text)
            self._scopes[-1].append(key)
            return name
        name, loop = self.name(), self._loops[depth]
        self._depth[name] = depth
        loop.preheader.append(f"  {name} = {text}")
        self._known[key] = name
        self._scopes[loop.scope].append(key)
        return name

    def known(self, key: object) -> Any:
        """What was remembered under a key that is no instruction's, in a scope that is open."""
        return self._known.get(key)

    def remember(self, key: object, value: Something) -> Something:
        """Until the scope ends: the value has results of instructions."""
        self._known[key] = value
        self._scopes[-1].append(key)
        return value

    def _invariant_depth(self, text: str, version: int | None, speculate: bool) -> int:
        """The number of loops around the outermost place where the instruction may stand."""
        current = len(self._loops)
        depth = max(map(self._depth.get, _NAMES.findall(text), itertools.repeat(0)), default=0) if current else 0
        for inner in range(current - 1, depth - 1, -1):
            loop = self._loops[inner]
            if (not speculate and loop.conditional) or (version is not None and version > loop.entered):
                return inner + 1
        return depth

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is numbered inside is forgotten after: its block does not dominate what follows."""
        self._open()
        if self._loops:
            self._loops[-1].conditional += 1
        inside = self._loops[-1] if self._loops else None
        try:
            yield
        finally:
            self._close()
            if inside is not None:
                inside.conditional -= 1

    def _open(self) -> None:
        self._scopes.append([])

    def _close(self) -> None:
        self.ended += 1
        for key in self._scopes.pop():
            del self._known[key]

    def alloca(self, count: int, type_name: str, align: int = 64) -> str:
        """Memory in the function's frame."""
        name = self.name("local")
        self.entry.append(f"  {name} = alloca [{count} x {type_name}], align {align}")
        return name

    # ---- control flow

    def label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Begin a block; the one before must have ended."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.effect(f"br label %{label}")

    def branch_if(self, condition: str, then: str, otherwise: str) -> None:
        self.effect(f"br i1 {condition}, label %{then}, label %{otherwise}")

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """``if (condition) { … }`` around what is emitted inside."""
        inside, after = self.label("then"), self.label("endif")
        self.branch_if(condition, inside, after)
        self.start(inside)
        with self.scope():
            yield
        self.branch(after)
        self.start(after)

    @contextlib.contextmanager
    def counting(self, begin: str, end: str, guard: bool = True, stem: str = "i") -> Iterator[str]:
        """``for (i = begin; i < end; i++) { … }``: gives ``i``. Without ``guard`` there is at least one iteration."""
        head, latch, after = self.label("loop"), self.label("latch"), self.label("end")
        with contextlib.ExitStack() as stack:
            if guard:
                before = self.label("guard")
                self.branch_if(self.pure(f"icmp slt i64 {begin}, {end}"), before, after)
                self.start(before)
                stack.enter_context(self.scope())
            index, following = self.name(stem), self.name(f"{stem}.next")
            loop = _Loop([], len(self._scopes) - 1, self.tick())
            self.lines.append(loop.preheader)
            previous = self.block
            self.branch(head)
            self.start(head)
            self.effect(f"{index} = phi i64 [ {begin}, %{previous} ], [ {following}, %{latch} ]")
            self._loops.append(loop)
            self._depth[index] = len(self._loops)
            self._open()
            yield index
            self._close()
            self._loops.pop()
            self.branch(latch)
            self.start(latch)
            self.effect(f"{following} = add nsw i64 {index}, 1")
            again = self.name()
            self.effect(f"{again} = icmp slt i64 {following}, {end}")
            self.branch_if(again, head, after)
        self.start(after)
