"""Tables of conversions: what an operator of another framework is here.

    ATEN = Converters("torch")
    ATEN.same({"aten.exp": op.exp, "aten.relu": F.relu})          # one line for an op that has a counterpart

    @ATEN.register("aten.addmm")                                   # a function for what has none
    def addmm(input, mat1, mat2, beta=1, alpha=1): ...

    ATEN.refuse({"aten.nonzero": "its result's size depends on the data"})

There is one table for each source. What a converter is called with is the source's business: an importer says so where
it makes its table. Importers look up everything that a model uses before they convert any of it, and raise one error
that lists all that is missing (:func:`check_supported`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.node import Span

__all__ = ["SOURCES", "Converter", "Converters", "UnsupportedOps", "Use", "check_supported", "register_converter"]

SOURCES: dict[str, Converters] = {}  # filled by the importers' modules


@dataclass(frozen=True)
class Converter:
    """One line of a table: how ``name`` is converted, or why it is not (``reason``). ``is_own``: by the user."""

    name: str
    function: Callable[..., Any] | None
    reason: str | None = None
    is_own: bool = False


class Converters:
    """The conversions of one source, by the names of its operators. ``head``: what its page begins with."""

    def __init__(self, source: str, head: str = "") -> None:
        self.source, self.head = source, head
        self._table: dict[str, Converter] = {}
        SOURCES[source] = self

    def same(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Operators that are functions here as they are."""
        for name, function in functions.items():
            self._add(Converter(name, function))

    def register(self, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: the function converts the operators of these names."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                self._add(Converter(name, function))
            return function

        return add

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Operators that cannot be converted, and why not."""
        for name, reason in reasons.items():
            self._add(Converter(name, None, reason))

    def _add(self, converter: Converter) -> None:
        found = self._table.get(converter.name)
        if found is not None and not converter.is_own:
            raise ArgumentError(f"{self.source}: there is a converter of {converter.name} already")
        self._table[converter.name] = converter

    def find(self, *names: str) -> Converter | None:
        """The converter of the first of these names that has one; those of the user come first."""
        found = [self._table[name] for name in names if name in self._table]
        return next((c for c in found if c.is_own), found[0] if found else None)

    def function(self, name: str) -> Callable[..., Any]:
        """What converts the operator of that name, which the table is known to have."""
        found = self._table.get(name)
        if found is None or found.function is None:
            raise InternalError(f"{self.source}: there is no converter of {name}")
        return found.function

    def __iter__(self) -> Iterator[Converter]:
        return iter(sorted(self._table.values(), key=lambda c: c.name))

    def __len__(self) -> int:
        return len(self._table)


def register_converter(source: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function converts the operator ``name`` of ``source``.

    It gets graph values for tensors and plain Python values for attributes, and returns a graph value, or a tuple of
    them where the operator has several results. It replaces a converter of that name.

    Args:
        source: "torch", "onnx" or "keras".
        name: of the operator, as the error about a model that has it says.

    Returns:
        The decorator, which returns the function as it is.

    Raises:
        ArgumentError: for an unknown source.

    Examples:
        >>> @relax.frontend.register_converter("torch", "mylib.scaled_relu")  # torch.ops.mylib.scaled_relu(x, scale)
        ... def scaled_relu(x, scale):
        ...     return relax.op.nn.relu(x) * scale
    """
    table = table_of(source)

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        table._add(Converter(name, function, is_own=True))
        return function

    return add


def table_of(source: str) -> Converters:
    """The table of a source, "torch", "onnx" or "keras"; an ArgumentError for another one."""
    from pullback.relax.frontend import load_tables

    load_tables(source)
    return SOURCES[source]


# -- what is missing


@dataclass(frozen=True)
class Use:
    """An operator that a model uses: its name, the names under which it may stand in the table, and where it stands."""

    name: str
    keys: tuple[str, ...]
    place: Span | None = None
    node: str = ""  # its name in the model's graph


class UnsupportedOps(UserError, NotImplementedError):
    """A model has operators that are not converted; ``names`` are these."""

    def __init__(self, message: str, *, names: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.names = names


PLACES = 3  # of each operator that an error names


def check_supported(table: Converters, uses: Iterable[Use]) -> None:
    """Raise UnsupportedOps, listing every operator without a converter, with its places and how to add one."""
    missing: dict[str, list[Use]] = {}
    reasons: dict[str, str] = {}
    for use in uses:
        converter = table.find(*use.keys)
        if converter is None or converter.function is None:
            missing.setdefault(use.name, []).append(use)
            if converter is not None and converter.reason is not None:
                reasons[use.name] = converter.reason
    if not missing:
        return
    lines = []
    for name, found in sorted(missing.items()):
        places = list(dict.fromkeys(str(use.place or use.node) for use in found if use.place or use.node))
        shown = ", ".join(places[:PLACES]) + (f" and {len(places) - PLACES} more" if len(places) > PLACES else "")
        why = f" ({reasons[name]})" if name in reasons else ""
        lines.append(f"  {name}{why}: {shown}" if shown else f"  {name}{why}")
    first = min(missing)
    raise UnsupportedOps(
        f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of the {table.source} model cannot be converted:\n"
        + "\n".join(lines),
        names=tuple(sorted(missing)),
        hint=f'add a converter: @pullback.relax.frontend.register_converter("{table.source}", "{first}")',
    )


# -- the table as a page


def lines(table: Converters) -> Iterator[str]:
    """A line for each operator: its name, and whether it is converted or why not."""
    width = max((len(c.name) for c in table), default=0)
    for converter in table:
        yield f"{converter.name:{width}}  {converter.reason or 'converted'}"


def summary(table: Converters) -> str:
    """How many operators the table has."""
    converted = sum(c.function is not None for c in table)
    return f"{converted} operators are converted, {len(table) - converted} refused with a reason"


def page(table: Converters) -> str:
    """The table as Markdown: its head, the operators that are converted, and those that are refused."""
    found = [c for c in table if not c.is_own]
    converted = [f"`{c.name}`" for c in found if c.function is not None]
    refused = [c for c in found if c.function is None]
    parts = [table.head] if table.head else []
    parts += [
        f"## Converted: {len(converted)}\n",
        textwrap.fill(", ".join(converted), 120, break_on_hyphens=False) + "\n",
    ]
    parts += [f"## Refused: {len(refused)}\n", "| operator | reason |\n|---|---|"]
    parts += [f"| `{c.name}` | {c.reason} |" for c in refused]
    return "\n".join(parts) + "\n"
