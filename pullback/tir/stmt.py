"""Statements and functions of the loop IR: the whole grammar.

    s ::= For(var, extent, body, kind)    var from 0 to extent; kind: serial | parallel | vectorized | unrolled
        | Let(var, e, body)               var is e in body
        | Allocate(buffer, body)          a local or workspace buffer, contents undefined
        | If(e, s, s?)
        | BufferStore(buffer, e, e…)
        | Prefetch(buffer, e…, kind)    the element is to be read (or written) soon; nothing changes
        | PackedCall(name, buffers…, buffers…, buffer)    a registered function; it is all of a kernel
        | Collective(kind, buffers…, buffers…, buffer?, …)    what ranks compute together begins; all of a kernel
        | Await(buffer, buffers…, buffers…, buffers…)    it is done; all of a kernel
        | Seq(s…)
        | KernelCall(name, buffers…, e…)  host functions only, as all that follow
        | HostCall(name, buffers…, rows…, arena)  stop with the status of another host function if that is not 0
        | While(e, s)                     as long as e
        | Check(buffer, code)             stop with status ``code`` if buffer[0] is false
        | Stop(code)                      stop with that status
        | Box(handle, buffers…, heap, kind, code)  copy buffers to new memory, whose address is the handle's value
        | Unbox(handle, buffers…, kind, code)  copy what was put there to buffers; zeros if the address is 0
        | Release(heap, mark)             give back what the heap has grown by since it was marked
        | Recur(name, buffers…, heap, …)  a HostCall by a recursive function, one call deeper

    f ::= PrimFunc(name, params, body, attrs)      params: buffers, then scalar variables

``parallel``: iterations are independent tasks, in any order, by any number of threads; never inside another parallel
or vectorized loop. ``vectorized``: iterations are independent lanes, executed statement by statement (the first
statement for all lanes, then the second); the loop holds no loops but unrolled ones. ``unrolled``: constant extent.

A *heap* is a buffer of HEAP_WORDS numbers, by which the runtime knows memory that grows while a host function runs. It
is two of ``pb_heap`` of ``rt.h``, one for boxes, and from number LEVELS on one for the arenas of recursive functions;
number DEPTH says how many calls of these are inside of one another. The first number is a *mark*: what it was, given to
Release, takes the boxes back there. A buffer of scope ``heap`` belongs to the function that names it: empty when that
begins, and given back however it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pullback.ir.digest import structural_digest
from pullback.ir.errors import DTypeError, InternalError, UserError
from pullback.ir.module import GLOBAL_SYMBOL, without_symbol
from pullback.ir.node import Node, made_quickly
from pullback.tir.description import without_description
from pullback.tir.expr import ADDRESS, Buffer, PrimExpr, Var, as_expr, check_indices, const

FLUSH_SUBNORMALS = "flush_subnormals"  # an attribute of host functions, and of the modules that they are made from
COLLECTIVE = "collective"  # an attribute of kernels: they start a collective, wait for one, or do the whole of it
LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled")
PREFETCH_KINDS = ("read", "write")
HEAP_WORDS, LEVELS, DEPTH = 16, 8, 12


@made_quickly
@dataclass(frozen=True, eq=False)
class Stmt(Node):
    """Base of statements."""


@made_quickly
@dataclass(frozen=True, eq=False)
class For(Stmt):
    binder = "var"

    var: Var
    extent: PrimExpr
    body: Stmt
    kind: str = "serial"

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", as_expr(self.extent))
        if self.kind not in LOOP_KINDS:
            raise InternalError(f"unknown loop kind {self.kind!r}")


@made_quickly
@dataclass(frozen=True, eq=False)
class Let(Stmt):
    binder = "var"

    var: Var
    value: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        if self.var.dtype != self.value.dtype:
            raise DTypeError(f"let {self.var.name}: {self.var.dtype} = {self.value.dtype}")


@made_quickly
@dataclass(frozen=True, eq=False)
class Allocate(Stmt):
    binder = "buffer"

    buffer: Buffer
    body: Stmt


@made_quickly
@dataclass(frozen=True, eq=False)
class If(Stmt):
    condition: PrimExpr
    then: Stmt
    otherwise: Stmt | None = None


@made_quickly
@dataclass(frozen=True, eq=False)
class BufferStore(Stmt):
    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        is_bool = isinstance(self.value, bool) and self.buffer.dtype == "bool"
        value = const(self.value, "bool") if is_bool else as_expr(self.value, self.buffer.dtype)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "indices", tuple(as_expr(i) for i in self.indices))
        if self.value.dtype != self.buffer.dtype:
            raise DTypeError(
                f"storing {self.value.dtype} in {self.buffer.name}, which holds {self.buffer.dtype}",
                hint='convert it: T.cast("float32", value) has the buffer\'s dtype',
            )
        check_indices(self.buffer, self.indices)


@made_quickly
@dataclass(frozen=True, eq=False)
class Prefetch(Stmt):
    """A hint: bring the line of memory with this element into the nearest cache, to be read, or written."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    kind: str = "read"

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(as_expr(i) for i in self.indices))
        check_indices(self.buffer, self.indices)
        if self.kind not in PREFETCH_KINDS:
            raise InternalError(f"unknown kind of prefetch {self.kind!r}: it is one of {', '.join(PREFETCH_KINDS)}")


