"""Draws of a rank's rows: what a function over the rows of one rank draws becomes its part of what one process would
draw for the rows of all ranks.

    y = R.dropout(x, site, p=0.1)        →        rank = R.ccl.rank()
                                                  keep = R.random.shard(
                                                      site, rank, draw="random.bernoulli", shape=(8, 64), num_workers=4,
                                                      axis=0, attrs=(("p", 0.9),)
                                                  )
                                                  y = R.where(keep, R.multiply(x, …), …)

An axis has the batch where it grows with the number of rows: that is seen in the same function for another number, or
in the symbolic size. Its places are taken to lie rank after rank, as those of rows do, and of (rows · n) elements that
were (rows, n). What has no such axis is drawn by all ranks alike. ``nn.mixup`` mixes the rows of one rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.control import CUSTOM, given_to_region
from pullback.relax.expr import Call, Expr, Function, Tuple, Var
from pullback.relax.matching import bind_size, match_info
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.distributed.shard import RANK
from pullback.relax.op.namespace import ops
from pullback.relax.op.random.draw import DRAWS
from pullback.relax.op_calls import OpCall, lacks_state, op_of
from pullback.relax.recursion import RECURSE, SELF
from pullback.relax.regions import regions
from pullback.relax.struct_info import Dim, StructInfo, TensorStructInfo, as_tensor, dim, format_shape
from pullback.relax.transform.add_random_state import free_name, refuse_draws_without_state
from pullback.relax.transform.decompose_ops import decompose_where
from pullback.relax.transform.inline_functions import over_regions
from pullback.relax.transform.rebatch_inputs import retyped
from pullback.tir.expr import Var as SizeVar
from pullback.tir.polynomial import same

Sizes = dict[SizeVar, Dim]


def shard_draws(function: Function, inputs: Collection[str], ranks: int) -> Function:
    """The function with the draws of one of ``ranks`` ranks, all of which have as many rows.

    ``function``: what it calls is inlined, and its draws have states (``AddRandomState``); ``inputs``: the names of its
    parameters that have a row for each of the batch, of a number or of one symbolic size. It calls ``R.ccl.rank()``,
    once, unless it draws nothing for rows; then it is returned as it is.

    Raises UserError for a draw without a state, for a random permutation of the batch, and where it is not to be seen
    what belongs to which row; ShapeError for a model that writes its number of rows out.
    """
    refuse_draws_without_state(function)
    if ranks == 1 or not any(True for _ in _draws(function, {})):
        return function
    rows = _rows(function, inputs)
    if isinstance(rows, int):
        other: Function | None = _for_rows(function, inputs, rows + 1)
    else:
        other = None
    _refuse_permutations(function, other, rows)
    function = _opened(function)
    axes = _axes(function, None if other is None else _opened(other), rows)
    if all(axis is None for axis in axes):
        return function
    return _Shard(ranks, iter(axes), None).function(function)


# -- what is drawn


def _is_draw(call: Call) -> TypeGuard[OpCall]:
    """Whether the call draws from a state."""
    if not isinstance(call.op, Op) or "state" not in call.op.signature.optional:
        return False
    return call.attrs.get("training", True) and not lacks_state(call)


def _draws(function: Function, sizes: Sizes) -> Iterator[tuple[Call, Sizes]]:
    """The calls that draw, those in regions too, in order; and what the symbolic sizes stand for there."""
    for binding in function.bindings:
        value = binding.value
        if not isinstance(value, Call):
            continue
        if _is_draw(value):
            yield value, sizes
        for name, region in regions(value):
            inner = dict(sizes)
            given = given_to_region(value.op, name, [a.struct_info for a in value.args])
            for param, info in zip(region.params, given, strict=False):
                _match(param.struct_info, info, inner)
            yield from _draws(region, inner)


def _match(wanted: StructInfo, given: StructInfo, sizes: Sizes) -> None:
    """What the sizes of a region's parameter stand for in the function around it."""
    found: Sizes = {}
    match_info(wanted, given, found)
    sizes.update({var: dim(bind_size(size, sizes)) for var, size in found.items() if size is not var})


def _opened(function: Function) -> Function:
    """What is made of a draw and other ops, such as dropout, written in these."""

    def wanted(call: Call) -> bool:
        return _is_draw(call) and call.op.short not in DRAWS

    return over_regions(function, IRModule({}), lambda f: decompose_where(f, wanted))


# -- which axis has the rows


def _rows(function: Function, inputs: Collection[str]) -> int | SizeVar:
    found: dict[Any, str] = {}
    for param in function.params:
        if param.name in inputs:
            shape = getattr(param.struct_info, "shape", None)
            if not shape:
                raise ShapeError(f"{param.name} has no rows, so they cannot be divided among ranks", span=param.span)
            found.setdefault(shape[0], param.name)
    if len(found) != 1:
        listed = ", ".join(f"{name}: {size}" for size, name in found.items()) or "none"
        raise ShapeError(f"draws are divided among ranks by the rows of the inputs, which are {listed}")
    (rows,) = found
    if not isinstance(rows, (int, SizeVar)):
        raise ShapeError(f"the number of rows must be a number or a symbol to divide draws among ranks, got {rows}")
    return rows


def _for_rows(function: Function, inputs: Collection[str], rows: int) -> Function:
    """The same function for another number of rows."""
    infos: list[StructInfo] = []
    for param in function.params:
        info = param.struct_info
        if param.name in inputs and isinstance(info, TensorStructInfo):
            info = TensorStructInfo((rows, *info.sizes[1:]), info.dtype)
        infos.append(info)
    try:
        return retyped(function, infos)
    except UserError as error:
        raise ShapeError(
            f"what the model draws cannot be divided among ranks: with {rows} rows, {error.message}",
            span=error.span,
            hint='make the batch dimension symbolic: x: R.Tensor(("n", …), …), and use -1 in reshapes',
        ) from error


