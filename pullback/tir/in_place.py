"""In-place variants of kernels: one parameter for an input and an output that share their memory.

An output may be written over an input when no element is read after it has been written. The proof, for every read and
every store: take the loops around both.

    for i in T.parallel(n):                  one iteration reads and writes row i
        for j in range(m): … source[i, j]    iterations of the common loops (here i) touch different elements, and
        for j in range(m): target[i, j] = …  within one iteration the read comes before the store, or is of another
                                             element

    for b in range(n): read row b + 2, write row b    a serial loop may also write what an earlier iteration has read

Or their places are apart in whatever iterations: what loops over a rest of elements does is no concern of those before.
A loop of which both need one certain iteration counts as that one: results that are stored in the last of its rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.node import remembered
from pullback.tir.expr import Binary, Buffer, BufferLoad, IntImm, PrimExpr, Var
from pullback.tir.polynomial import Polynomial
from pullback.tir.stmt import Await, BufferStore, For, If, Let, PrimFunc, Seq, Stmt
from pullback.tir.visitor import Substitute, children, distinct, substitute

_Path = tuple[tuple[Stmt, int], ...]


@dataclass(frozen=True)
class _Access:
    """A read or a store with the statements around it: loops, and which part of every sequence or branch it is in."""

    indices: tuple[Polynomial, ...]
    path: _Path


@dataclass(frozen=True)
class _Digit:
    """``v // divisor % modulus`` of a loop variable; without a modulus, ``v // divisor``."""

    var: Var
    divisor: int = 1
    modulus: int | None = None

    def count(self, extent: int) -> int:
        """How many values it takes, from 0 on."""
        count = -(-extent // self.divisor)
        return count if self.modulus is None else min(count, self.modulus)


class _Accesses:
    """The reads of a kernel's parameters, and the stores to them."""

    def __init__(self, function: PrimFunc) -> None:
        self.reads: dict[Buffer, list[_Access]] = {buffer: [] for buffer in function.buffers}
        self.stores: dict[Buffer, list[_Access]] = {buffer: [] for buffer in function.buffers}
        self._visit(function.body, {}, ())

    def _visit(self, node: Stmt, lets: dict[Var, PrimExpr], path: _Path) -> None:
        """Note what a statement does, bound variables in indices replaced by their values."""
        if isinstance(node, BufferStore):
            for part in (*node.indices, node.value):
                self._note_reads(part, lets, path)
            self._note(self.stores, node, lets, path)
        elif isinstance(node, Let):
            self._note_reads(node.value, lets, path)
            inner = {**lets, node.var: substitute(node.value, lets)} if node.var.dtype == "int64" else lets
            self._visit(node.body, inner, path)
        elif isinstance(node, If):
            self._note_reads(node.condition, lets, path)
            for k, branch in enumerate((node.then, node.otherwise)):
                if branch is not None:
                    self._visit(branch, lets, (*path, (node, k)))
        elif isinstance(node, (Seq, For)):
            for k, step in enumerate(node.stmts if isinstance(node, Seq) else (node.body,)):
                self._visit(step, lets, (*path, (node, k)))
        else:
            for child in children(node):
                if isinstance(child, Stmt):
                    self._visit(child, lets, path)
                else:
                    self._note_reads(child, lets, path)

    def _note_reads(self, expr: PrimExpr, lets: dict[Var, PrimExpr], path: _Path) -> None:
        for node in distinct(expr):
            if isinstance(node, BufferLoad):
                self._note(self.reads, node, lets, path)

    @staticmethod
    def _note(
        found: dict[Buffer, list[_Access]], node: BufferLoad | BufferStore, lets: dict[Var, PrimExpr], path: _Path
    ) -> None:
        if node.buffer in found:
            indices = (substitute(i, lets) if lets else i for i in node.indices)
            found[node.buffer].append(_Access(tuple(map(Polynomial.of, indices)), path))


@remembered
def _accesses(function: PrimFunc) -> _Accesses:
    """Those of a kernel, which is asked about many pairs of its parameters."""
    return _Accesses(function)


def may_share(function: PrimFunc, source: Buffer, target: Buffer) -> bool:
    """Whether ``target`` may be written over ``source``: no element is read after it, or one of another iteration that
    may run at the same time, has been written. Not one that is never written, being empty: nothing would be saved."""
    if source.shape != target.shape or source.dtype != target.dtype:
        return False
    if isinstance(function.body, Await):  # a whole buffer is copied, if it has to be
        return (source, target) in zip(function.body.received, function.body.targets, strict=True)
    found = _accesses(function)
    stores = found.stores[target]
    return bool(stores) and not found.reads[target] and all(_safe(r, s) for r in found.reads[source] for s in stores)


def _safe(read: _Access, store: _Access) -> bool:
    """Whether the element that is read has not been written: where both may touch one, loop by loop from the outermost,
    they do so in the same iteration, or in a serial loop the store in a later one."""
    if _apart(read, store, set()):
        return True
    loops, extents = _common(read, store)[0], _extents(read, store)
    if extents is None:
        return False
    differences = _differences(read, store, {node.var for node in loops}, extents)
    if differences is None:
        return True
    same, fixed = [d for d, (least, most) in differences.items() if least == most == 0], _fixed(read, store)
    for node in loops:
        if node.var in fixed or _determined(node.var, extents[node.var], same):
            continue
        _, most = differences.get(_Digit(node.var), (0, 1))
        if most > 0 or node.kind not in ("serial", "unrolled"):
            return False
        if most < 0:
            return True
    return _reads_first(read, store) or _apart(read, store, {node.var for node in loops})


def share(function: PrimFunc, name: str, pairs: dict[Buffer, Buffer]) -> PrimFunc:
    """The kernel with each target of ``pairs`` (target → source) replaced by its source and dropped as parameter.

        def k(x, y): y[i] = x[i] + 1        →        def k_in_place(x): x[i] = x[i] + 1

    Checks: ``may_share`` holds of each pair, in the order in which they are taken.
    """
    body = Substitute(buffers=pairs).stmt(function.body)
    params, attrs = tuple(p for p in function.params if p not in pairs), dict(function.attrs)
    streamed = [function.params[k] for k in attrs.pop("streamed", ())]
    numbers = tuple(params.index(p) for p in streamed if p in params)
    return PrimFunc(name, params, body, attrs | ({"streamed": numbers} if numbers else {}))


def _common(a: _Access, b: _Access) -> tuple[list[For], int]:
    """The loops around both accesses, and the length of the part of their paths that is the same."""
    length = 0
    for (x, i), (y, j) in zip(a.path, b.path, strict=False):
        if x is not y or i != j:
            break
        length += 1
    return [n for n, _ in a.path[:length] if isinstance(n, For)], length


def _reads_first(read: _Access, store: _Access) -> bool:
    """Whether, in one iteration of the common loops, the read comes before the store, or only one of them happens."""
    _, length = _common(read, store)
    if length == len(read.path) or length == len(store.path):
        return True  # the read is part of the store, or of a condition or bound value around it
    (node, i), (_, j) = read.path[length], store.path[length]
    return isinstance(node, If) or i < j


def _apart(read: _Access, store: _Access, common: set[Var]) -> bool:
    """Whether the two never touch the same element while the variables of ``common`` loops are the same for both: along
    some axis, one index stays below the other."""
    extents = _extents(read, store)
    if extents is None:
        return False
    for a, b in zip(read.indices, store.indices, strict=True):
        x, y = _split(a, common, extents), _split(b, common, extents)
        if x is not None and y is not None and x[0] == y[0] and (x[2] < y[1] or y[2] < x[1]):
            return True
    return False


def _extents(read: _Access, store: _Access) -> dict[Var, int] | None:
    """How far the loops around two accesses run at the most; None where that is unknown."""
    extents: dict[Var, int] = {}
    for node in (n for n, _ in (*read.path, *store.path) if isinstance(n, For)):
        extent = _most(node.extent)
        if extent is None or extents.setdefault(node.var, extent) != extent:
            return None
    return extents


def _most(extent: PrimExpr) -> int | None:
    """The greatest value of an extent: a number, or ``min`` with a number."""
    if isinstance(extent, IntImm):
        return extent.value
    if isinstance(extent, Binary) and extent.kind == "min":
        return min((e.value for e in (extent.a, extent.b) if isinstance(e, IntImm)), default=None)
    return None


def _differences(
    read: _Access, store: _Access, common: set[Var], extents: dict[Var, int]
) -> dict[_Digit, tuple[int, int]] | None:
    """Where the read and the store touch one element: of the digits of common loop variables the least and the greatest
    difference, the read's less the store's, as far as the axes tell. None: they never do.

    Along an axis the two indices are Σ cₖ·dₖ + rest, where the dₖ are digits, and each rest lies in an interval. So
    Σ cₖ·δₖ is the store's rest less the read's, with |δₖ| less than how many values the digit takes.
    """
    found: dict[_Digit, tuple[int, int]] = {}
    for a, b in zip(read.indices, store.indices, strict=True):
        x, y = _split(a, common, extents), _split(b, common, extents)
        if x is None or y is None or x[0] != y[0]:
            continue  # nothing follows from this axis
        counts = {digit: digit.count(extents[digit.var]) for digit in x[0]}
        digits = sorted(((abs(c), c, d, counts[d] - 1) for d, c in x[0].items()), key=lambda digit: digit[0])
        differences = _solved([digit[1:] for digit in digits], y[1] - x[2], y[2] - x[1])
        if differences is None:
            return None
        for digit, (least, most) in differences.items():
            before = found.get(digit, (least, most))
            found[digit] = (max(least, before[0]), min(most, before[1]))
    return found


_FEW = 3  # differences of a digit that are tried one by one


def _solved(digits: list[tuple[int, _Digit, int]], low: int, high: int) -> dict[_Digit, tuple[int, int]] | None:
    """The least and the greatest δₖ with ``low`` ≤ Σ cₖ·δₖ ≤ ``high`` and |δₖ| ≤ mₖ, for digits (cₖ, digit, mₖ) with
    ascending |cₖ|, or what contains them; None where there are none."""
    if not digits:
        return {} if low <= 0 <= high else None
    *smaller, (factor, digit, most) = digits
    reach = sum(abs(c) * m for c, _, m in smaller)
    first, last = (low - reach, high + reach) if factor > 0 else (-high - reach, reach - low)
    least, greatest = max(-most, -(-first // abs(factor))), min(most, last // abs(factor))
    if greatest - least >= _FEW:
        return {d: (-m, m) for _, d, m in smaller} | {digit: (least, greatest)}
    found: dict[_Digit, tuple[int, int]] = {}
    for delta in range(least, greatest + 1):
        others = _solved(smaller, low - factor * delta, high - factor * delta)
        for d, (a, b) in (others | {digit: (delta, delta)} if others is not None else {}).items():
            before = found.get(d, (a, b))
            found[d] = (min(a, before[0]), max(b, before[1]))
    return found or None


def _fixed(read: _Access, store: _Access) -> set[Var]:
    """Variables that have one certain value wherever the two accesses happen: those of a branch ``if v == number``."""
    _, length = _common(read, store)
    conditions = [n.condition for n, k in read.path[:length] if isinstance(n, If) and k == 0]
    equal = [c for c in conditions if isinstance(c, Binary) and c.kind == "eq" and isinstance(c.b, IntImm)]
    return {c.a for c in equal if isinstance(c.a, Var)}


def _determined(var: Var, extent: int, digits: list[_Digit]) -> bool:
    """Whether the digits of a variable between 0 and ``extent`` tell its value."""
    reached = 1  # the value is known modulo this number
    for digit in sorted((d for d in digits if d.var is var), key=lambda d: d.divisor):
        if reached % digit.divisor:
            return False
        if digit.modulus is None:
            return True
        if digit.divisor == reached:
            reached *= digit.modulus
    return reached >= extent


def _split(index: Polynomial, common: set[Var], extents: dict[Var, int]) -> tuple[dict[_Digit, int], int, int] | None:
    """An index as factors of digits of common variables, and the least and greatest value of the rest."""
    factors: dict[_Digit, int] = {}
    low = high = 0
    for monomial, factor in index.terms.items():
        if not monomial:
            low, high = low + factor, high + factor
            continue
        digit = _digit(index.atoms[monomial[0]]) if len(monomial) == 1 else None
        if digit is None or digit.var not in extents:
            return None
        if digit.var in common:
            factors[digit] = factor
        else:
            most = factor * (digit.count(extents[digit.var]) - 1)
            low, high = low + min(0, most), high + max(0, most)
    return factors, low, high


def _digit(expr: PrimExpr) -> _Digit | None:
    if isinstance(expr, Var):
        return _Digit(expr)
    if not isinstance(expr, Binary) or expr.kind not in ("floordiv", "floormod") or not isinstance(expr.b, IntImm):
        return None
    inner, number = _digit(expr.a), expr.b.value
    if inner is None or number <= 0 or (inner.modulus is not None and inner.modulus % number):
        return None
    if expr.kind == "floormod":
        return _Digit(inner.var, inner.divisor, number)
    return _Digit(inner.var, inner.divisor * number, inner.modulus and inner.modulus // number)
