"""HoistSums: sums over the steps of a loop that are one product after it.

    for t in range(L):                            for t in range(L):
        d[t] = f(x[t], …)                 →           d[t] = f(x[t], …)
        w = w + x[t].T @ d[t]                     w = w + reshape(x, (L·n, i)).T @ reshape(d, (L·n, j))

So end most adjoints of loops: with what reaches the weights and biases that every step reads. One product of L·n terms
reads and writes its sum once, where L products of n terms do so L times. Only sums are taken out whose
factors are kept anyway: values that the forward pass saves, and adjoints that the loop gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Call, DataflowBlock, Expr, Function, Tuple, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import as_tensor
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.region_writer import item, items

Stacked = Callable[[Expr], Expr]  # of a value of the body: that of all steps, one row a step


@dataclass(frozen=True)
class HoistSums(FunctionPass):
    """Take sums of products out of loops that make a known number of steps.

    Checks: the loop has a length, and neither a count nor a condition. Both factors of a product are rows that the loop
    reads or gives anyway. The terms are added in another order.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        if not any(_counted(b.value) for b in function.bindings):
            return function
        return _Hoist().function(function)


def _counted(value: Any) -> bool:
    """Whether it is a loop that makes exactly ``length`` steps: all rows of its arrays are read and written."""
    if not is_op(value, "loop") or value.attrs["condition"] is not None or value.attrs["length"] is None:
        return False
    return all(isinstance(a, Tuple) for a in value.args) and not value.args[0].fields