def _axes(function: Function, other: Function | None, rows: int | SizeVar) -> list[int | None]:
    """The axis of the rows of each draw, in order; ``other`` is the function for one row more."""
    found = [(call, sizes) for call, sizes in _draws(function, {})]
    if isinstance(rows, SizeVar):
        return [_symbolic_axis(call, sizes, rows) for call, sizes in found]
    assert other is not None
    others = [call for call, _ in _draws(other, {})]
    assert [c.op for c, _ in found] == [c.op for c in others]
    return [_axis(call, more, rows) for (call, _), more in zip(found, others, strict=True)]


def _shape(call: Call) -> Sequence[Dim]:
    return as_tensor(call.struct_info).sizes


def _axis(call: Call, other: Call, rows: int) -> int | None:
    shape, more = _shape(call), _shape(other)
    grown = [k for k, (a, b) in enumerate(zip(shape, more, strict=True)) if a != b]
    proportional = [k for k in grown if shape[k] * (rows + 1) == more[k] * rows]
    return _only(call, grown, proportional)


def _symbolic_axis(call: Call, sizes: Sizes, rows: SizeVar) -> int | None:
    shape = [bind_size(s, sizes) for s in _shape(call)]
    at_one = [bind_size(s, {rows: 1}) for s in shape]
    grown = [k for k, (a, b) in enumerate(zip(shape, at_one, strict=True)) if not same(a, b)]
    proportional = [k for k in grown if same(shape[k], rows * at_one[k])]
    return _only(call, grown, proportional)


def _only(call: Call, grown: Sequence[int], proportional: Sequence[int]) -> int | None:
    if not grown:
        return None
    if len(grown) == 1 and grown == proportional:
        return grown[0]
    what = "several axes have" if len(grown) > 1 else "an axis has, with more than its rows,"
    raise UserError(
        f"{op_of(call).short} of the shape {format_shape(_shape(call))} cannot be divided among ranks:"
        f" {what} the batch",
        span=call.span,
        hint="draw numbers for each row of the batch, (rows, …), or the same ones for all rows",
    )


def _refuse_permutations(function: Function, other: Function | None, rows: int | SizeVar) -> None:
    """A permutation of the rows of all ranks is none of each rank's rows."""
    others = [None] * sum(1 for _ in _draws(function, {})) if other is None else [c for c, _ in _draws(other, {})]
    for (call, sizes), more in zip(_draws(function, {}), others, strict=True):
        if op_of(call).short != "random.permutation":
            continue
        (n,) = _shape(call)
        if more is not None:
            grows = n != _shape(more)[0]
        else:
            assert isinstance(rows, SizeVar)
            grows = not same(bind_size(n, sizes), bind_size(bind_size(n, sizes), {rows: 1}))
        if grows:
            raise UserError(
                "random.permutation of the rows of a batch cannot be divided among ranks: it moves rows between them",
                span=call.span,
                hint="permute the rows before they are given to fit, or those of the data set; nn.mixup mixes rows",
            )


# -- the function of a rank


class _Shard(ExprMutator):
    """``axes``: those of the draws to come. ``rank``: the parameter of a region that has the rank; None: this is the
    function itself, and asks for it."""

    def __init__(self, ranks: int, axes: Iterator[int | None], rank: Var | None, labels: Collection[str] = ()) -> None:
        super().__init__()
        self.ranks, self.axes, self.labels = ranks, axes, labels
        self._rank: Expr | None = rank

    @property
    def rank(self) -> Expr:
        """The rank, in the function or region that is being written."""
        assert self._rank is not None
        return self._rank

    def block(self, block: Any) -> None:
        if self._rank is None:
            self._rank = self.builder.emit_output(ops.ccl.rank(), "rank")
        super().block(block)

    def rewrite_call(self, call: Call) -> Expr:
        if call.op is SELF and call.attrs["label"] in self.labels:
            operands = Tuple((*call.args[0].fields, self.rank))
            return Call(call.op, (operands,), call.attrs, call.sinfo_args, span=call.span)
        if _is_draw(call):
            return self.draw(call, next(self.axes))
        found = dict(regions(call))
        return self.control(call, found) if found else call

    def draw(self, call: Call, axis: int | None) -> Expr:
        if axis is None:
            return call
        attrs = dict(call.attrs)
        shape = attrs.pop("shape")
        given = tuple(sorted(attrs.items()))
        (state,) = call.args
        return ops.random.shard(state, self.rank, op_of(call).short, shape, self.ranks, axis, given)

    def control(self, call: Call, found: Mapping[str, Function]) -> Expr:
        """A call whose regions draw gets the rank as its last operand."""
        count = {name: sum(1 for _ in _draws(region, {})) for name, region in found.items()}
        axes = {name: [next(self.axes) for _ in range(count[name])] for name in found}
        if all(axis is None for own in axes.values() for axis in own):
            return call
        *others, operands = call.args
        attrs = dict(call.attrs)
        for name, region in found.items():
            at = len(operands.fields) if call.op is CUSTOM else len(region.params)
            attrs[name] = self.region(call, region, at, axes[name])
        operands = Tuple((*operands.fields, self.rank))
        return Call(call.op, (*others, operands), attrs, span=call.span)

    def region(self, call: Call, region: Function, at: int, axes: Sequence[int | None]) -> Function:
        rank = Var(free_name("rank", region), RANK)
        labels = {*self.labels, call.attrs["label"]} if call.op is RECURSE else set(self.labels)
        found = _Shard(self.ranks, iter(axes), rank, labels).function(region)
        params = (*found.params[:at], rank, *found.params[at:])
        return Function(params, found.body, None, found.attrs, span=found.span)
