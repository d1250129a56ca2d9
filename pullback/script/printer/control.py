"""Functions inside of a graph function, and loops, as script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.op import Op
from pullback.relax.boxes import UNBOX
from pullback.relax.control import BRANCH, FORI, LOOP, SCAN, WHILE
from pullback.relax.expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    PrimValue,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from pullback.relax.recursion import SELF
from pullback.relax.struct_info import TupleStructInfo, same_info
from pullback.script.printer.branches import IfPrinter
from pullback.script.printer.layout import Lines
from pullback.script.printer.literals import attribute
from pullback.script.printer.types import quoted, sequence
from pullback.script.printer.uses import Dead, Uses
from pullback.tir.expr import PrimExpr
from pullback.tir.expr import Var as SizeVar

if TYPE_CHECKING:
    from pullback.script.printer.graph import GraphPrinter


def statement(printer: GraphPrinter, block: BindingBlock, number: int, lines: Lines, uses: Uses, place: int) -> int:
    """Write a binding, or several that are one statement; how many."""
    binding = block.bindings[number]
    value = binding.value
    if not isinstance(binding, VarBinding):
        printer.binding(binding, lines, uses.dead(place))
        return 1
    if isinstance(value, Function):
        around, is_dead = set(printer.behind[binding.var]), uses.dead(place)
        name = printer.name(binding.var, lambda s: is_dead(s) and s not in around)
        inner_function(printer, value, name, lines, printer.behind[binding.var])
        return 1
    names, count = _items(block, number, uses) if not printer.types else (None, 1)
    if isinstance(value, If):
        targets: list[Any] = names if names is not None and all(isinstance(n, Var) for n in names) else []
        ends = [b.body.fields for b in (value.then, value.otherwise) if isinstance(b.body, Tuple)]
        lasting = all(uses.last.get(t, -1) > place + len(targets) for t in targets)
        if len(targets) < 2 or not lasting or [len(e) for e in ends] != [len(targets)] * 2:
            IfPrinter(printer, value, [binding.var], False, uses, place).write(lines)
            return 1
        IfPrinter(printer, value, targets, True, uses, place).write(lines)
        return count
    if names is not None and isinstance(value, Call) and value.op in (WHILE, FORI, SCAN):
        is_dead = uses.dead(place + count - 1)
        printer.add(lines, lambda: _unpacked(printer, names, printer.expr(value), is_dead))
        return count
    printer.binding(binding, lines, uses.dead(place))
    return 1


def _items(block: BindingBlock, number: int, uses: Uses) -> tuple[list[Any] | None, int]:
    """The variables, in nested lists, of the items of a tuple that nothing else is done with than to take its items in
    order, and how many bindings that takes; None if that is not all."""
    whole = block.bindings[number]
    info, following = whole.var.struct_info, number + 1
    is_local = isinstance(whole.var, DataflowVar) == isinstance(block, DataflowBlock)
    if not isinstance(info, TupleStructInfo) or not is_local or uses.count.get(whole.var, 0) != len(info.fields):
        return None, 1
    if not info.fields or not same_info(info, whole.value.struct_info):
        return None, 1
    found: list[Any] = []
    for k in range(len(info.fields)):
        item = block.bindings[following] if following < len(block.bindings) else None
        value = item.value if isinstance(item, VarBinding) else None
        if (
            item is None
            or not isinstance(value, TupleGetItem)
            or value.tuple_value is not whole.var
            or value.index != k
        ):
            return None, 1
        if not same_info(item.var.struct_info, value.struct_info):
            return None, 1
        inner, count = _items(block, following, uses)
        found.append(item.var if inner is None else inner)
        following += count
    return found, following - number


def _unpacked(printer: GraphPrinter, names: Sequence[Any], value: str, may_take: Dead) -> str:
    def target(item: Any) -> str:
        return printer.name(item, may_take) if isinstance(item, Var) else sequence([target(i) for i in item])

    return f"{sequence([target(n) for n in names])} = {value}"


def inner_function(
    printer: GraphPrinter,
    function: Function,
    name: str,
    lines: Lines,
    around: Sequence[Var] = (),
    is_region: bool = False,
) -> None:
    """A function inside of the function, or a region. As in Python, a name that it gives is its own: it gives none of
    the variables ``around`` it that it reads."""
    read, kept = set(around), {*around, *function.params}
    with printer.names.saved():
        for param in function.params:
            printer.names.bind(param, lambda s: isinstance(s, Var) and s not in kept)
        uses = Uses(function.body, lambda s: s not in read, printer.behind)
        params = [f"{printer.names.get(p)}: {printer.signature_info(p.struct_info)}" for p in function.params]
        head = Lines(lines.level)
        if is_region:
            head.add("@R.region")
        printer.header(f"def {name}(", params, function.ret_struct_info, head)
        body = Lines(lines.level + 1)
        if function.attrs:
            body.add(f"R.func_attr({attribute(dict(function.attrs), printer.body_scalars, printer.info)})")
        printer.body(function, uses, body)
    lines.extend(head)
    lines.extend(body)


def _unbox(printer: GraphPrinter, call: Call) -> str | None:
    """``R.unbox(handle, types)``."""
    (info,) = call.sinfo_args or (None,)
    if not isinstance(info, TupleStructInfo) or call.attrs:
        return None
    return f"R.unbox({printer.expr(call.args[0])}, {sequence([printer.info(f) for f in info.fields])})"


def control_call(printer: GraphPrinter, call: Call) -> str | None:
    """A loop or a closed call as the function of R that builds it; None where none builds just this call."""
    op, args = call.op, call.args
    if op is SELF:
        return _call_self(printer, call)
    if op is UNBOX:
        return _unbox(printer, call)
    if not isinstance(op, Op):
        return None
    last = args[-3:] if op is LOOP else args[-2:] if op is SCAN else args[-1:]
    tuples = [t for t in last if isinstance(t, Tuple)]
    if len(tuples) < len(last) or set(call.attrs) != set(op.signature.attrs) or call.sinfo_args:
        return None
    items = [printer.expr(a) for a in args[: len(args) - len(tuples)]]
    if op is FORI and isinstance(args[0], PrimValue):
        count = args[0].value
        if type(count) is int and count >= 0:
            items[0] = str(count)
        elif isinstance(count, SizeVar):
            items[0] = printer.body_scalars.size(count)
    if op is LOOP and isinstance(args[0], Tuple):
        if args[0].fields:
            return None
        items[0] = "None"
    items += [sequence([printer.expr(f) for f in t.fields]) for t in tuples]
    for key, default in op.signature.attrs.items():
        value = call.attrs[key]
        if isinstance(value, Function):
            items.append(f"{key}={printer.region(value, key)}")
        elif key == "label" and type(value) is str:
            items.append(f"{key}={quoted(value)}")
        elif op is BRANCH or not (value is None or isinstance(value, PrimExpr) or type(value) in (bool, int)):
            return None
        elif value is not None and value is not default:
            items.append(f"{key}={attribute(value, printer.body_scalars)}")
    return f"R.{op.short}({', '.join(items)})"


def _call_self(printer: GraphPrinter, call: Call) -> str | None:
    (operands,), (info, *rest) = call.args, call.sinfo_args or (None,)
    label = call.attrs.get("label")
    if not isinstance(operands, Tuple) or not isinstance(info, TupleStructInfo) or rest:
        return None
    if set(call.attrs) != {"label"} or type(label) is not str:
        return None
    types = sequence([printer.info(f) for f in info.fields])
    values = sequence([printer.expr(f) for f in operands.fields])
    return f"R.call_self({values}, {quoted(label)}, {types})"
