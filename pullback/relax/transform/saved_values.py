"""What a region saves for its adjoint: as few bytes as will do.

    h_after = R.tanh(R.matmul(h, w) + x)        saved: h, which the product's adjoint reads, and h_after, of which that
                                                of tanh is made; not the product, and not the sum

The values that need no adjoint are the vertices of a graph, and those that the adjoint reads must be saved, or computed
again from what is saved: a vertex cut (``min_cut.py``), as ``Rematerialize`` finds one for straight code. What is
elementwise is computed again. Values that are in memory anyway cost nothing. Of equal cuts the one nearest to the
adjoint is taken, from which the least is to be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Call, Var
from pullback.relax.matching import bind_sizes
from pullback.relax.mutator import ExprMutator
from pullback.relax.recursion import outer_labels
from pullback.relax.regions import is_control
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, symbolic_vars
from pullback.relax.transform.compose import is_cheap, is_elementwise, moves_elements
from pullback.relax.transform.joint_region import Joint
from pullback.relax.transform.min_cut import ENDLESS, min_vertex_cut
from pullback.relax.transform.structure import once
from pullback.tir.expr import nbytes

_SIZE = 64  # what a size counts for that is not known yet


def saved_values(
    joint: Joint, free: Collection[Any], following: Mapping[Var, Any], all_again: bool = False
) -> set[Any]:
    """The variables from which the adjoint computes what it reads, parameters among them.

    ``free``: those that are in memory anyway. ``following``: what the next step gets for a parameter; the adjoint knows
    it where that parameter is saved, as it goes the other way. ``all_again``: whatever it is, it is computed again.
    """
    graph, known = _Graph(joint, all_again), set(free)
    while True:
        saved = graph.cut(known)
        more = {r for p, r in following.items() if p in saved and isinstance(r, Var)} - known
        if not more:
            return saved
        known |= more


class _Graph:
    def __init__(self, joint: Joint, all_again: bool) -> None:
        self.joint, self.all_again = joint, all_again
        self.is_elementwise, self.is_cheap, self.moves = map(_question, (is_elementwise, is_cheap, moves_elements))
        adjoints = [a for a in joint.adjoints if a is not None]
        needed = joint.needed(adjoints)
        readers = [joint.named[v].value for v in needed if v in joint.later]
        self.wanted = {v for expr in (*adjoints, *readers) for v in used_vars(expr)} - joint.later
        inner = [v for v in joint.named if v in needed and v not in joint.later]
        self.vertices = [*joint.params, *inner]
        self.again = {v for v in inner if self.may_be_again(v)} | self.tuples()
        self.forward = joint.needed(joint.results)
        self.edges: dict[Var, list[Var]] = {}
        for var in self.again:
            for source in dict.fromkeys(used_vars(joint.named[var].value)):
                self.edges.setdefault(source, []).append(var)

    def may_be_again(self, var: Var) -> bool:
        value = self.joint.named[var].value
        if not isinstance(value, Call):
            return True
        if outer_labels(value):  # the function around is another one in its adjoint
            return False
        return self.all_again or (not is_control(value) and self.is_elementwise(value))

    def tuples(self) -> set[Var]:
        """The tuples that the adjoint reads as such, which nothing can save, with those that they are parts of."""
        rest, found = [v for v in self.wanted if _is_tuple(v) and v in self.joint.named], set()
        while rest:
            var = rest.pop()
            found.add(var)
            rest += [v for v in used_vars(self.joint.named[var].value) if _is_tuple(v) and v not in found]
        return found

    def cut(self, free: Collection[Var]) -> set[Var]:
        sources = [v for v in self.vertices if v not in self.again]
        return min_vertex_cut({v: self.weight(v, free) for v in self.vertices}, self.edges, sources, self.wanted)

    def weight(self, var: Var, free: Collection[Var]) -> int:
        """What it costs to save the value: its bytes, and a quarter more where it is cheap, and only the adjoint wants
        it."""
        if var in free:
            return 0
        if _is_tuple(var):  # its items are cut
            return ENDLESS
        value = self.joint.named[var].value if var in self.joint.named else None
        size = max(1, _nbytes(var.struct_info))
        if isinstance(value, Call) and var in self.again:
            if self.moves(value) and size >= max((_nbytes(a.struct_info) for a in value.args), default=0):
                return ENDLESS  # its argument is cut
            if var not in self.forward and self.is_cheap(value):
                return 5 * size
        return 4 * size


def _is_tuple(var: Var) -> bool:
    return isinstance(var.struct_info, TupleStructInfo)


def _nbytes(info: StructInfo) -> int:
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        return 0
    return math.prod(s if isinstance(s, int) else _SIZE for s in info.shape) * nbytes(info.dtype)


def _question(question: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The question, asked once of calls that do the same, and of calls with symbolic sizes, too."""
    return once(lambda call: _asked(question, call))


def _asked(question: Callable[[Any], bool], call: Call) -> bool:
    """The answer for the call, or for that with numbers in the place of symbolic sizes."""
    infos: Iterable[StructInfo] = [call.struct_info, *(v.struct_info for v in used_vars(call))]
    sizes = {size: _SIZE for info in infos for size in symbolic_vars(info)}
    if sizes:
        mutator = ExprMutator(sizes)
        mutator.env = {v: Var(v.name, bind_sizes(v.struct_info, sizes)) for v in used_vars(call)}
        try:
            call = mutator.expr(call)
        except UserError:  # not with these numbers
            return False
    return bool(question(call))
