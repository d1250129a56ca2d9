"""The adjoint of a stencil, as a stencil: each element gathers what the results around it give, where a loop over the
results would spread it.

    for i in range(n):                            for i in range(n): t[i + 2] = d_y[i] * a; u[i + 2] = d_y[i] * b
        d_x[i] += d_y[i] * a                      for i in range(n + 2): d_x[i] += t[i + 2] + u[i + 1] + t[i]
        d_x[i + 1] += d_y[i] * b           →
        d_x[i + 2] += d_y[i] * a

``t`` and ``u`` are 0 beside the range of i. Both loops have independent iterations, which the one that spreads has not
(Hückelheim et al., Automatic differentiation of parallel stencil loops, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.tir.expr import Buffer, IntImm, PrimExpr, Var, const
from pullback.tir.polynomial import Polynomial
from pullback.tir.static import number
from pullback.tir.stmt import For, Stmt, loop, seq, store
from pullback.tir.visitor import distinct, substitute

Place = tuple[PrimExpr, ...]


@dataclass(frozen=True)
class Part:
    """What a result gives to an element: the buffer and the place of that, and the number of the expression; equal
    numbers stand for equal expressions."""

    buffer: Buffer
    place: Place
    number: int


@dataclass(frozen=True)
class _Axis:
    """An index ``var + rest + constant``; without a variable of the nest, ``rest + constant``."""

    var: Var | None
    rest: str
    constant: int


@dataclass(frozen=True)
class _Group:
    """Parts that go to places of one buffer that differ by constants, along the axes that the loops run over."""

    parts: Sequence[Part]
    axes: Sequence[Sequence[_Axis]]  # of each part

    @property
    def buffer(self) -> Buffer:
        return self.parts[0].buffer

    def reach(self, var: Var) -> tuple[int, int]:
        """The least and the greatest constant along the axis of a variable."""
        found = [axis.constant for axes in self.axes for axis in axes if axis.var is var]
        return min(found), max(found)


@dataclass(frozen=True)
class Stencil:
    """A nest of loops over a stencil's results."""

    loops: Sequence[For]
    groups: Sequence[_Group]

    @property
    def extents(self) -> list[int]:
        return [number(f.extent) for f in self.loops]

    @cached_property
    def pads(self) -> list[int]:
        """How far parts are read beside the range, along each loop."""
        reaches = ([g.reach(f.var) for g in self.groups] for f in self.loops)
        return [max(high - low for low, high in found) for found in reaches]

    @cached_property
    def kept(self) -> dict[int, Buffer]:
        """Where parts are kept, by their numbers, with zeros around them."""
        shape = tuple(n + 2 * p for n, p in zip(self.extents, self.pads, strict=True))
        scope = "local" if len(shape) == 1 else "workspace"
        parts = {p.number: p for g in self.groups for p in g.parts}
        return {n: Buffer(f"part{k}", shape, p.buffer.dtype, scope) for k, (n, p) in enumerate(parts.items())}

    @property
    def place(self) -> Place:
        """Where a part is kept."""
        return tuple(f.var + p for f, p in zip(self.loops, self.pads, strict=True))

    def borders(self) -> Stmt:
        """The zeros beside a single loop's range."""
        (extent,), (pad,) = self.extents, self.pads
        zeros = []
        for buffer in self.kept.values():
            zero = const(0, buffer.dtype)
            for k in (*range(pad), *range(pad + extent, 2 * pad + extent)):
                zeros.append(store(buffer, (k,), zero))
        return seq(*zeros)

    def gather(self, kinds: Sequence[str]) -> Stmt:
        """The loops over the elements that get something; how each of them runs."""
        return seq(*(self._gather(g, kinds) for g in self.groups))

    def _gather(self, group: _Group, kinds: Sequence[str]) -> Stmt:
        reaches = [group.reach(f.var) for f in self.loops]
        sizes = [n + high - low for n, (low, high) in zip(self.extents, reaches, strict=True)]

        def nest(at: tuple[PrimExpr, ...]) -> Stmt:
            if len(at) < len(sizes):
                k = len(at)
                return loop(self.loops[k].var.name, sizes[k], lambda i: nest((*at, i)), kinds[k])
            first = {f.var: i for f, i in zip(self.loops, at, strict=True)}
            place = tuple(
                substitute(index, first) + (0 if axis.var is None else low_of[axis.var] - axis.constant)
                for index, axis in zip(group.parts[0].place, group.axes[0], strict=True)
            )
            total: PrimExpr = group.buffer[place]
            for part, axes in zip(group.parts, group.axes, strict=True):
                constants = {axis.var: axis.constant for axis in axes}
                back = zip(self.loops, at, self.pads, strict=True)
                total = (
                    total
                    + self.kept[part.number][tuple(i + (p + low_of[f.var] - constants[f.var]) for f, i, p in back)]
                )
            return store(group.buffer, place, total)

        low_of = {f.var: low for f, (low, _) in zip(self.loops, reaches, strict=True)}
        return nest(())


