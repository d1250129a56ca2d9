"""Writing regions: those that save values for the adjoint, and the adjoint's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.boxes import is_handle, null
from pullback.relax.expr import Call, Expr, Function, MatchCast, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.relax.transform.joint_region import Joint


class RegionWriter:
    """Writes a region: first its parameters, then, in a block, bindings and results. ``env``: what variables of a
    :class:`Joint` stand for."""

    def __init__(self) -> None:
        self.builder = BlockBuilder()
        self.builder.begin()
        self.params: list[Var] = []
        self.env: dict[Expr, Expr] = {}

    def param(self, value: Any, name: str = "") -> Var:
        """One more parameter, of the type of a value."""
        param = Var(self.builder.unique(name or value.name), value.struct_info)
        self.params.append(param)
        return param

    def stand_in(self, var: Any) -> Var:
        """One more parameter, for a variable."""
        param = self.param(var)
        self.env[var] = param
        return param

    def write(self, joint: Joint, wanted: Sequence[Expr | None]) -> list[Any]:
        """The wanted expressions, with the bindings that they need; None stays None."""
        mutator = joint.write(self.builder, [w for w in wanted if w is not None], self.env)
        return [None if w is None else mutator.expr(w) for w in wanted]

    def outputs(self, values: Iterable[Expr]) -> Tuple:
        """Values as results, under names that leave the block."""
        promote, emit = self.builder.promote, self.builder.emit_output
        return Tuple(tuple(promote(v) if isinstance(v, Var) else emit(v) for v in values))

    def function(self, results: Expr, attrs: Mapping[str, Any]) -> Function:
        return Function(tuple(self.params), self.builder.finish(results), None, attrs)


def saving(
    region: Function,
    joint: Joint,
    more: Sequence[Expr],
    group: Callable[[list[Any]], Tuple],
    params: Mapping[int, Var] | None = None,
) -> Function:
    """The region with more results; ``group`` puts the outputs in their tuples. ``params``: of parameters that it has
    besides the places and the names in ``more``."""
    writer, all_params = RegionWriter(), list(joint.params)
    for k, param in (params or {}).items():
        all_params.insert(k, param)
    for param in all_params:
        writer.stand_in(param)
    checks = [b.var for b in joint.bindings if isinstance(b, MatchCast) and b.var not in joint.later]
    with writer.builder.dataflow():
        wanted = [*joint.results, *more]
        found = writer.write(joint, [*wanted, *checks])[: len(wanted)]
        results = group(list(writer.outputs(found).fields))
    return writer.function(results, region.attrs)


def add_twin(sweep: Any, var: Var, changed: Mapping[str, Function | None], args: Sequence[Expr] | None = None) -> Var:
    """The twin of the branch or loop ``var``: with regions that have more results, and with other ``args``. Calls among
    these are bound where the twin comes to stand."""
    call: Any = next(b.value for b in sweep.forward if b.var is var)
    args = call.args if args is None else tuple(args)
    value = Call(call.op, args, {**call.attrs, **changed}, span=call.span)
    twin = sweep.builder.emit(value, var.name)
    sweep.twins[var] = VarBinding(twin, value, span=sweep.builder.current_bindings()[-1].span)
    return twin


def item(value: Expr, *path: int) -> Expr:
    for k in path:
        value = value.fields[k] if isinstance(value, Tuple) else TupleGetItem(value, k)
    return value


def items(value: Any) -> list[Expr]:
    return [item(value, k) for k in range(len(value.struct_info.fields))]


def zeros_of(info: Any) -> Expr:
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise UserError(f"the adjoint of {format_info(info)} cannot be zeros of a known shape")
    return null(info.shape) if is_handle(info) else Op.get("zeros")(info.shape, info.dtype)
