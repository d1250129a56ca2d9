"""FuseOps: ops that can be one kernel become one function.

    lv = R.matmul(x, w)                          @R.function(private=True)      # attribute primitive
    y = R.add(lv, b)               →             def fused_matmul_add(x, w, b): …
                                                 y = cls.fused_matmul_add(x, w, b)

Nothing here knows an op: a set of bindings may form a group when it leaves the graph free of cycles and a schedule
recognizes its tensor expressions. Ops that only move elements are copied into every reader that takes them. An
elementwise op waits for its reader, where joined with what it reads its elements would be written for nothing: if only
a reduction reads it, or if it is a tensor that is in memory in any case, with a smaller one that is broadcast.
Reductions of the same large value are joined, though none reads another: it is read once.
Nothing is joined across a view, though it moves no memory. One in the same shape stands there for that alone, and goes.
A call that gives a tuple and the items that are taken from it are together from the beginning.

How long this takes grows with the number of bindings: a group has a bounded number of ops, and an op of many operands,
such as a long concatenation, is a kernel by itself. Of the operands of such an op, those that are computed alike are
taken alike: one is declined for all of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import Emitter
from pullback.relax.op_calls import op_of
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.relax.transform.compose import (
    broadcasts,
    compose,
    contracts,
    has_te,
    is_alias,
    is_free,
    is_view,
    looks_at_values,
    reduces,
)
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.inline_functions import over_regions
from pullback.relax.transform.structure import once, structure
from pullback.schedule.choose import is_one_kernel
from pullback.schedule.group import Group, Machine

_MOST_OPS = 40  # of one group: beyond that compiling slows down and nothing is gained
_MOST_OPERANDS = 32  # of an op in a group with others: each of them would look at all of these again
_MOST_SIBLINGS = 16  # reductions after one of the same value that are tried with it


@dataclass(frozen=True)
class FuseOps(Pass):
    """Form groups in every function that is not primitive itself, for the schedules of the machine.

    Args:
        machine: what schedules know of the target; by default one with AVX-512.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((8, 8), "float32")):
        ...     return R.exp(a * 2.0 + 1.0)
        >>> module = relax.transform.FuseOps()(pullback.IRModule({"main": main}))
        >>> [name for name in module if name != "main"]
        ['fused_multiply_add_exp']

    Checks: shapes are numbers. A group is what one schedule takes as one kernel, leaves the graph free of cycles and
    has at most 40 ops; an op of more than 32 operands is in none. Functions that are primitive stay. An op alone stays
    a call.
    """

    machine: Machine = field(default_factory=Machine)

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if isinstance(function, Function) and not function.attrs.get("primitive"):
                result[name] = over_regions(function, module, lambda f: _Fusion(f, result, self.machine).rewrite())
        return result


@dataclass(eq=False)
class _Set:
    """Bindings that become one function: indices into the list of all bindings, and copies of free ones."""

    members: set[int]
    copies: set[int] = field(default_factory=set)


class _Reach:
    """How far the groups reach that begin at a number or before it. Each entry knows the furthest of those that begin
    at as many numbers up to its own as its lowest bit says (a Fenwick tree, numbered from 1)."""

    def __init__(self, count: int) -> None:
        self._furthest = [-1] * (count + 1)

    def add(self, first: int, last: int) -> None:
        """A group from ``first`` to ``last``."""
        k = first + 1
        while k < len(self._furthest) and self._furthest[k] < last:  # those above know one that goes as far already
            self._furthest[k] = last
            k += k & -k

    def of(self, number: int) -> int:
        """The last member of all groups that begin at ``number`` or before it; at least the number itself."""
        furthest, k = number, number + 1
        while k:
            furthest = max(furthest, self._furthest[k])
            k &= k - 1
        return furthest


class _Fusion:
    def __init__(self, function: Function, module: IRModule, machine: Machine) -> None:
        self.function, self.module, self.machine = function, module, machine
        self.bindings: list[Binding] = list(function.bindings)
        self.definition = {b.var: k for k, b in enumerate(self.bindings)}
        self.reads = [self._reads(b) for b in self.bindings]
        self.readers: list[set[int]] = [set() for _ in self.bindings]
        for k, sources in enumerate(self.reads):
            for s in sources:
                self.readers[s].add(k)
        self.returned = {self.definition[v] for v in used_vars(function.body.body) if v in self.definition}
        free, self.reduces, self.looks_at_values = once(is_free), once(reduces), once(looks_at_values)
        self.free = {k for k, b in enumerate(self.bindings) if free(b.value)}
        self.reach = _Reach(len(self.bindings))
        self.group_of = {k: _Set({k}) for k, b in enumerate(self.bindings)}
        for k in range(len(self.bindings)):
            if (call := self.taken_from(k)) is not None:
                self.adopt(_Set(self.group_of[call].members | {k}))
        self.waiting: set[int] = set()
        for k in reversed(range(len(self.bindings))):
            if self.waits(k):
                self.waiting.add(k)
        self.contracts = once(contracts)
        self.late: set[int] = set()
        for k in range(len(self.bindings)):
            if k not in self.waiting and self.is_late(k):
                self.late.add(k)
        self.waiting |= self.late
        self.known: dict[Hashable, bool] = {}
        self.composed: dict[Any, Any] = {}  # tensor expressions, most of them in many candidates
        self.of_stages: dict[object, Any] = {}  # and what schedules know of them

    def _reads(self, binding: Binding) -> list[int]:
        used = dict.fromkeys(used_vars(binding.value))
        return [self.definition[v] for v in used if v in self.definition]

    def taken_from(self, k: int) -> int | None:
        """The call of an op whose result the binding is an item of."""
        value = self.bindings[k].value
        source = value.tuple_value if isinstance(value, TupleGetItem) else None
        call = self.definition.get(source) if isinstance(source, Var) else None
        return call if call is not None and self.fusible(call) else None

    def fusible(self, k: int) -> bool:
        value = self.bindings[k].value
        few = len(self.reads[k]) <= _MOST_OPERANDS
        return few and has_te(value) and not is_view(value) and not self.looks_at_values(value)

    def joins(self, k: int) -> bool:
        """Whether the binding may be in a group with others."""
        return self.fusible(k) or self.taken_from(k) is not None

    def waits(self, k: int) -> bool:
        """Whether only a reduction to fewer elements reads the value, or one that waits itself. A reduction does not
        wait for another: they keep different axes."""
        if k in self.returned or len(self.readers[k]) != 1 or not self.fusible(k):
            return False
        if self.reduces(self.bindings[k].value):
            return False
        (reader,) = self.readers[k]
        return reader in self.waiting or (self.fusible(reader) and self.reduces(self.bindings[reader].value))

    def is_late(self, k: int) -> bool:
        """Whether the value costs its reader no more than to read it: a tensor that is in memory in any case, and a
        smaller one that is broadcast."""
        large = broadcasts(self.bindings[k].value)
        if large is None or k in self.returned or len(self.readers[k]) != 1:
            return False
        (reader,) = self.readers[k]
        source = self.definition.get(large)
        in_memory = source is None or source in self.returned or source in self.late or len(self.readers[source]) > 1
        return in_memory and self.fusible(reader) and not self.contracts(self.bindings[reader].value)

    # -- forming groups

    def form(self) -> None:
        for k in range(len(self.bindings)):
            if self.fusible(k):
                self.absorb(k)
        self.join_siblings()
        for k in self.late:
            if self.group_of[k].members <= self.late:  # the reader did not take it
                self.waiting -= self.group_of[k].members
                self.absorb(k)
        for k in sorted(self.moved()):
            self.put_together(k)

    def moved(self) -> set[int]:
        """The ops that only move elements, of those values that somebody reads in memory."""
        result = self.free & self.returned
        for group in sorted(set(self.group_of.values()), key=lambda g: max(g.members), reverse=True):
            if not group.members <= self.free or group.members & result:
                result |= self.external_reads(group) & self.free
        return result

    def put_together(self, k: int) -> None:
        """Join such an op with the call that gives all of its arguments, as items of its result."""
        calls = {self.taken_from(s) for s in self.reads[k]}
        call = calls.pop() if len(calls) == 1 else None
        if call is not None:
            group = self.group_of[call]
            merged = _Set(group.members | {k}, group.copies)
            if self.accepted(merged):
                self.adopt(merged)

    def absorb(self, k: int) -> None:
        """Join binding ``k`` with the groups of what it reads, the latest first."""
        pending = sorted(self.reads[k], reverse=True)
        declined: set[Hashable] = set()
        while pending:
            source = pending.pop(0)
            group = self.group_of[k]
            if source in group.members or not self.joins(source):
                continue
            if k in self.waiting and source not in self.waiting and source not in self.free:
                continue
            kind = self.kind(source, k)
            if kind in declined:
                continue
            if source in self.free and k not in self.free:
                merged = _Set(group.members, group.copies | {source})
                if self.accepted(merged):
                    self.adopt(merged)
                    pending = sorted({*pending, *self.reads[source]}, reverse=True)
            elif source not in self.free and k not in self.free:
                other = self.group_of[source]
                merged = _Set(group.members | other.members, group.copies | other.copies)
                if self.accepted(merged):
                    self.adopt(merged)
                    if source in self.waiting:  # its operands are now read here
                        pending = sorted({*pending, *self.external_reads(merged)}, reverse=True)
            if kind is not None and self.group_of[k] is group:
                declined.add(kind)

    def kind(self, source: int, reader: int) -> Hashable:
        """What is computed for one of many operands of the reader, which all play the same role; None for any other."""
        value = self.bindings[reader].value
        if not (isinstance(value, Call) and isinstance(value.op, Op) and value.op.signature.variadic):
            return None
        if source not in self.reads[reader]:
            return None
        members = {source} if source in self.free else self.group_of[source].members
        return structure((self.bindings[m] for m in sorted(members)), [self.bindings[source].var])

    def join_siblings(self) -> None:
        """Join reductions of the same large value, which is then read once."""
        siblings: dict[Var, list[int]] = {}
        for k, binding in enumerate(self.bindings):
            if self.fusible(k) and self.reduces(binding.value) and not self.contracts(binding.value):
                for source in self.largest_reads(self.group_of[k]):
                    siblings.setdefault(source, []).append(k)
        for sums in siblings.values():
            for n, one in enumerate(sums):
                for other in sums[n + 1 : n + 1 + _MOST_SIBLINGS]:
                    a, b = self.group_of[one], self.group_of[other]
                    if a is not b and len(a.members) + len(b.members) <= _MOST_OPS:
                        merged = _Set(a.members | b.members, a.copies | b.copies)
                        if self.accepted(merged):
                            self.adopt(merged)

    def largest_reads(self, group: _Set) -> list[Var]:
        """Of what a group reads from outside, values or parameters, the largest."""
        everything = sorted(group.members | group.copies)
        inside = {self.bindings[m].var for m in everything}
        reads = dict.fromkeys(v for m in everything for v in used_vars(self.bindings[m].value) if v not in inside)
        sizes = {v: math.prod(i.static_shape) for v in reads if isinstance(i := v.struct_info, TensorStructInfo)}
        return [v for v, size in sizes.items() if size == max(sizes.values())]

    def adopt(self, merged: _Set) -> None:
        for m in merged.members:
            self.group_of[m] = merged
        self.reach.add(min(merged.members), max(merged.members))

    def accepted(self, candidate: _Set) -> bool:
        """Whether the set is one kernel and leaves the graph acyclic."""
        everything = candidate.members | candidate.copies
        if len(everything) > _MOST_OPS:
            return False
        outputs = self.outputs(candidate)
        if any(isinstance(self.bindings[m].var.struct_info, TupleStructInfo) for m in outputs):
            return False
        if self.makes_cycle(candidate):
            return False
        return self.recognized(sorted(everything), outputs)

    def recognized(self, order: list[int], outputs: list[int]) -> bool:
        """Whether some schedule takes these bindings; asked once for those that do the same, as layers do."""
        key = structure((self.bindings[m] for m in order), [self.bindings[m].var for m in outputs])
        if key not in self.known:
            self.known[key] = self.asked(order, outputs)
        return self.known[key]

    def asked(self, order: list[int], outputs: list[int]) -> bool:
        bindings, results = [self.bindings[m] for m in order], [self.bindings[m].var for m in outputs]
        composer, tensors = compose(bindings, results, self.composed)
        distinct = len(set(tensors)) == len(tensors) and not any(t.is_placeholder for t in tensors)
        inputs = tuple(composer.inputs.values())
        return distinct and is_one_kernel(Group(inputs, tuple(tensors), self.machine, of_stages=self.of_stages))

    def outputs(self, group: _Set) -> list[int]:
        """Members that somebody outside the group reads."""
        return sorted(
            m for m in group.members if m in self.returned or any(not self.takes(r, group) for r in self.readers[m])
        )

    def takes(self, reader: int, group: _Set) -> bool:
        """Whether all that ``reader`` does happens inside ``group``."""
        if reader in group.members:
            return True
        if reader not in group.copies or reader in self.returned:
            return False
        return all(self.takes(r, group) for r in self.readers[reader])

    def makes_cycle(self, candidate: _Set) -> bool:
        """Whether a path leaves the set and comes back to something that it (or a copy in it) reads from outside.

        Bindings only read earlier ones, so a path comes back from a later one through a group on both sides alone. No
        path comes back from beyond ``end``: no group has members on both sides of it.
        """
        wanted = self.external_reads(candidate)
        end, further = -1, max(wanted, default=-1)
        while further > end:
            end, further = further, self.reach.of(further)
        seen = set(candidate.members)
        stack = [r for m in candidate.members for r in self.readers[m] if r <= end and r not in seen]
        while stack:
            k = stack.pop()
            if k in seen:
                continue
            members = self.group_of[k].members
            if not wanted.isdisjoint(members):
                return True
            seen |= members
            stack.extend([r for m in members for r in self.readers[m] if r <= end and r not in seen])
        return False

    # -- writing the result

    def rewrite(self) -> Function:
        self.form()
        groups = list(dict.fromkeys(self.group_of.values()))
        builder = BlockBuilder()
        builder.begin([p.name for p in self.function.params])
        with builder.dataflow():
            env: dict[Var, Expr] = {p: p for p in self.function.params}
            emitter = Emitter(builder, env)
            for group in self.in_order(groups):
                first, *items = (self.bindings[m] for m in sorted(group.members))
                if group.copies or not all(isinstance(b.value, TupleGetItem) for b in items):
                    self.emit(group, emitter)
                elif is_alias(first.value):  # it has kept its readers apart from its argument
                    emitter.env[first.var] = emitter.expr(first.value.args[0])
                else:
                    for binding in (first, *items):
                        emitter.rewrite_binding(binding)
            result = emitter.expr(self.function.body.body)
        body = builder.finish(result)
        fused = Function(self.function.params, body, None, self.function.attrs, span=self.function.span)
        return remove_dead_bindings(fused)

    def in_order(self, groups: list[_Set]) -> Iterable[_Set]:
        """Groups after what they read, otherwise in the order of their last member."""
        waiting = {g: {self.group_of[s] for s in self.external_reads(g)} - {g} for g in groups}
        readers: dict[_Set, list[_Set]] = {g: [] for g in groups}
        for group, blockers in waiting.items():
            for blocker in blockers:
                readers[blocker].append(group)
        ready = [(max(g.members), k, g) for k, g in enumerate(groups) if not waiting[g]]
        numbers = {g: k for k, g in enumerate(groups)}
        heapq.heapify(ready)
        while ready:
            _, _, group = heapq.heappop(ready)
            yield group
            for other in readers[group]:
                waiting[other].discard(group)
                if not waiting[other]:
                    heapq.heappush(ready, (max(other.members), numbers[other], other))

    def external_reads(self, group: _Set) -> set[int]:
        everything = group.members | group.copies
        return {s for m in everything for s in self.reads[m]} - everything

    def emit(self, group: _Set, emitter: Emitter) -> None:
        """A call of a new primitive function."""
        order = sorted(group.members | group.copies)
        outputs = self.outputs(group)
        function, arguments = primitive([self.bindings[m] for m in order], [self.bindings[m].var for m in outputs])
        calls = [v for m in order if m in group.members and isinstance(v := self.bindings[m].value, Call)]
        ops = [op_of(call).short.rsplit(".", 1)[-1] for call in calls]
        callee = self.module.add_func(function, "_".join(["fused", *ops[:6]]))
        value = Call(callee, tuple(emitter.expr(a) for a in arguments))
        if len(outputs) == 1:
            emitter.bind(self.bindings[outputs[0]].var, value)
        else:
            result = emitter.builder.emit(value, "group")
            for i, m in enumerate(outputs):
                emitter.bind(self.bindings[m].var, TupleGetItem(result, i))


def primitive(bindings: list[Binding], outputs: list[Var]) -> tuple[Function, list[Expr]]:
    """The bindings as a function of what they read from outside, and those arguments."""
    inside = {b.var for b in bindings}
    arguments: dict[Expr, Var] = {}
    builder = BlockBuilder()

    def argument(expr: Expr) -> None:
        if isinstance(expr, Var) and expr not in inside and expr not in arguments:
            arguments[expr] = Var(expr.name, expr.struct_info, span=expr.span)
        elif isinstance(expr, Constant) and expr.data.size != 1 and expr not in arguments:
            arguments[expr] = Var("constant", expr.struct_info)
        elif isinstance(expr, TupleGetItem):
            argument(expr.tuple_value)

    for binding in bindings:
        for arg in getattr(binding.value, "args", ()):  # an item of a tuple that is inside has none
            argument(arg)
    builder.begin([v.name for v in arguments.values()])
    with builder.dataflow():
        emitter = Emitter(builder, arguments, flatten=True)
        for binding in bindings:
            emitter.rewrite_binding(binding)
        results = [builder.emit_output(emitter.env[v], v.name) for v in outputs]
    body = builder.finish(Tuple(tuple(results)) if len(results) > 1 else results[0])
    function = Function(tuple(arguments.values()), body, None, {"primitive": True, "private": True})
    return function, list(arguments)
