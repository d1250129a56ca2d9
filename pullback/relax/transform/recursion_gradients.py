"""The adjoint of a recursive function: a recursive function that calls itself where that did, and keeps nothing.

    y = f(x, w)         y, kept = f_kept(x, w)
                  →     x_adjoint, w_adjoint = f_adjoint(y_adjoint, w, kept)

    def f(x, w):                     def f_kept(x, w):                      def f_adjoint(d, w, kept):
        if x > 1.0:                      if x > 1.0:                            x, y, inner = unbox(kept)
            y = f(x - 1.0, w) * w            y, inner = f_kept(x - 1.0, w)      if x > 1.0:
        else:                   →            y = y * w                              dx, dw = f_adjoint(d * w, w, inner)
            y = x                        else:                                      dw = dw + d * y
        return y                             y = x                              else: …
                                         return y, box(x, y, inner)             return dx, dw

The *twin*, ``f_kept``, boxes what the adjoint of a call reads, the handles of its own calls among it; a call of the
adjoint begins by unboxing that. What all calls hand on as it is, such as weights, is not boxed: the adjoint hands it on
as well. Boxes, and handles, are values with adjoints of their own, so an adjoint can be differentiated again. In the
end all three have the label of the function.

All calls of a function are one to the analysis: results have adjoints if they have one in any call, and operands if one
comes of that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from pullback.relax.boxes import HANDLE_INFO, box, null, unbox
from pullback.relax.expr import Binding, Call, DataflowVar, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.recursion import RECURSE, SELF, call_self, recurse
from pullback.relax.regions import regions, with_regions
from pullback.relax.struct_info import fields_of, has_adjoint
from pullback.relax.transform.handed_on import HandedOn
from pullback.relax.transform.joint_region import Joint, joint_region
from pullback.relax.transform.region_writer import RegionWriter, add_twin, item, items, saving, zeros_of
from pullback.relax.transform.saved_values import saved_values
from pullback.tir.derivative import MASKED


class RecursionGradient:
    """Operands and results have numbers. ``seeded``: the results with adjoints; ``moving``: the operands."""

    def __init__(self, sweep: Any, var: Var, call: Call, adjoint: Sequence[Any]) -> None:
        self.sweep, self.var, self.call = sweep, var, call
        self.function: Function = call.attrs["function"]
        self.label: str = call.attrs["label"]
        taken = {name for g in sweep.recursions.values() for name in (g.label, g.twin_label, g.adjoint_label)}
        self.twin_label, self.adjoint_label = (_free(f"{self.label}_{what}", taken) for what in ("kept", "adjoint"))
        self.infos, self.results = [p.struct_info for p in self.function.params], fields_of(call.struct_info)
        self.calls = sweep.roots.recursion(call)
        self.same = sorted(HandedOn(self.function, self.label).kept)
        self.given = {k: d for k, d in enumerate(adjoint) if d is not None and has_adjoint(d.struct_info)}
        self.seeded, self.moving = set(self.given), set[int]()
        self.joint = self.differentiated()

    def differentiated(self) -> Joint:
        """The function with its adjoint, which has the results of all calls that have adjoints for seeds."""
        sweep = self.sweep.inside(self)
        while True:
            before = len(self.seeded), len(self.moving)
            degrees = dict.fromkeys(sorted(self.seeded), MASKED)  # zeros where another call has none
            joint = joint_region(sweep, self.function, self.calls.params, degrees)
            self.moving.update(k for k, a in enumerate(joint.adjoints) if a is not None)
            if before == (len(self.seeded), len(self.moving)):
                return joint

    # -- calls

    def adjoints(self) -> list[Expr | None]:
        """Those of the operands of the first call."""
        if not self.moving:
            return [None] * len(self.infos)
        kept, function = self.chosen()
        twin = add_twin(self.sweep, self.var, {"function": self.twin(kept)})
        operands = self.operands_of_adjoint(self.call, self.given, twin)
        whole = recurse(operands, function, self.label, self.call.attrs["max_depth"])
        return self.parts(self.sweep, replace(whole, span=self.call.span), self.var)

    def adjoints_of_self(self, sweep: Any, var: Var, call: Call, adjoint: Sequence[Any]) -> list[Expr | None]:
        """Those of the operands of a call inside."""
        given = {k: d for k, d in enumerate(adjoint) if d is not None and has_adjoint(d.struct_info)}
        self.seeded.update(given)
        if not self.moving:
            return [None] * len(self.infos)
        again = call_self(items(call.args[0]), self.twin_label, [*self.results, HANDLE_INFO])
        twin = sweep.builder.emit(again, var.name)
        sweep.twins[var] = sweep.builder.current_bindings()[-1]
        infos = [self.infos[k] for k in sorted(self.moving)]
        operands = self.operands_of_adjoint(call, given, twin)
        return self.parts(sweep, replace(call_self(operands, self.adjoint_label, infos), span=call.span), var)

    def operands_of_adjoint(self, call: Call, given: dict[int, Any], twin: Var) -> list[Expr]:
        seeds = [given[k] if k in given else zeros_of(self.results[k]) for k in sorted(self.seeded)]
        operands = items(call.args[0])
        return [*seeds, *(operands[k] for k in self.same), item(twin, len(self.results))]

    def parts(self, sweep: Any, call: Call, var: Var) -> list[Expr | None]:
        """What a call of the adjoint gives, for each operand."""
        whole = sweep.builder.emit(call, f"{var.name}_adjoint")
        found: list[Expr | None] = [None] * len(self.infos)
        for n, k in enumerate(sorted(self.moving)):
            part = found[k] = item(whole, n)
            sweep.zeros.degrees[part] = MASKED
        return found

    # -- functions

    def chosen(self) -> tuple[list[Var], Function]:
        """What a call keeps, and the adjoint's function."""
        joint = self.joint
        free = {joint.params[k] for k in self.same}
        kept = joint.in_order(saved_values(joint, free, {}) - free)
        writer = RegionWriter()
        for k in sorted(self.seeded):
            writer.stand_in(joint.seeds[k])
        for k in self.same:
            writer.stand_in(joint.params[k])
        handle = writer.param(Var("kept", HANDLE_INFO))
        with writer.builder.dataflow():
            if kept:
                whole = writer.builder.emit(unbox(handle, [v.struct_info for v in kept]), "kept")
                writer.env.update((v, writer.builder.emit(TupleGetItem(whole, n), v.name)) for n, v in enumerate(kept))
            wanted = sorted(self.moving)
            found = writer.write(joint, [joint.adjoints[k] for k in wanted])
            filled = [zeros_of(self.infos[k]) if f is None else f for k, f in zip(wanted, found, strict=True)]
            results = writer.outputs(filled)
        return kept, _Relabelled((self.adjoint_label,), self.label).function(writer.function(results, {}))

    def twin(self, kept: Sequence[Var]) -> Function:
        """The function that gives a handle of what it keeps besides, and calls itself alone."""
        more = [box(kept) if kept else null()]
        function = saving(self.function, self.joint, more, lambda outputs: Tuple(tuple(outputs)))
        return _Relabelled((self.label, self.twin_label), self.label, (self.label,)).function(function)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