def nest_of(node: For) -> tuple[list[For], Stmt]:
    """Loops directly inside each other, and what the innermost one does."""
    loops = [node]
    while isinstance(loops[-1].body, For):
        loops.append(loops[-1].body)
    return loops, loops[-1].body


def stencil(loops: Sequence[For], target: Part, parts: Sequence[Part], names: Mapping[Var, PrimExpr]) -> Stencil | None:
    """The stencil of a nest whose only statement gives these parts from the adjoint at ``target``; None where it is
    none: elements get parts from one result each, their places do not differ by constants, or what is given might be
    given on."""
    if not all(isinstance(f.extent, IntImm) and f.extent.value > 0 for f in loops):
        return None
    variables = {f.var for f in loops}
    own = _axes(target.place, variables, names)
    groups: dict[object, list[tuple[Part, list[_Axis]]]] = {}
    for part in parts:
        axes = _axes(part.place, variables, names)
        if own is None or axes is None or (part.buffer is target.buffer and not _apart(own, axes)):
            return None
        key = (part.buffer, *((a.var, a.rest, a.constant if a.var is None else 0) for a in axes))
        groups.setdefault(key, []).append((part, axes))
    if all(len(found) == 1 for found in groups.values()):
        return None
    return Stencil(loops, [_Group(*zip(*found, strict=True)) for found in groups.values()])


def _axes(place: Place, variables: set[Var], names: Mapping[Var, PrimExpr]) -> list[_Axis] | None:
    """The axes of a place; None unless each variable is along one axis of its own."""
    axes = [_axis(index, variables, names) for index in place]
    known = [a for a in axes if a is not None]
    found = [a.var for a in known if a.var is not None]
    return known if len(known) == len(axes) and len(found) == len(variables) == len(set(found)) else None


def _axis(index: PrimExpr, variables: set[Var], names: Mapping[Var, PrimExpr]) -> _Axis | None:
    form = Polynomial.of(substitute(index, names))
    mine = [m for m in form.terms if any(_mentions(form.atoms[a], variables) for a in m)]
    if len(mine) > 1 or any(len(m) != 1 or form.terms[m] != 1 for m in mine):
        return None
    var = form.atoms[mine[0][0]] if mine else None
    if var is not None and not isinstance(var, Var):
        return None
    rest = Polynomial({m: c for m, c in form.terms.items() if m not in ((), *mine)}, form.atoms)
    return _Axis(var, rest.key, form.terms.get((), 0))


def _mentions(expr: PrimExpr, variables: set[Var]) -> bool:
    return any(n in variables for n in distinct(expr) if isinstance(n, Var))


def _apart(a: Sequence[_Axis], b: Sequence[_Axis]) -> bool:
    """Whether two places are others in all iterations: along an axis without a loop they differ by a constant."""
    pairs = zip(a, b, strict=True)
    return any(x.var is y.var is None and x.rest == y.rest and x.constant != y.constant for x, y in pairs)
