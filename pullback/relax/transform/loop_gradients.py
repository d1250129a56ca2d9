"""The adjoint of a loop: a loop that runs the other way, for as many steps.

    t, ys = loop(t, xs, a)      t, (ys…, saved…) = loop_and_saved(t, xs, a)
                          →     (t_adjoint, a_adjoint), xs_adjoint = loop_adjoint(
                                    (t_adjoint, 0), (saved…, ys_adjoint), a, reverse=True)

It carries the adjoints of carries and sums of those of invariants. Rows of xs and ys and invariants are there anyway.
Where a carry is saved as it was before each step, so is what a step made of it: before the step after. The adjoint
carries that from step to step.

A loop whose length nobody knows keeps what each step saves in a box, with the handle of the step's before:

    t = loop(t, (), a)          t, h = loop_and_saved((t, null), (), a)              # h = box(saved…, h)
                          →     (t_adjoint, a_adjoint, _) = loop_adjoint(
                                    (t_adjoint, 0, h), (), a, reverse=True)          # (saved…, h) = unbox(h)

So the last one's comes first, as the adjoint needs it.

A body with the attribute ``recompute`` saves what its steps begin with, and its adjoint computes all the rest again
(``segment_loops.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.ir.op import Op
from pullback.relax.boxes import HANDLE_INFO, box, null, unbox
from pullback.relax.control import loop
from pullback.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import copy_with_new_vars
from pullback.relax.struct_info import Dim, TensorStructInfo, as_tuple, has_adjoint
from pullback.relax.transform.joint_region import Joint, joint_region
from pullback.relax.transform.region_writer import RegionWriter, add_twin, item, items, saving, zeros_of
from pullback.relax.transform.roots import results_roots
from pullback.relax.transform.saved_values import saved_values
from pullback.tir.derivative import MASKED


class LoopGradient:
    """Parameters of the body have numbers: the step's number is 0, then come carries, rows of xs and invariants.
    Results have, too: carries, then ys."""

    def __init__(self, sweep: Any, var: Var, call: Call, adjoint: Sequence[Any]) -> None:
        self.sweep, self.var, self.call = sweep, var, call
        self.body: Function = call.attrs["body"]
        self.length: Dim | None = call.attrs["length"]
        self.reverse: bool = call.attrs["reverse"]
        self.arguments: list[Any] = [call.args[0], *(v for group in call.args[1:] for v in items(group))]
        sizes = [len(as_tuple(group.struct_info).fields) for group in call.args[1:]]
        self.count = sizes[0]
        self.carries = range(1, 1 + sizes[0])
        self.rows = range(self.carries.stop, self.carries.stop + sizes[1])
        self.invariants = range(self.rows.stop, self.rows.stop + sizes[2])
        self.bits = sweep.roots.region_params(call)
        if self.reverse and call.attrs["condition"] is not None:
            raise DifferentiationError(
                "a loop that runs backwards until its condition is false has no gradient",
                span=call.span or var.span,
                hint="run it forwards, or for a given number of steps",
            )
        self.given = self.wanted(adjoint)
        self.degrees, self.joint = self.differentiated()
        self.results = self.joint.results
        self.seeds = [k for k in range(self.count) if k in self.joint.seeds]  # carries whose adjoints are carried
        self.sums = [k for k in self.invariants if self.joint.adjoints[k] is not None]
        self.stacks = [k for k in self.rows if self.joint.adjoints[k] is not None]
        self.choose_saved()

    # -- the body

    def wanted(self, adjoint: Sequence[Any]) -> dict[int, Expr]:
        """The adjoints of the loop's results that move with something, by their numbers."""
        moving = _flat(results_roots(self.body, self.bits))
        moving[: self.count] = [self.bits[k] for k in self.carries]
        parts = [[None] * len(f.fields) if a is None else a for a, f in zip(adjoint, self.tuples(), strict=False)]
        found = enumerate([d for part in parts for d in part])
        return {k: d for k, d in found if d is not None and has_adjoint(d.struct_info) and moving[k]}

    def tuples(self) -> Sequence[Any]:
        """The types of all carries and of all ys."""
        return as_tuple(self.body.ret_struct_info).fields

    def differentiated(self) -> tuple[dict[int, int], Joint]:
        """The degrees of the adjoints of results, those that are given and those that come of these from step to step,
        and the body with its adjoint."""
        marks = {k: 1 << n for n, k in enumerate(self.carries)}
        reads = _flat(results_roots(self.body, [marks.get(k, 0) for k in range(len(self.bits))]))
        degrees = {k: self.sweep.zeros.degree_of_any(d) for k, d in self.given.items()}
        waiting = list(degrees)
        while waiting:
            result = waiting.pop()
            for k in range(self.count):
                if reads[result] >> k & 1 and self.bits[1 + k] and k not in degrees:
                    degrees[k] = MASKED  # zeros to begin with
                    waiting.append(k)
        while True:
            joint = joint_region(self.sweep, self.body, self.bits, degrees)
            comes = {k: joint.degrees[1 + k] for k in range(self.count) if joint.adjoints[1 + k] is not None}
            raised = {k: max(d, comes.get(k, d)) for k, d in degrees.items()}
            if raised == degrees:
                return degrees, joint
            degrees = raised

    # -- what is saved

    def choose_saved(self) -> None:
        joint, before = self.joint, self.joint.params[1 : 1 + self.count]
        following = dict(zip(before, self.results, strict=False))
        self.given_anyway = set(joint.params) - {p for p, r in following.items() if p is not r}
        free = {*self.given_anyway, *self.results[self.count :]}
        self.read = saved_values(joint, free, following, bool(self.body.attrs.get("recompute")))
        self.after = {r: p for p, r in following.items() if {p, r} <= self.read and r not in free}
        self.kept = joint.in_order(self.read - free - set(self.after))
        self.twin = self.var
        self.boxes = self.length is None and bool(self.kept)
        if self.boxes:
            changed = {"body": self.boxing(), "condition": self.condition_beside_handle()}
            carries = Tuple((*self.call.args[1].fields, null()))
            args = (self.call.args[0], carries, *self.call.args[2:])
            self.twin = add_twin(self.sweep, self.var, changed, args)
        elif self.kept:
            body = saving(self.body, joint, self.kept, self.grouped)
            self.twin = add_twin(self.sweep, self.var, {"body": body})

    def boxing(self) -> Function:
        """The body that puts what is saved of a step, and the handle that it gets, in a box: one carry more."""
        last = Var("saved", HANDLE_INFO)

        def grouped(outputs: list[Any]) -> Tuple:
            return Tuple((Tuple((*outputs[: self.count], outputs[-1])), Tuple(())))

        more = {1 + self.count: last}
        return saving(self.body, self.joint, [box([*self.kept, last])], grouped, more)

    def condition_beside_handle(self) -> Function | None:
        condition: Function | None = self.call.attrs["condition"]
        if condition is None:
            return None
        condition = copy_with_new_vars(condition)
        before, after = condition.params[: 1 + self.count], condition.params[1 + self.count :]
        params = (*before, Var("saved", HANDLE_INFO), *after)
        return Function(params, condition.body, None, condition.attrs, span=condition.span)

    def grouped(self, outputs: list[Any]) -> Tuple:
        return Tuple((Tuple(tuple(outputs[: self.count])), Tuple(tuple(outputs[self.count :]))))

    # -- the adjoint

    def adjoints(self) -> list[list[Expr | None]]:
        """Those of carries, xs and invariants."""
        joint, writer = self.joint, RegionWriter()
        writer.stand_in(joint.params[0])
        carries = self.carried(writer)
        if self.boxes:
            handle = writer.param(Var("saved", HANDLE_INFO))
            carries.append(item(self.twin, 0, self.count))
        sums = {k: writer.params[1 + len(self.seeds) + n] for n, k in enumerate(self.sums)}
        xs, invariants = self.stacked(writer), self.constant(writer)
        with writer.builder.dataflow():
            before = self.unboxed(writer, handle) if self.boxes else []
            numbers = [*(1 + k for k in self.seeds), *self.sums, *self.stacks]
            found = dict(zip(numbers, writer.write(joint, [joint.adjoints[k] for k in numbers]), strict=True))
            kept = [found[1 + k] if found[1 + k] is not None else self.zeros(1 + k) for k in self.seeds]
            kept += [Op.get("add")(sums[k], found[k]) for k in self.sums]
            kept += [*(writer.env[p] for p in self.after.values()), *before]
            results = Tuple((writer.outputs(kept), writer.outputs(found[k] for k in self.stacks)))
        body = writer.function(results, self.body.attrs)
        call = loop(self.steps(), carries, xs, invariants, body, None, self.length, not self.reverse)
        whole = self.sweep.builder.emit(call, f"{self.var.name}_adjoint")
        places = {k: (0, n) for n, k in enumerate((*(1 + k for k in self.seeds), *self.sums))}
        places |= {k: (1, n) for n, k in enumerate(self.stacks)}
        parts = {k: item(whole, *place) for k, place in places.items()}
        self.sweep.zeros.degrees.update((part, self.degree(k)) for k, part in parts.items())
        return [[parts.get(k) for k in group] for group in (self.carries, self.rows, self.invariants)]

    def carried(self, writer: RegionWriter) -> list[Expr]:
        """What the adjoint carries, as it begins."""
        joint = self.joint
        for k in self.seeds:
            writer.stand_in(joint.seeds[k])
        for k in self.sums:
            writer.param(joint.params[k], f"{joint.params[k].name}_adjoint")
        for value in self.after:
            writer.stand_in(value)
        given = [self.given[k] if k in self.given else self.zeros(1 + k) for k in self.seeds]
        numbers = {p: k for k, p in enumerate(joint.params)}
        final = [item(self.var, 0, numbers[p] - 1) for p in self.after.values()]
        return [*given, *(self.zeros(k) for k in self.sums), *final]

    def unboxed(self, writer: RegionWriter, handle: Var) -> list[Expr]:
        """Emit what a step has saved; the handle of the step's before."""
        whole = writer.builder.emit(unbox(handle, [*(v.struct_info for v in self.kept), HANDLE_INFO]), "step")
        parts = [writer.builder.emit(TupleGetItem(whole, k), v.name) for k, v in enumerate([*self.kept, handle])]
        writer.env.update(zip(self.kept, parts, strict=False))
        return [parts[-1]]

    def stacked(self, writer: RegionWriter) -> list[Expr]:
        """What the adjoint reads a row of in each step."""
        stacks = [] if self.boxes else self.kept
        xs = [item(self.twin, 1, len(self.results) - self.count + n) for n in range(len(stacks))]
        for value in stacks:
            writer.stand_in(value)
        for k, result in enumerate(self.results[self.count :]):
            if result in self.read and result not in writer.env and result not in self.given_anyway:
                writer.stand_in(result)
                xs.append(item(self.var, 1, k))
        for k in self.rows:
            if self.joint.params[k] in self.read:
                writer.stand_in(self.joint.params[k])
                xs.append(self.arguments[k])
        for k, adjoint in self.given.items():
            if k >= self.count:
                writer.stand_in(self.joint.seeds[k])
                xs.append(adjoint)
        return xs

    def constant(self, writer: RegionWriter) -> list[Expr]:
        """What is the same in every step: invariants, and carries that the body gives as it gets them."""
        params = self.joint.params
        read = [k for k in (*self.carries, *self.invariants) if params[k] in self.read & self.given_anyway]
        for k in read:
            writer.stand_in(params[k])
        return [self.arguments[k] for k in read]

    def zeros(self, number: int) -> Expr:
        return zeros_of(self.joint.params[number].struct_info)

    def steps(self) -> Any:
        """How many steps the loop makes; None: as many as there are rows."""
        if self.call.attrs["condition"] is not None:
            return item(self.var, 2)
        return self.arguments[0] if self.has_count else None

    @property
    def has_count(self) -> bool:
        return isinstance(self.arguments[0].struct_info, TensorStructInfo)

    def degree(self, number: int) -> int:
        """That of the adjoint of an argument: where there may be rows without a step, or no step, it may be zeros."""
        is_whole = self.call.attrs["condition"] is None and not self.has_count
        is_carry = number in self.carries
        if is_whole and isinstance(self.length, int) and self.length > 0 and self.joint.adjoints[number] is not None:
            return self.joint.degrees[number]
        return self.degrees[number - 1] if is_carry else MASKED


def _flat(nested: Any) -> list[int]:
    return [leaf for part in nested for leaf in _flat(part)] if isinstance(nested, tuple) else [nested]
