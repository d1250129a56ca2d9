"""SimplifyLoops: carries, xs, ys, invariants and operands that nobody needs go, and so do loops and branches that are
none.

    a carry that the body gives back as it is        →   an invariant
    a carry that only it itself depends on, and whose last value nobody reads; ys that nobody reads        →   gone
    an invariant that is a constant                  →   the constant, in the body
    a loop of no steps, or of one                    →   the initial carries; the body
    a branch whose condition is a constant           →   what is computed there
    what both branches give of the same operand      →   the operand

Gradients make such loops, of values that they need and others that they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.boxes import is_handle
from pullback.relax.control import BRANCH, LOOP, branch, loop
from pullback.relax.expr import Binding, Call, Callee, Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator, emit_body
from pullback.relax.recursion import RECURSE, own_calls
from pullback.relax.regions import is_control, with_regions
from pullback.relax.struct_info import TupleStructInfo, as_tensor, as_tuple, fields_of, flat_infos
from pullback.relax.transform.canonicalize_bindings import CanonicalizeBindings
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.inline_functions import over_regions
from pullback.relax.transform.simplify_recursion import filled, simpler_recursion
from pullback.runtime.dtype import numpy_dtype


@dataclass(frozen=True)
class SimplifyLoops(FunctionPass):
    """Remove from loops and branches what nobody needs, and loops and branches that are none.

    It is for functions whose symbolic sizes are bound: lengths are numbers.

    Checks: the bodies' results are explicit tuples, as CanonicalizeBindings leaves them; others stay.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        before = None
        while function is not before and any(is_control(b.value) for b in function.bindings):
            before = function
            mutator = _Simplify(used_items(function), lambda region: self.anew(region, module))
            changed = mutator.function(function)
            if mutator.changes:
                function = remove_dead_bindings(CanonicalizeBindings().function(changed, module))
        return function

    def anew(self, function: Function, module: IRModule) -> Function:
        """A function of which something was left out, and its regions."""

        def simpler(part: Function) -> Function:
            return self.function(remove_dead_bindings(CanonicalizeBindings().function(part, module)), module)

        return over_regions(function, module, simpler)


Path = tuple[int, ...]


def used_items(function: Function) -> dict[Var, set[Path]]:
    """Of each variable with a tuple, the items that somebody reads, as paths: ``(0, 2)`` of ``x[0][2]``; ``()`` is all
    of it."""
    items: dict[Var, tuple[Var, Path]] = {}
    used: dict[Var, set[Path]] = {}

    def read(expr: Any) -> None:
        for var in used_vars(expr):
            origin, path = items.get(var, (var, ()))
            used.setdefault(origin, set()).add(path)

    for binding in function.bindings:
        value = binding.value
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            origin, path = items.get(value.tuple_value, (value.tuple_value, ()))
            items[binding.var] = (origin, (*path, value.index))
        else:
            read(value)
    read(function.body.body)
    return used


def is_used(paths: Iterable[Path], path: Path) -> bool:
    """Whether an item is read, or a tuple that it is in."""
    return any(path[: len(p)] == p for p in paths)


@dataclass(frozen=True)
class Loop:
    """A closed loop in its parts. The functions' parameters are given for each part; ``results`` and ``ys`` are what
    the body gives."""

    call: Call
    number: Var
    carries: list[Var]
    rows: list[Var]
    invariants: list[Var]
    results: list[Expr]
    ys: list[Expr]

    @staticmethod
    def of(call: Call) -> Loop | None:
        """None where the body's results are no explicit tuples: after CanonicalizeBindings they are."""
        body: Function = call.attrs["body"]
        result = body.body.body
        if not isinstance(result, Tuple) or not all(isinstance(f, Tuple) for f in result.fields):
            return None
        carries, rows = (len(a.fields) for a in call.args[1:3])
        params = list(body.params)
        first, last = 1 + carries, 1 + carries + rows
        results, ys = (list(f.fields) for f in result.fields)
        return Loop(call, params[0], params[1:first], params[first:last], params[last:], results, ys)

    @property
    def is_open_ended(self) -> bool:
        """Whether only running it tells how many steps there are."""
        return self.call.attrs["condition"] is not None or not isinstance(self.count.struct_info, TupleStructInfo)

    @property
    def names(self) -> dict[Var, Var]:
        """The parameters of the condition, by those of the body."""
        condition: Function | None = self.call.attrs["condition"]
        both = [*self.carries, *self.invariants]
        return {} if condition is None else dict(zip(both, condition.params[1:], strict=True))

    @property
    def asked(self) -> set[Var]:
        """The parameters of the body that are parameters of the condition which this reads."""
        condition: Function | None = self.call.attrs["condition"]
        if condition is None:
            return set()
        read = needed(condition, [condition.body.body])
        return {p for p, name in self.names.items() if name in read}

    @property
    def count(self) -> Expr:
        return self.call.args[0]

    def given(self, part: int) -> list[Expr]:
        """The arguments for carries (1), xs (2) or invariants (3)."""
        return list(self.call.args[part].fields)


