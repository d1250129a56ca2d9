"""Instruments: what watches passes run, and may keep one from running.

@pass_instrument
class Count:
    def __init__(self): self.seen = []
    def run_before_pass(self, module, info): self.seen.append(info.name)

with PassContext(instruments=[Count()]): ...
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pullback.ir.arguments import sequence
from pullback.ir.errors import CallError
from pullback.ir.pass_context import PassInfo


class PassInstrument:
    """Base of instruments: override what is of use."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, module: Any, info: PassInfo) -> bool:
        """Whether the pass is to run; one that the context requires runs anyway."""
        return True

    def run_before_pass(self, module: Any, info: PassInfo) -> None:
        """Called before a pass, with the module that it gets."""

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        """Called after a pass, with the module that it returned."""


def pass_instrument(kind: Any = None) -> Any:
    """Decorator: a class with any of the methods of :class:`PassInstrument` becomes one."""

    def make(given: Any) -> type:
        if not inspect.isclass(given):
            raise CallError("pi_cls must be a class", hint="@pass_instrument stands above a class")
        if issubclass(given, PassInstrument):
            return given
        made = type(given.__name__, (given, PassInstrument), {"__doc__": given.__doc__})
        made.__module__, made.__qualname__ = given.__module__, given.__qualname__
        return made

    return make if kind is None else make(kind)


class _Timed:
    """A pass that ran, and those that it ran."""

    def __init__(self, name: str) -> None:
        self.name, self.start, self.seconds = name, time.perf_counter(), 0.0
        self.inner: list[_Timed] = []

    def lines(self, whole: float, around: float, depth: int) -> list[str]:
        own = self.seconds - sum(p.seconds for p in self.inner)
        shares = "; ".join(f"{100 * self.seconds / of if of else 0:.2f}%" for of in (whole, around))
        indent = "\t" * depth
        first = f"{indent}{self.name}: {1e6 * self.seconds:.0f}us [{1e6 * own:.0f}us] ({shares})\n"
        return [first, *(line for p in self.inner for line in p.lines(whole, self.seconds, depth + 1))]


class PassTimingInstrument(PassInstrument):
    """Measures how long passes take: :meth:`render`, before the context is left."""

    def __init__(self) -> None:
        self._ended: list[_Timed] = []
        self._running: list[_Timed] = []

    def run_before_pass(self, module: Any, info: PassInfo) -> None:
        self._running.append(_Timed(info.name))

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        timed = self._running.pop()
        timed.seconds = time.perf_counter() - timed.start
        (self._running[-1].inner if self._running else self._ended).append(timed)

    def exit_pass_ctx(self) -> None:
        self._ended, self._running = [], []

    def render(self) -> str:
        """A line for each pass that ran, those inside another indented: microseconds, of those its own, its share of
        all and of the one around it. Empty where none ran."""
        whole = sum(timed.seconds for timed in self._ended)
        return "".join(line for timed in self._ended for line in timed.lines(whole, whole, 0))


class PrintBeforeAll(PassInstrument):
    """Prints each pass's name and the module before it runs."""

    def run_before_pass(self, module: Any, info: PassInfo) -> None:
        print(f"Before Running Pass: {info.name}\n{module}")


class PrintAfterAll(PassInstrument):
    """Prints each pass's name and the module after it ran."""

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        print(f"After Running Pass: {info.name}\n{module}")


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes that are named."""

    def __init__(self, print_before_pass_names: Iterable[str] = (), print_after_pass_names: Iterable[str] = ()) -> None:
        self.before = sequence("print_before_pass_names", print_before_pass_names)
        self.after = sequence("print_after_pass_names", print_after_pass_names)

    def run_before_pass(self, module: Any, info: PassInfo) -> None:
        if info.name in self.before:
            print(f"Print IR before: {info.name}\n{module}\n")

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        if info.name in self.after:
            print(f"Print IR after: {info.name}\n{module}\n")


class DumpIR(PassInstrument):
    """Writes the module into ``dump_dir`` after each pass: ``000_FoldConstant.py``, ``001_…``."""

    def __init__(self, dump_dir: str | Path) -> None:
        self.folder, self.count = Path(dump_dir), 0

    def enter_pass_ctx(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        (self.folder / f"{self.count:03}_{plain}.py").write_text(str(module), encoding="utf-8")
        self.count += 1
