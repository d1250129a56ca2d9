"""A region and its adjoint as one list of bindings, and how functions are written of parts of it.

    def body(h, x):                    h_after = R.tanh(R.matmul(h, w) + x)
        return (h_after,)       →      lv = R.multiply(h_after, h_after)
                                       …                                          # from the adjoint of h_after on
                                       h_adjoint = R.matmul(lv2, w_transposed)

Some of these bindings need the adjoints of the results, and belong to the adjoint's region. Of the others both regions
may have what they want: ``saved_values.py`` says what the first one saves for the second.

A branch or loop inside is there twice: as it is, and as its *twin*, which has the same results and gives what its
adjoint reads besides. Where both are wanted there is the twin alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import (
    Binding,
    Constant,
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from pullback.relax.mutator import ExprMutator, emit_body
from pullback.relax.struct_info import StructInfo, TupleStructInfo, has_adjoint

Twins = dict[Var, Binding]  # by the variable of the branch or loop


@dataclass(frozen=True)
class Joint:
    """What :func:`joint_region` gives."""

    params: Sequence[Var]
    results: Sequence[Expr]  # of the region, in one list
    seeds: Mapping[int, Var]  # the adjoints of results
    adjoints: Sequence[Expr | None]  # of the parameters
    degrees: Sequence[int]  # of these
    bindings: Sequence[Binding]
    twins: Twins

    @cached_property
    def named(self) -> dict[Var, Binding]:
        return {b.var: b for b in self.bindings}

    @cached_property
    def later(self) -> set[Var]:
        """What needs the adjoint of a result."""
        found = set(self.seeds.values())
        for binding in self.bindings:
            if any(v in found for v in used_vars(binding.value)):
                found.add(binding.var)
        return found

    def in_order(self, values: Collection[Any]) -> list[Var]:
        return [v for v in (*self.params, *self.named) if v in values]

    def needed(self, wanted: Iterable[Any], known: Iterable[Expr] = ()) -> set[Var]:
        """The bound variables that expressions need, without what is known and what that needs."""
        found, given = set(), set(known)
        stack = [v for expr in wanted for v in used_vars(expr)]
        while stack:
            var = stack.pop()
            if var in self.named and var not in found and var not in given:
                found.add(var)
                stack.extend(used_vars(self.named[var].value))
        return found

    def write(self, builder: BlockBuilder, wanted: Sequence[Any], env: Mapping[Expr, Expr]) -> ExprMutator:
        """Append what the wanted expressions need; the mutator gives what they are there. ``env``: what variables
        stand for."""
        mutator = JoinTwins(self.twins)
        mutator.builder, mutator.env = builder, dict(env)
        needed = self.needed(wanted, env)
        mutator.twins = {v: twin for v, twin in self.twins.items() if twin.var in needed}
        for binding in self.bindings:
            if binding.var in needed:
                mutator.rewrite_binding(binding)
        return mutator


def joint_region(sweep: Any, region: Function, bits: Sequence[int], degrees: Mapping[int, int]) -> Joint:
    """The region with the adjoints of those of its parameters that have bits. ``degrees``: to which the adjoints of
    results hold structural zeros, by their numbers; those not named are 0."""
    params = [Var(p.name, p.struct_info, span=p.span) for p in region.params]
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        body = emit_body(region, dict(zip(region.params, params, strict=True)), builder)
        results, forward = leaves(body), builder.current_bindings()
        roots = {p: b if has_adjoint(p.struct_info) else 0 for p, b in zip(params, bits, strict=True)}
        inner, seeds = sweep.inner(builder, forward, roots), {}
        for k, degree in degrees.items():
            name, info = getattr(results[k], "name", "result"), results[k].struct_info
            seeds[k] = Var(builder.unique(f"{name}_adjoint"), info)
            inner.zeros.degrees[seeds[k]] = degree
            inner.accumulate(results[k], seeds[k])
        inner.run()
        adjoints = [inner.adjoints.get(p) if roots[p] else None for p in params]
        found = [0 if a is None else inner.zeros.degree_of_any(a) for a in adjoints]
        bindings, env = _without_aliases(builder.current_bindings())
    rename = _renaming(env)
    twins: Twins = {v: VarBinding(t.var, rename.expr(t.value), span=t.span) for v, t in inner.twins.items()}
    results, adjoints = list(map(rename.expr, results)), [None if a is None else rename.expr(a) for a in adjoints]
    return Joint(params, results, seeds, adjoints, found, bindings, twins)


def _without_aliases(bindings: Iterable[Binding]) -> tuple[list[Binding], dict[Expr, Expr]]:
    """Bindings without those of variables and tuples to other names, and what these stand for."""
    kept: list[Binding] = []
    env: dict[Expr, Expr] = {}
    rename = _renaming(env)
    for binding in bindings:
        value = rename.expr(binding.value)
        if isinstance(binding, MatchCast):
            kept.append(MatchCast(binding.var, value, binding.target, span=binding.span))
        elif isinstance(value, (Var, Constant, Tuple)):
            env[binding.var] = value
        else:
            kept.append(VarBinding(binding.var, value, span=binding.span))
    return kept, env


def _renaming(env: dict[Expr, Expr]) -> ExprMutator:
    mutator = ExprMutator()
    mutator.env = env
    return mutator


class JoinTwins(ExprMutator):
    """Writes one call in the place of a branch or loop and its twin."""

    def __init__(self, twins: Twins) -> None:
        super().__init__()
        self.twins = twins

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.env:  # a twin
            return
        twin = self.twins.get(binding.var)
        if twin is None:
            super().rewrite_binding(binding)
            return
        is_local = isinstance(binding.var, DataflowVar)
        emit = self.builder.emit if is_local else self.builder.emit_output
        self.env[twin.var] = emit(self.expr(twin.value), binding.var.name)
        self.env[binding.var] = first_of(binding.var.struct_info, self.env[twin.var])

    def bind(self, var: Var, value: Expr) -> None:
        if isinstance(value, Tuple) and isinstance(var, DataflowVar):
            self.env[var] = value
        else:
            super().bind(var, value)


def first_of(info: StructInfo, value: Expr) -> Expr:
    """The first fields of a tuple, and of the tuples in it: as many as the type has."""
    if not isinstance(info, TupleStructInfo):
        return value
    return Tuple(tuple(first_of(field, TupleGetItem(value, k)) for k, field in enumerate(info.fields)))


def leaves(value: Any) -> list[Expr]:
    """The tensors in nested tuples."""
    info = value.struct_info
    if not isinstance(info, TupleStructInfo):
        return [value]
    fields = value.fields if isinstance(value, Tuple) else [TupleGetItem(value, k) for k in range(len(info.fields))]
    return [leaf for field in fields for leaf in leaves(field)]