@dataclass
class Parts:
    """What is kept of a loop: numbers of carries, xs and ys, and invariants, a parameter of the old body each, with its
    value. ``known`` says what other parameters stand for: constants, or parameters that are kept."""

    carries: Sequence[int]
    xs: Sequence[int]
    ys: Sequence[int]
    invariants: Sequence[tuple[Var, Expr]]
    known: Mapping[Var, Expr] = field(default_factory=dict)
    length: Any = None
    count: Expr | None = None


def rebuilt(old: Loop, parts: Parts) -> Call:
    """The loop of these parts."""
    kept = [old.carries[k] for k in parts.carries]
    result = Tuple((Tuple(tuple(old.results[k] for k in parts.carries)), Tuple(tuple(old.ys[k] for k in parts.ys))))
    before = [old.number, *kept, *(old.rows[k] for k in parts.xs)]
    taken = [p for p, _ in parts.invariants]
    body = with_results(old.call.attrs["body"], before, taken, result, parts.known)
    condition: Function | None = old.call.attrs["condition"]
    if condition is not None:
        names = old.names
        known = {names[p]: names.get(v, v) if isinstance(v, Var) else v for p, v in parts.known.items() if p in names}
        before = [condition.params[0], *(names[p] for p in kept)]
        condition = with_results(condition, before, [names.get(p, p) for p in taken], condition.body.body, known)
    carries, xs = ([old.given(part)[k] for k in numbers] for part, numbers in ((1, parts.carries), (2, parts.xs)))
    values = [value for _, value in parts.invariants]
    call, attrs = old.call, (old.call.attrs["reverse"], old.call.attrs["checkpoint"])
    return replace(loop(parts.count, carries, xs, values, body, condition, parts.length, *attrs), span=call.span)


def with_results(
    function: Function, params: Sequence[Var], more: Sequence[Var], result: Expr, known: Mapping[Var, Expr]
) -> Function:
    """The function of these of its parameters, and of copies of ``more``, that gives something else of what it
    computes; ``known`` says what its other parameters stand for."""
    fresh: dict[Expr, Var] = {p: Var(p.name, p.struct_info, span=p.span) for p in more}
    mutator = ExprMutator()
    mutator.builder.begin([p.name for p in (*params, *more)])
    mutator.env = {**{p: p for p in params}, **fresh}
    mutator.env |= {p: mutator.env.get(v, v) for p, v in known.items()}
    with mutator.builder.dataflow():
        for binding in function.bindings:
            mutator.rewrite_binding(binding)
        leaves = [mutator.expr(leaf) for leaf in _leaves(result)]
        outputs = iter([mutator.builder.promote(v) if isinstance(v, Var) else v for v in leaves])
    body = mutator.builder.finish(_as_nested(result, outputs))
    return remove_dead_bindings(Function((*params, *fresh.values()), body, None, function.attrs, span=function.span))


def _leaves(expr: Expr) -> list[Expr]:
    return [leaf for f in expr.fields for leaf in _leaves(f)] if isinstance(expr, Tuple) else [expr]


def _as_nested(expr: Expr, leaves: Iterator[Expr]) -> Expr:
    return Tuple(tuple(_as_nested(f, leaves) for f in expr.fields)) if isinstance(expr, Tuple) else next(leaves)


def needed(function: Function, results: Iterable[Expr]) -> set[Var]:
    """The variables, parameters among them, that these results of the function depend on."""
    found = {v for r in results for v in used_vars(r)}
    for binding in reversed(list(function.bindings)):
        if binding.var in found:
            found.update(used_vars(binding.value))
    return found