class _Relabelled(ExprMutator):
    """Calls with one of the labels in ``old`` as calls with the label ``new``; of those in ``giving`` with one result
    more, a handle, that nobody reads."""

    def __init__(self, old: Collection[str], new: str, giving: Collection[str] = ()) -> None:
        super().__init__()
        self.old, self.new, self.giving = old, new, giving

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if not isinstance(value, Call) or value.op is not SELF or value.attrs["label"] not in self.old:
            super().rewrite_binding(binding)
            return
        fields, gives = fields_of(value.struct_info), value.attrs["label"] in self.giving
        infos = [*fields, HANDLE_INFO] if gives else fields
        call = replace(call_self(items(self.expr(value.args[0])), self.new, infos), span=value.span)
        if not gives:
            self.bind(binding.var, call)
            return
        emit = self.builder.emit if isinstance(binding.var, DataflowVar) else self.builder.emit_output
        whole = emit(call, binding.var.name)
        parts = (emit(TupleGetItem(whole, k), binding.var.name) for k in range(len(fields)))
        self.env[binding.var] = Tuple(tuple(parts))

    def rewrite_call(self, call: Call) -> Expr:
        if call.op is RECURSE and call.attrs["label"] in self.old:  # another function of that name
            return call
        changed = {n: _Relabelled(self.old, self.new, self.giving).function(r) for n, r in regions(call)}
        return with_regions(call, changed) if changed else call
