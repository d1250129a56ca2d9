"""What every node of both IRs has: a span, frozen fields, structural equality apart from identity.

Nodes compare by identity (``==`` on expressions builds an expression or is identity). Structural comparison is
:func:`structural_equal`: bound variables correspond by position, spans are ignored.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from pullback.ir.errors import PullbackError
from pullback.ir.typed import cache

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AnyNode = TypeVar("AnyNode")
AnyDataclass = TypeVar("AnyDataclass", bound="DataclassInstance")
Answer = TypeVar("Answer")


class SourceName(str):
    """The name of a source: a file, or what is read as text."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


LONGEST_LINE = 160  # characters of a source line that messages show


@dataclass(frozen=True)
class Span:
    """A place in the user's source: one-based line, zero-based columns; ``text`` is the line when no file holds it.

    ``origin`` is the call that the user wrote there, of what a pass has made of it: errors name that call. ``layer`` is
    the dotted name of the ``nn.Module`` in whose ``forward`` it stands, "" of the outermost; profiles name it.

    Args:
        file: its path, or what stands for it, such as ``<stdin>``.
        line: the line's number, from 1 on.
        column: where the place begins in the line, in characters from 0 on.
        end_column: where it ends, exclusive; None where that is not known.
        text: the line, where no file holds it.
        origin: the call that the user wrote there; None where the node is that call.
        layer: the dotted name of the layer.

    Examples:
        >>> from pullback.ir import Span
        >>> print(Span("net.py", 3, 4, 9, text="y = x @ w").caret())
          --> net.py:3:5
            y = x @ w
                ^^^^^
    """

    file: str
    line: int
    column: int = 0
    end_column: int | None = None
    text: str | None = None
    origin: Any = field(default=None, compare=False, repr=False)
    layer: str | None = field(default=None, compare=False, repr=False)

    @property
    def source_name(self) -> SourceName:
        """The file, under the reference's name."""
        return SourceName(self.file)

    def source_line(self) -> str:
        return self.text if self.text is not None else linecache.getline(self.file, self.line).rstrip("\n")

    def caret(self) -> str:
        """``file:line:column``, the source line (of a long one, the part around the place), and carets under it."""
        source = self.source_line()
        where = f"  --> {self.file}:{self.line}:{self.column + 1}"
        if not source.strip():
            return where
        first = len(source) - len(source.lstrip())
        start, end = self.column, min(self.end_column or self.column + 1, len(source))
        if len(source) - first > LONGEST_LINE:
            first = max(first, min(start - LONGEST_LINE // 4, len(source) - LONGEST_LINE))
        shown = source[first : first + LONGEST_LINE]
        width = max(1, min(end, first + len(shown)) - start)
        more = "…" if first + len(shown) < len(source.rstrip()) else ""
        less = "…" if source[:first].strip() else ""
        return f"{where}\n    {less}{shown}{more}\n    {' ' * (len(less) + max(0, start - first))}{'^' * width}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


_span: ContextVar[Span | Callable[[], Span | None] | None] = ContextVar("pullback_span", default=None)


def current_span() -> Span | None:
    """The span that new nodes take when none is given."""
    span = _span.get()
    return span() if callable(span) else span


@contextlib.contextmanager
def span_scope(span: Span | Callable[[], Span | None] | None) -> Iterator[None]:
    """Nodes built inside take ``span``, or what it returns for each; ``None`` keeps the surrounding one.

    Args:
        span: the place, a function that returns it for each node, or None.

    Returns:
        a context manager.

    Examples:
        >>> from pullback import te
        >>> from pullback.ir import Span, span_scope
        >>> with span_scope(Span("net.py", 3)):
        ...     x = te.placeholder((4, 8))
        >>> x.span.line
        3
    """
    if span is None:
        yield
        return
    token = _span.set(span)
    try:
        yield
    finally:
        _span.reset(token)


def made_quickly(kind: type[AnyDataclass]) -> type[AnyDataclass]:
    """A frozen dataclass whose instances get all of their fields at once: compilers make many nodes.

    A generated ``__init__`` of a frozen dataclass calls ``object.__setattr__`` for each field, which takes three times
    as long. This one has the same parameters, and calls ``__post_init__`` too.
    """
    names: dict[str, Any] = {"_MISSING": MISSING}
    parameters: list[str] = []
    body = ["_fields = self.__dict__"]
    for item in sorted(fields(kind), key=lambda item: item.kw_only is True):
        parameter, value = item.name, item.name
        if item.kw_only and "*" not in parameters:
            parameters.append("*")
        if item.default_factory is not MISSING:
            names[f"_{item.name}"] = item.default_factory
            parameter += "=_MISSING"
            value = f"_{item.name}() if {item.name} is _MISSING else {item.name}"
        elif item.default is not MISSING:
            names[f"_{item.name}"] = item.default
            parameter += f"=_{item.name}"
        parameters.append(parameter)
        body.append(f"_fields[{item.name!r}] = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n    " + "\n    ".join(body), names)
    made, written = names["__init__"], vars(kind)["__init__"]
    functools.update_wrapper(made, written, ("__qualname__", "__annotations__", "__doc__"), ())
    type.__setattr__(kind, "__init__", made)
    return kind


@dataclass(frozen=True, eq=False)
class Node:
    """Base of all IR nodes: a frozen dataclass, identity for ``==`` and ``hash``, a span that is not structure.

    Args:
        span: the place in the user's source; by default that of the enclosing ``span_scope``.
    """

    span: Span | None = field(default_factory=current_span, kw_only=True, repr=False, compare=False)

    _printer: ClassVar[Callable[..., str] | None] = None  # the hook of set_printer
    _page: ClassVar[Callable[..., str] | None] = None  # the same for a module as HTML
    binder: ClassVar[str | None] = None  # the name of the field that holds the symbol which this node binds
    binds: ClassVar[tuple[str, ...]] = ()  # the structural items whose symbols, with those in their types, begin here
    shared: ClassVar[bool] = (
        False  # whether one node at two places is one value, and two equal ones are two: structure is a graph then
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # a dataclass writes one otherwise, as long as all that a node reaches
            type.__setattr__(cls, "__repr__", _outline)

    def script(self, **options: Any) -> str:
        """The node as script text: printing and parsing it back gives a structurally equal node."""
        return script_of(self, **options)

    def show(self, **options: Any) -> None:
        """Print :meth:`script`."""
        print(self.script(**options))

    def __str__(self) -> str:
        return self.script() if Node._printer is not None else repr(self)

    def __copy__(self: AnyNode) -> AnyNode:
        """Itself: nodes do not change."""
        return self

    def __deepcopy__(self: AnyNode, memo: Mapping[int, Any]) -> AnyNode:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which knows no mappings that are read-only."""
        return {k: _Attributes(v) if isinstance(v, MappingProxyType) else v for k, v in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        thawed = {k: MappingProxyType(v.values) if isinstance(v, _Attributes) else v for k, v in state.items()}
        vars(self).update(thawed)


def script_of(node: Any, **options: Any) -> str:
    """A node or a module as script text."""
    if Node._printer is None:
        raise PullbackError("no printer is loaded: import pullback.script first")
    return Node._printer(node, **options)


_DEEPEST, _MOST = 4, 8  # how deep an outline goes, and how many items of a sequence it shows


def _outline(node: Any) -> str:
    """The fields of a node and, not too deep, of those in it: :meth:`Node.script` is all of it."""
    return _outlined(node, _DEEPEST)


def _outlined(value: Any, depth: int) -> str:
    if isinstance(value, Node) and type(value).__repr__ is _outline:
        if not depth:
            return f"{type(value).__name__}(…)"
        shown = (f for f in fields(value) if f.repr)
        parts = [f"{f.name}={_outlined(getattr(value, f.name), depth - 1)}" for f in shown]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        parts = [_outlined(v, depth) for v in value[:_MOST]] + ["…"] * (len(value) > _MOST)
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return repr(value)


class _Attributes:
    """A read-only mapping in a pickle."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)


def set_printer(printer: Callable[..., str], page: Callable[..., str] | None = None) -> None:
    """Install the functions that turn a node into text and a module into HTML (``script`` does so on import)."""
    Node._printer, Node._page = printer, page


@dataclass(frozen=True)
class Closed:
    """A part of a structure that has no free symbols: those inside correspond whatever surrounds it."""

    node: Any


class Symbol(Node):
    """A node that is a name plus identity (variables, buffers): structural equality maps one to the other."""


def structure(node: Any) -> Iterator[tuple[str, Any]]:
    """The structural fields of a node: all dataclass fields but the span and those marked ``compare=False``."""
    for name in structural_fields(type(node)):
        yield name, getattr(node, name)


@cache
def structural_fields(kind: type) -> tuple[str, ...]:
    """The names of a class's structural fields."""
    return tuple(item.name for item in fields(kind) if item.compare)


def structural_equal(a: Any, b: Any, map_free_vars: bool = True) -> bool:
    """Whether two nodes, modules or containers of nodes have the same structure.

    Symbols correspond one to one, by first occurrence, inside the node that binds them; spans and the names of symbols
    do not count. Symbols that nothing binds correspond as well, unless ``map_free_vars=False``: such a one is equal
    only to itself.

    Args:
        a: a node, a module, or a list, tuple or mapping of them.
        b: what it is compared with.
        map_free_vars: whether symbols that nothing binds correspond.

    Returns:
        whether they have the same structure.

    Examples:
        >>> from pullback.ir import structural_equal
        >>> n, m = relax.Var("n", R.Tensor((2,), "float32")), relax.Var("m", R.Tensor((2,), "float32"))
        >>> structural_equal(R.exp(n), R.exp(m)), structural_equal(n, m, map_free_vars=False)
        (True, False)
    """
    return _Comparer(map_free_vars).equal(a, b, _ROOT) is None


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = True) -> None:
    """Raise ``ValueError`` naming the first place where ``a`` and ``b`` differ, with both texts; ``map_free_vars`` as
    in :func:`structural_equal`.

    Args:
        a: a node, a module, or a list, tuple or mapping of them.
        b: what it is compared with.
        map_free_vars: whether symbols that nothing binds correspond.

    Raises:
        ValueError: where the structures differ.

    Examples:
        >>> from pullback.ir import assert_structural_equal
        >>> v = relax.Var("v", R.Tensor((2,), "float32"))
        >>> assert_structural_equal(R.exp(v), R.exp(v))
        >>> assert_structural_equal(R.exp(v), R.tanh(v))
        Traceback (most recent call last):
        ValueError: structures differ at root.Call.op.Op.name: 'relax.exp' against 'relax.tanh'
        ...
    """
    difference = _Comparer(map_free_vars).equal(a, b, _ROOT)
    if difference is not None:
        raise ValueError(f"structures differ at {difference}\n--- left\n{a}\n--- right\n{b}")


Path = tuple[Any, str]  # where a part stands: the path of what it is part of, and its place there
Triple = tuple[Any, Any, Path]  # two parts and where they stand


_ROOT: Path = (None, "root")


def _text(path: Path | None) -> str:
    """A path in words, written only where there is a difference: deep structures have long ones."""
    places = []
    while path is not None:
        path, place = path
        places.append(place)
    return "".join(reversed(places))


class _Comparer:
    """Walks two structures at once, without recursion: kernels nest deeply.

    :meth:`step` compares two parts: the text of a difference, or the pairs of sub-parts to compare next.
    """

    def __init__(self, map_free_vars: bool = True) -> None:
        self.forward: dict[int, Any] = {}
        self.backward: dict[int, Any] = {}
        self.bound: set[int] | None = None if map_free_vars else set()  # the symbols that something binds

    def equal(self, a: Any, b: Any, path: Path) -> str | None:
        """None, or the path of the first difference."""
        pending: list[Triple | Callable[[], None]] = [(a, b, path)]
        while pending:
            task = pending.pop()
            if callable(task):
                task()
                continue
            result = self.step(*task)
            if isinstance(result, str):
                return result
            pending.extend(reversed(result))
        return None

    def step(self, a: Any, b: Any, path: Path) -> str | list[Triple | Callable[[], None]]:
        if isinstance(a, Symbol) or isinstance(b, Symbol):
            return self.symbol(a, b, path)
        if isinstance(a, Closed) and isinstance(b, Closed):
            return _Comparer(self.bound is None).equal(a.node, b.node, path) or []
        if isinstance(a, Node) or hasattr(a, "structural_items"):
            if type(a) is not type(b):
                return f"{_text(path)}: {type(a).__name__} against {type(b).__name__}"
            if getattr(a, "shared", False):
                return self.graph(a, b, path)
            return self.binder(a, b, path) if getattr(a, "binder", None) else self.node(a, b, path)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return f"{_text(path)}: keys {sorted(map(str, a))} against {sorted(map(str, b))}"
            return [(a[k], b[k], (path, f"[{k!r}]")) for k in a]
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            if len(a) != len(b):
                return f"{_text(path)}: length {len(a)} against {len(b)}"
            return [(x, y, (path, f"[{i}]")) for i, (x, y) in enumerate(zip(a, b, strict=True))]
        array_a, array_b = as_array(a), as_array(b)
        if array_a is not None and array_b is not None and type(a) is type(b):
            same = array_a.dtype == array_b.dtype and array_a.shape == array_b.shape
            return [] if same and array_a.tobytes() == array_b.tobytes() else f"{_text(path)}: constants differ"
        if isinstance(a, float) and isinstance(b, float):
            return [] if repr(a) == repr(b) else f"{_text(path)}: {a!r} against {b!r}"  # NaN is NaN, -0.0 is not 0.0
        same = type(a) is type(b) and a == b
        return [] if same else f"{_text(path)}: {a!r} against {b!r}"

    def node(self, a: Any, b: Any, path: Path) -> list[Triple | Callable[[], None]]:
        items_a, items_b = node_items(a), node_items(b)
        if self.bound is not None:
            for node, items in ((a, items_a), (b, items_b)):
                begin = getattr(node, "binds", ()) or (getattr(node, "binder", None),)
                self.bound |= _symbols([value for key, value in items if key in begin])
        name = type(a).__name__
        return [(x, y, (path, f".{name}.{k}")) for (k, x), (_, y) in zip(items_a, items_b, strict=True)]

    def binder(self, a: Any, b: Any, path: Path) -> list[Triple | Callable[[], None]]:
        """A node that binds a symbol: inside it, the symbols of the two sides correspond anew."""
        x, y = id(getattr(a, a.binder)), id(getattr(b, b.binder))
        outer = self.forward.pop(x, None), self.backward.pop(y, None)

        def leave() -> None:
            for table, key, old in zip((self.forward, self.backward), (x, y), outer, strict=True):
                table.pop(key, None)
                if old is not None:
                    table[key] = old

        return [*self.node(a, b, path), leave]

    def graph(self, a: Any, b: Any, path: Path) -> str | list[Triple | Callable[[], None]]:
        """Nodes of a graph correspond one to one, and are compared once."""
        if id(a) in self.forward or id(b) in self.backward:
            ok = self.forward.get(id(a)) is b and self.backward.get(id(b)) is a
            return [] if ok else f"{_text(path)}: a value that is used twice against two that are equal"
        self.forward[id(a)], self.backward[id(b)] = b, a
        return self.node(a, b, path)

    def symbol(self, a: Any, b: Any, path: Path) -> str | list[Triple | Callable[[], None]]:
        if type(a) is not type(b):
            return f"{_text(path)}: {type(a).__name__} against {type(b).__name__}"
        if id(a) in self.forward or id(b) in self.backward:
            ok = self.forward.get(id(a)) is b and self.backward.get(id(b)) is a
            return [] if ok else f"{_text(path)}: {a.name} against {b.name}"
        if self.bound is not None and a is not b and not {id(a), id(b)} <= self.bound:
            return f"{_text(path)}: {a.name} against {b.name}, which nothing binds"
        self.forward[id(a)], self.backward[id(b)] = b, a
        return self.node(a, b, path)


def _symbols(parts: Any) -> set[int]:
    """The symbols in a structure, and in their types."""
    found: set[int] = set()
    rest = [parts]
    while rest:
        part = rest.pop()
        if isinstance(part, Symbol):
            if id(part) in found:
                continue
            found.add(id(part))
        if isinstance(part, Node) or hasattr(part, "structural_items"):
            rest += [value for _, value in node_items(part)]
        elif isinstance(part, (tuple, list)):
            rest += part
    return found


def as_array(value: Any) -> np.ndarray | None:
    """The elements of an array, a NumPy scalar or a runtime tensor."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return np.asarray(value.numpy()) if hasattr(value, "numpy") and not isinstance(value, Node) else None


def remembered(ask: Callable[[AnyNode], Answer]) -> Callable[[AnyNode], Answer]:
    """``ask``, a question about a node, asked once while the node lives: nodes do not change."""
    answers: WeakKeyDictionary[AnyNode, Answer] = WeakKeyDictionary()
    missing: Any = object()

    @functools.wraps(ask)
    def answer(node: AnyNode) -> Answer:
        known = answers.get(node, missing)
        if known is missing:
            known = answers[node] = ask(node)
        return known

    return answer


def node_items(node: Any) -> list[tuple[str, Any]]:
    """Structural fields of a node in comparison order: binders come before what they bind."""
    custom = getattr(node, "structural_items", None)
    return custom() if custom is not None else list(structure(node))