class _Simplify(ExprMutator):
    def __init__(self, used: Mapping[Var, set[Path]], anew: Callable[[Function], Function]) -> None:
        super().__init__()
        self.used, self.anew, self.changes = used, anew, 0

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        rules: dict[Callee, Callable[[Call, set[Path]], Expr | None]]
        rules = {LOOP: self.loop, BRANCH: self.branching, RECURSE: self.recursion}
        if isinstance(value, Call) and value.op in rules:
            call, simpler = self.expr(value), rules[value.op]
            with span_scope(value.span):
                found = simpler(call, self.used.get(binding.var, set()))
            if found is not None:
                self.changes += 1
                self.env[binding.var] = found
                return
            self.bind(binding.var, call)
            return
        item = self.expr(value) if isinstance(value, TupleGetItem) else None
        if isinstance(item, Tuple):
            self.env[binding.var] = item
        else:
            super().rewrite_binding(binding)

    def items(self, tuple_value: Expr, name: str) -> list[Expr]:
        count = len(as_tuple(tuple_value.struct_info).fields)
        return [self.builder.emit(TupleGetItem(tuple_value, k), name) for k in range(count)]

    # -- branches

    def branching(self, call: Call, used: set[Path]) -> Expr | None:
        condition, operands = call.args[0], list(call.args[1].fields)
        bodies: list[Function] = [call.attrs["then"], call.attrs["otherwise"]]
        if isinstance(condition, Constant):
            taken = bodies[0] if condition.data else bodies[1]
            return emit_body(taken, dict(zip(taken.params, operands, strict=True)), self.builder)
        results = [f.body.body for f in bodies]
        if not all(isinstance(r, Tuple) for r in results):
            return None
        both = list(zip(*(r.fields for r in results), strict=True))
        places = [{p: k for k, p in enumerate(f.params)} for f in bodies]
        either: dict[int, Expr] = {}  # the operands that results are, whichever branch is taken
        for k, (a, b) in enumerate(both):
            if a in places[0] and places[0][a] == places[1].get(b):
                either[k] = operands[places[0][a]]
        kept = [k for k in range(len(both)) if k not in either and is_used(used, (k,))]
        read = [needed(f, (pair[n] for pair in map(both.__getitem__, kept))) for n, f in enumerate(bodies)]
        places_: dict[Expr, int] = {}  # numbers of the operands that branches get
        known: list[dict[Var, Expr]] = [{}, {}]
        for k, operand in enumerate(operands):
            if not any(f.params[k] in r for f, r in zip(bodies, read, strict=True)):
                continue
            if not isinstance(operand, Constant) and places_.setdefault(operand, k) == k:
                continue
            for f, names in zip(bodies, known, strict=True):
                names[f.params[k]] = operand if isinstance(operand, Constant) else f.params[places_[operand]]
        if len(kept) == len(both) and len(places_) == len(operands):
            return None
        chosen: dict[int, Expr] = {}
        if kept:
            smaller = [
                with_results(
                    f, [f.params[k] for k in places_.values()], (), Tuple(tuple(both[k][n] for k in kept)), known[n]
                )
                for n, f in enumerate(bodies)
            ]
            whole = self.builder.emit(replace(branch(condition, list(places_), *smaller), span=call.span), "chosen")
            chosen = dict(zip(kept, self.items(whole, "chosen"), strict=True))
        return _filled(call.struct_info, {**either, **chosen})

    # -- recursive functions

    def recursion(self, call: Call, used: set[Path]) -> Expr | None:
        fields, function = fields_of(call.struct_info), call.attrs["function"]
        if next(own_calls(function, call.attrs["label"]), None) is None:
            given = dict(zip(function.params, call.args[0].fields, strict=True))
            return emit_body(function, given, self.builder)
        found = simpler_recursion(call, [k for k in range(len(fields)) if is_used(used, (k,))])
        if found is None:
            return None
        smaller, results = found
        smaller = with_regions(smaller, {"function": self.anew(smaller.attrs["function"])})
        whole = self.builder.emit(smaller, call.attrs["label"])
        items = filled(fields, whole, results).fields
        return Tuple(tuple(self.builder.emit(f) if isinstance(f, TupleGetItem) else f for f in items))

    # -- loops

    def loop(self, call: Call, used: set[Path]) -> Expr | None:
        old = Loop.of(call)
        if old is None:
            return None
        if not old.is_open_ended and call.attrs["length"] in (0, 1) and not _stacks_handles(old):
            return self.few_steps(old)
        same = [k for k, (p, r) in enumerate(zip(old.carries, old.results, strict=True)) if p is r]
        ys, copies = _needed_ys(old, used)
        carries = _live_carries(old, used, same, [old.ys[k] for k in ys])
        read = needed(call.attrs["body"], [*(old.results[k] for k in carries), *(old.ys[k] for k in ys)]) | old.asked
        xs = [k for k, p in enumerate(old.rows) if p in read]
        known: dict[Var, Expr] = {}
        taken: dict[Expr, Var] = {}
        outside = [(old.carries[k], old.given(1)[k]) for k in same]
        for param, value in [*outside, *zip(old.invariants, old.given(3), strict=True)]:
            if param in read and isinstance(value, Constant):
                known[param] = value
            elif param in read and taken.setdefault(value, param) is not param:
                known[param] = taken[value]
        length, count = _known_count(old)
        parts = Parts(carries, xs, ys, [(p, v) for v, p in taken.items()], known, length, count)
        before = (len(old.carries), len(old.rows), len(old.ys), len(old.invariants), call.attrs["length"])
        after = (len(carries), len(xs), len(ys), len(taken), length)
        is_same_count = (count is None) == isinstance(old.count.struct_info, TupleStructInfo)
        knows_steps = not old.is_open_ended and is_used(used, (2,))
        if before == after and is_same_count and not knows_steps:
            return None
        whole = self.builder.emit(rebuilt(old, parts), "looped")
        last, stacked, steps = self.items(whole, "looped")
        finals = dict(zip(carries, self.items(last, "carry"), strict=True)) | {k: old.given(1)[k] for k in same}
        stacks = dict(zip(ys, self.items(stacked, "stacked"), strict=True))
        stacks |= {k: stacks[v] if isinstance(v, int) else v for k, v in copies.items()}
        first, second, _ = as_tuple(call.struct_info).fields
        if knows_steps:
            steps = Constant(np.array(length, np.int64))
        return Tuple((_filled(first, finals), _filled(second, stacks), steps))

    def few_steps(self, old: Loop) -> Expr:
        """What a loop of no steps, or of one, gives."""
        stacked = [as_tensor(i) for i in fields_of(as_tuple(old.call.struct_info).fields[1])]
        steps = Constant(np.array(old.call.attrs["length"], np.int64))
        if old.call.attrs["length"] == 0:
            empty = (Constant(np.zeros(i.static_shape, numpy_dtype(i.dtype))) for i in stacked)
            return Tuple((Tuple(tuple(old.given(1))), Tuple(tuple(empty)), steps))
        body: Function = old.call.attrs["body"]
        reshape = Op.get("reshape")
        rows = [self.builder.emit(reshape(x, x.shape[1:]), "row") for x in old.given(2)]
        arguments = [Constant(np.array(0, np.int64)), *old.given(1), *rows, *old.given(3)]
        result = emit_body(body, dict(zip(body.params, arguments, strict=True)), self.builder)
        carries, ys = result.fields
        stacks = [self.builder.emit(reshape(y, i.shape), "stacked") for y, i in zip(ys.fields, stacked, strict=True)]
        return Tuple((carries, Tuple(tuple(stacks)), steps))