class _Hoist(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.zeros: list[Expr] = []

    def bind(self, var: Var, value: Expr) -> None:
        sums = _Sums(value) if _counted(value) else None
        super().bind(var, self.without(sums) if sums is not None and sums.terms else value)
        if is_op(value, "zeros"):
            self.zeros.append(self.env[var])

    def without(self, sums: _Sums) -> Tuple:
        """The results of a loop that does not compute these sums, and the sums."""
        emit, call = self.builder.emit, sums.call
        count, carries, xs, invariants = call.args
        kept = [c for k, c in enumerate(carries.fields) if k not in sums.terms]
        attrs = {**call.attrs, "body": sums.body()}
        loop = emit(Call(call.op, (count, Tuple(tuple(kept)), xs, invariants), attrs, span=call.span))
        rows = [emit(y) for y in items(emit(item(loop, 1)))]

        def stacked(value: Expr) -> Expr:
            place = _place(sums.xs, value)
            if place is not None:
                return xs.fields[place]
            return next(row for row, y in zip(rows, sums.ys, strict=True) if y is value)

        last, results = iter(items(emit(item(loop, 0)))), []
        for k, begin in enumerate(carries.fields):
            if k in sums.terms:
                total = self.total(sums, sums.terms[k], stacked)
                results.append(total if _place(self.zeros, begin) is not None else emit(Op.get("add")(begin, total)))
            else:
                results.append(emit(next(last)))
        return Tuple((Tuple(tuple(results)), Tuple(tuple(rows)), emit(item(loop, 2))))

    def total(self, sums: _Sums, term: Call, stacked: Stacked) -> Expr:
        """The sum of a term over all steps."""
        emit = self.builder.emit
        if is_op(term, "collapse_sum_to"):
            return emit(Call(term.op, (stacked(term.args[0]), *term.args[1:]), term.attrs, span=term.span))
        left, right = term.args
        return emit(Call(term.op, (self.joined(sums, left, 1, stacked), self.joined(sums, right, 0, stacked)),
                         term.attrs, span=term.span))  # fmt: skip

    def joined(self, sums: _Sums, factor: Expr, axis: int, stacked: Stacked) -> Expr:
        """The matrix of a factor's matrices side by side along an axis, that of the sum."""
        emit, row = self.builder.emit, sums.row(factor)
        turned = row is not factor
        stack = stacked(row)
        axis = 1 - axis if turned else axis  # of the rows as they lie in the stack
        steps, *shape = stack.shape
        if axis == 1:
            stack = emit(Op.get("permute_dims")(stack, (1, 0, 2)))
        shape[axis] = steps * shape[axis]
        joined = emit(Op.get("reshape")(stack, tuple(shape)))
        return emit(Op.get("permute_dims")(joined)) if turned else joined


class _Sums:
    """``terms``: what a carry adds up, by its number. ``xs``, ``ys``: what the body reads and gives a row of in each
    step."""

    def __init__(self, call: Any) -> None:
        self.call, self.function = call, call.attrs["body"]
        self.terms: dict[int, Call] = {}
        count, rows = len(call.args[1].fields), len(call.args[2].fields)
        params, result = self.function.params, self.function.body.body
        self.carries, self.xs = params[1 : 1 + count], params[1 + count : 1 + count + rows]
        self.values = {b.var: b.value for b in self.function.bindings}
        straight = all(isinstance(block, DataflowBlock) for block in self.function.body.blocks)
        if not straight or not isinstance(result, Tuple) or not all(isinstance(f, Tuple) for f in result.fields):
            return
        self.results, self.ys = list(result.fields[0].fields), list(result.fields[1].fields)
        self.uses = Counter(v for b in self.function.bindings for v in set(used_vars(b.value)))
        self.uses.update(v for v in (*self.results, *self.ys) if isinstance(v, Var))
        found = {k: t for k in range(count) if (t := self._term(k)) is not None}
        self.terms = {k: t for k, t in found.items() if all(map(self._kept, self._factors(t)))}

    def _term(self, k: int) -> Call | None:
        """What a carry adds up, where that is all that happens to it."""
        carry, result = self.carries[k], self.results[k]
        added = self.values.get(result)
        if not is_op(added, "add") or self.uses[carry] != 1 or self.uses[result] != 1:
            return None
        others = [a for a in added.args if a is not carry]
        if len(others) != 1 or not isinstance(others[0], Var):
            return None
        term = self.values.get(others[0])
        if is_op(term, "collapse_sum_to"):
            return term
        if is_op(term, "matmul") and all(map(_is_matrix, (term, *term.args))):
            return term
        return None

    def row(self, factor: Expr) -> Expr:
        """The value whose transpose it is, or itself."""
        value = self.values.get(factor)
        return value.args[0] if is_op(value, "permute_dims") and _is_matrix(value) else factor

    def _factors(self, term: Call) -> list[Expr]:
        """What its sum over all steps reads a stack of."""
        return [term.args[0]] if is_op(term, "collapse_sum_to") else [self.row(a) for a in term.args]

    def _kept(self, row: Expr) -> bool:
        return _place(self.xs, row) is not None or _place(self.ys, row) is not None

    def body(self) -> Function:
        """The body without the sums."""
        gone = {self.results[k] for k in self.terms}
        dropped = {self.carries[k] for k in self.terms}
        params = tuple(p for p in self.function.params if p not in dropped)
        mutator = ExprMutator()
        builder = mutator.builder
        builder.begin([p.name for p in params])
        with builder.dataflow():
            for binding in self.function.bindings:
                if binding.var not in gone:
                    mutator.rewrite_binding(binding)

            def output(value: Expr) -> Expr:
                value = mutator.expr(value)
                return builder.promote(value) if isinstance(value, Var) else builder.emit_output(value)

            carries = Tuple(tuple(output(r) for r in self.results if r not in gone))
            results = Tuple((carries, Tuple(tuple(output(y) for y in self.ys))))
        body = builder.finish(results)
        return remove_dead_bindings(Function(params, body, None, self.function.attrs, span=self.function.span))


def _is_matrix(value: Expr) -> bool:
    return as_tensor(value.struct_info).ndim == 2


def _place(values: Sequence[Expr], wanted: Expr) -> int | None:
    return next((k for k, v in enumerate(values) if v is wanted), None)
