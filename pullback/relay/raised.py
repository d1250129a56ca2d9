"""From the graph IR back to relay: a graph function of straight code as relay expressions.

Ops of the graph IR are operators of relay under their full names, so each binding is one call, and what a variable
stands for is shared. ``names`` gives calls their names in relay where there are any: ``raised_names.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback import ir, relax
from pullback.ir.errors import UserError
from pullback.ir.node import Span, span_scope
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, span_of
from pullback.relay.op.meaning import type_of
from pullback.relay.op.registry import get
from pullback.runtime.tensor import tensor

Naming = Mapping[
    str, Callable[..., Expr | None]
]  # by full name: (arguments, attributes, call) → the expression, or None


Places = Callable[[relax.Call], "Span | None"]


def raised_body(
    function: relax.Function, arguments: Sequence[Expr], names: Naming | None = None, place: Places = span_of
) -> Expr:
    """What the function computes of the arguments, as an expression; ``place`` says which span a call gets.

    Raises UserError for branches, loops and calls of functions.
    """
    return _Raising(names or {}, function, arguments, place).result()


def raised(function: relax.Function, names: Naming | None = None) -> Function:
    """The function in relay, with parameters of the same names and types.

    >>> raised(module["main"])
    """
    params = [Var(p.name, type_of(p.struct_info)) for p in function.params]
    return Function(tuple(params), raised_body(function, params, names))


class _Raising:
    def __init__(self, names: Naming, function: relax.Function, arguments: Sequence[Expr], place: Places) -> None:
        self.names, self.function, self.place = names, function, place
        self.values: dict[relax.Var, Expr] = dict(zip(function.params, arguments, strict=True))

    def result(self) -> Expr:
        body = self.function.body
        for block in body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self.expr(binding.value)
        return self.expr(body.body)

    def expr(self, value: relax.Expr | relax.GlobalVar) -> Expr:
        if isinstance(value, relax.Var):
            return self.values[value]
        if isinstance(value, relax.Constant):
            return Constant(tensor(value.data, copy=True), span=value.span)
        if isinstance(value, relax.Tuple):
            return Tuple(tuple(self.expr(f) for f in value.fields), span=value.span)
        if isinstance(value, relax.TupleGetItem):
            return self.field(self.expr(value.tuple_value), value)
        if isinstance(value, relax.Call) and isinstance(value.op, ir.Op):
            return self.call(value, value.op)
        hint = "relay.lower and InlineFunctions make straight code of calls; branches and loops stay in the graph IR"
        raise UserError(f"{type(value).__name__} of the graph IR cannot be raised to relay", span=value.span, hint=hint)

    @staticmethod
    def field(whole: Expr, item: relax.TupleGetItem) -> Expr:
        """A field; of what is written as a tuple, the field itself."""
        return whole.fields[item.index] if isinstance(whole, Tuple) else TupleGetItem(whole, item.index, span=item.span)

    def call(self, call: relax.Call, op: ir.Op) -> Expr:
        args = [self.expr(a) for a in call.args]
        with span_scope(self.place(call)):
            found = self.names[op.name](args, call.attrs, call) if op.name in self.names else None
            if found is not None:
                return found
            given = (Tuple(tuple(args)),) if op.signature.variadic else tuple(args)
            return Call(get(op.name), given, Attrs(dict(call.attrs)))