def _stacks_handles(old: Loop) -> bool:
    """Whether there are handles among xs or ys, of which no op takes a row or makes one."""
    infos = [*flat_infos(as_tuple(old.call.struct_info).fields[1]), *(x.struct_info for x in old.given(2))]
    return any(map(is_handle, infos))


def _filled(info: Any, fields: Mapping[int, Expr]) -> Tuple:
    """A tuple of these fields; the others are variables of their types, which nobody reads."""
    return Tuple(tuple(fields[k] if k in fields else Var("unread", i) for k, i in enumerate(info.fields)))


def _needed_ys(old: Loop, used: set[Path]) -> tuple[list[int], dict[int, int | Expr]]:
    """The ys to compute; and of others, which of these they are, or what else."""
    found: dict[Expr, int] = {}
    copies: dict[int, int | Expr] = {}
    rows: dict[Expr, Expr] = dict(zip(old.rows, old.given(2), strict=True))
    for k, y in enumerate(old.ys):
        if not is_used(used, (1, k)):
            continue
        if y in rows and not old.is_open_ended:  # the rows themselves, all of them
            copies[k] = rows[y]
        elif found.setdefault(y, k) != k:
            copies[k] = found[y]
    return list(found.values()), copies


def _live_carries(old: Loop, used: set[Path], same: Sequence[int], ys: Sequence[Expr]) -> list[int]:
    """The carries whose last value is read, and those that these, ys and the condition depend on; without those that
    are the ``same`` in all steps."""
    changing = [k for k in range(len(old.carries)) if k not in same]
    live = {k for k in changing if is_used(used, (0, k)) or old.carries[k] in old.asked}
    while True:
        read = needed(old.call.attrs["body"], [*(old.results[k] for k in live), *ys])
        more = {k for k in changing if old.carries[k] in read} | live
        if more == live:
            return sorted(live)
        live = more


def _known_count(old: Loop) -> tuple[Any, Expr | None]:
    """The length and the count of a loop; a count that is a constant is its length, where nothing else needs that."""
    length = old.call.attrs["length"]
    if isinstance(old.count.struct_info, TupleStructInfo):
        return length, None
    if isinstance(old.count, Constant):
        number = max(0, int(old.count.data))
        has_rows = bool(old.rows or old.ys)
        if number == length or (not has_rows and (length is None or number < length)):
            return number, None
    return length, old.count