@made_quickly
@dataclass(frozen=True, eq=False)
class PackedCall(Stmt):
    """Run the function that is registered under ``name`` (``runtime/packed.py``): it reads the inputs and fills the
    outputs. ``flag`` (bool, one element) says whether it did. It is all of a kernel."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    flag: Buffer


@made_quickly
@dataclass(frozen=True, eq=False)
class Collective(Stmt):
    """Begin a collective of ``runtime/collectives.py``: the ranks give the buffers ``given``, and have those
    ``received`` when ``ticket`` (int64, one element) was awaited; without one they have them when it is done.

    ``elements``: of each whole array; ``shards``: buffers that are given in place of one; ``ranks``: how many there
    have to be, 0 for any number.
    """

    kind: str
    given: tuple[Buffer, ...]
    received: tuple[Buffer, ...]
    ticket: Buffer | None
    elements: tuple[int, ...]
    reduction: str = "sum"
    root: int = 0
    shards: int = 1
    ranks: int = 0


@made_quickly
@dataclass(frozen=True, eq=False)
class Await(Stmt):
    """Wait until a collective is done, of which ``given`` may change then, and copy what it ``received`` to the buffers
    ``targets``, which may be the same."""

    ticket: Buffer
    given: tuple[Buffer, ...]
    received: tuple[Buffer, ...]
    targets: tuple[Buffer, ...]


@made_quickly
@dataclass(frozen=True, eq=False)
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@made_quickly
@dataclass(frozen=True, eq=False)
class KernelCall(Stmt):
    """Run the PrimFunc ``name`` of the module on these buffers and scalars, the values of its scalar parameters."""

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[PrimExpr, ...] = ()


@made_quickly
@dataclass(frozen=True, eq=False)
class Check(Stmt):
    """Leave the host function with status ``code`` when ``buffer[0]`` (bool, one element) is false."""

    buffer: Buffer
    code: int


@made_quickly
@dataclass(frozen=True, eq=False)
class HostCall(Stmt):
    """Run the host function ``name`` of the module on these buffers and this arena; leave with its status if that is
    not 0.

    ``rows``, if there are any: one number for each buffer, which is cut into pieces as large as what the callee takes
    in its place, and the callee gets the piece of that number.
    """

    name: str
    buffers: tuple[Buffer, ...]
    rows: tuple[PrimExpr, ...] = ()
    arena: Buffer | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(as_expr(r) for r in self.rows))
        if self.rows and len(self.rows) != len(self.buffers):
            raise InternalError(f"{self.name}: {len(self.rows)} rows of {len(self.buffers)} buffers")


@made_quickly
@dataclass(frozen=True, eq=False)
class While(Stmt):
    """``body`` as long as the condition, which is computed anew each time, is true. The loads in it see what the body
    wrote."""

    condition: PrimExpr
    body: Stmt


@made_quickly
@dataclass(frozen=True, eq=False)
class Stop(Stmt):
    """Leave the host function with status ``code``."""

    code: int


@made_quickly
@dataclass(frozen=True, eq=False)
class Box(Stmt):
    """Copy the buffers, one after another, to new memory of the heap, and store its address in the handle, one number
    of type ADDRESS. ``kind`` is a number that says what they are, and lies there too. Leave the host function with
    status ``code`` where there is no memory."""

    handle: Buffer
    fields: tuple[Buffer, ...]
    heap: Buffer
    kind: int
    code: int


@made_quickly
@dataclass(frozen=True, eq=False)
class Unbox(Stmt):
    """Copy what a Box of this kind has put where the handle says to the buffers; fill them with zeros where the handle
    is 0. Leave the host function with status ``code`` where there is a box of another kind."""

    handle: Buffer
    fields: tuple[Buffer, ...]
    kind: int
    code: int


@made_quickly
@dataclass(frozen=True, eq=False)
class Release(Stmt):
    """Take a heap back to where it was when its first number was that in ``mark``: no box made since is read again."""

    heap: Buffer
    mark: Buffer


@made_quickly
@dataclass(frozen=True, eq=False)
class Recur(Stmt):
    """Run a host function as a call of a recursive function: on the buffers, and on ``nbytes`` of the heap for an
    arena, which are given back when it has run.

    It is one call deeper than the heap says: leave with status ``too_deep`` if that is more than ``most`` calls, with
    ``code`` where there is no memory, with the callee's status if that is not 0.
    """

    name: str
    buffers: tuple[Buffer, ...]
    heap: Buffer
    nbytes: int
    most: int
    too_deep: int
    code: int


def heap_buffer(scope: str = "global") -> Buffer:
    """A heap: by default the parameter of a host function that others call with theirs."""
    return Buffer("heap", (HEAP_WORDS,), ADDRESS, scope)


@made_quickly
@dataclass(frozen=True, eq=False)
class PrimFunc(Node):
    """A function over buffers. Distinct buffer parameters never overlap in memory.

    Attribute ``global_symbol``: its name, of one that people wrote and that is not private; no part of the structure.
    Attribute ``kind``: ``kernel`` (the default) or ``host`` (its body holds KernelCall, Check and the like). ``inner``:
    a host function that only others of its module call; it leaves no trace. ``streamed``: the
    numbers of parameters that are only written, and had better not take the place of other things in the caches.
    ``flush_subnormals``: a host function and its kernels take subnormal numbers for zeros, where the CPU can.
    ``poison``: memory of a host function's heap is filled with 0xFF bytes when it is given back.
    Attribute ``schedule``: a :class:`Description`, what a schedule chose; no part of the structure either.
    """

    binds = ("params",)

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))
        numbers = self.attrs.get("streamed", ())
        buffers = [k for k, p in enumerate(self.params) if isinstance(p, Buffer)]
        if not isinstance(numbers, (tuple, list)) or any(k not in buffers for k in numbers):
            raise UserError(
                f"{self.name}: the attribute 'streamed' names buffers by their numbers as parameters, a tuple out of "
                f"{tuple(buffers)}: it is {numbers!r}", span=self.span,
                hint="leave it out: the compiler knows what streams",
            )  # fmt: skip

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @cached_property
    def digest(self) -> bytes:
        """What it computes, the same in every process: its name does not count."""
        return structural_digest(self)

    def renamed(self, name: str) -> PrimFunc:
        """The same function under another name."""
        attrs = {**self.attrs, GLOBAL_SYMBOL: name} if GLOBAL_SYMBOL in self.attrs else self.attrs
        result = replace(self, name=name, attrs=attrs)
        if "digest" in self.__dict__:  # known: it is the same
            result.__dict__["digest"] = self.digest
        return result

    def structural_items(self) -> list[tuple[str, Any]]:
        attrs = without_description(without_symbol(self.attrs))
        return [("params", self.params), ("body", self.body), ("attrs", attrs)]


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after another: nested sequences are flattened, None is left out."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def store(buffer: Buffer, indices: Any, value: Any) -> BufferStore:
    indices = indices if isinstance(indices, (tuple, list)) else (indices,)
    return BufferStore(buffer, value, tuple(indices))


def loop(name: str, extent: Any, body: Any, kind: str = "serial") -> Stmt:
    """``for name in kind(extent): body(var)``; an extent of 1 substitutes 0 and drops the loop."""
    extent = as_expr(extent)
    if getattr(extent, "value", None) == 1 and kind != "parallel":
        return body(as_expr(0))
    var = Var(name)
    return For(var, extent, body(var), kind)
