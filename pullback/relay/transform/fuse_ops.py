"""FuseOps: ops that one kernel computes become calls of functions that are marked ``Primitive``.

    exp(add(%x, 1f))      →      %1 = fn (%p0: Tensor[(10, 20), float32], Primitive=1) {
                                   %0 = add(%p0, 1f);
                                   exp(%0)
                                 };
                                 %1(%x)

Which ops these are follows from the pattern of each (``fusion_groups.py``). The level is the context's, or the one that
is given: at 0 each op has a function of its own. ``relay.FuseOps.max_depth`` limits the nodes of a function, and with
``relay.FuseOps.link_params`` constants stand inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.pass_context import PassContext, register_option
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relay.op.registry import Op
from pullback.relay.transform.fusion_groups import Group, groups_of
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import is_primitive
from pullback.relay.ty import TensorType
from pullback.relay.visitor import ExprMutator, post_order

MAX_DEPTH = register_option("relay.FuseOps.max_depth", int)
LINK_PARAMS = register_option("relay.FuseOps.link_params", bool)
_MOST = 256  # nodes of one function

_NOT_COMPUTED = ("on_device",)  # no kernel
_RESHAPES = (
    "contrib_reverse_reshape", "dyn.reshape", "expand_dims", "nn.batch_flatten", "reshape", "reshape_like", "squeeze",
)  # fmt: skip


@dataclass(frozen=True)
class FuseOps(FunctionPass):
    """Put ops together into functions marked ``Primitive``; ``fuse_opt_level`` -1 is the context's level.

    Checks: types are known. An opaque op stays alone, and calls of functions stay.
    """

    fuse_opt_level: int = -1

    typed = True
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        context = PassContext.current()
        level = context.opt_level if self.fuse_opt_level < 0 else self.fuse_opt_level
        groups = groups_of(function, level, context.option(MAX_DEPTH, _MOST))
        return _Fuse(groups, bool(context.option(LINK_PARAMS, False))).visit(function)


class _Inputs:
    """What a group's function is called with."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.arguments: list[Expr] = []

    def param(self, argument: Expr, type_: Any) -> Var:
        for param, known in zip(self.params, self.arguments, strict=True):
            if known is argument:
                return param
        self.params.append(Var(f"p{len(self.params)}", type_))
        self.arguments.append(argument)
        return self.params[-1]


class _Fuse(ExprMutator):
    def __init__(self, groups: dict[Any, Group], link_params: bool) -> None:
        super().__init__()
        self.groups, self.link_params = groups, link_params
        self.inputs: dict[Group, _Inputs] = {}

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op) or call.op.name in _NOT_COMPUTED:
            return super().visit_call(call)
        if call.op.name == "annotation.stop_fusion":
            return self.visit(call.args[0])
        group = self.groups[call].root()
        new = Call(call.op, self._arguments(call.args, group), call.attrs, call.type_args, span=call.span)
        return self._called(group, call, new) if group.root_ref is call else new

    def visit_tuple(self, tuple_: Tuple) -> Expr:
        group = self.groups[tuple_].root()
        if group.root_ref is tuple_:
            return super().visit_tuple(tuple_)
        return Tuple(self._arguments(tuple_.fields, group), span=tuple_.span)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        group = self.groups[item].root()
        if group.root_ref is item and self.groups[item.tuple_value].root() is not group:
            return super().visit_tuple_getitem(item)
        new = TupleGetItem(self._arguments((item.tuple_value,), group)[0], item.index, span=item.span)
        return self._called(group, item, new) if group.root_ref is item else new

    def _arguments(self, args: Sequence[Expr], group: Group) -> tuple[Expr, ...]:
        found = []
        for arg in args:
            new = self.visit(arg)
            linked = self.link_params and isinstance(new, Constant)
            if self.groups[arg].root() is not group and not linked:
                new = self.inputs.setdefault(group, _Inputs()).param(new, arg.checked_type)
            found.append(new)
        return tuple(found)

    def _called(self, group: Group, old: Expr, body: Expr) -> Call:
        """A call of the function that computes the group."""
        inputs = self.inputs.get(group, _Inputs())
        calls = [node.op for node in post_order(body) if isinstance(node, Call)]
        attrs = {"Primitive": int(bool(calls))}
        if calls and _only_reshapes(calls, inputs.params):
            attrs["relay.reshape_only"] = 1
        function = Function(tuple(inputs.params), body, old.checked_type, (), Attrs(attrs), span=old.span)
        return Call(function, tuple(inputs.arguments), span=old.span)


def _only_reshapes(ops: Sequence[Any], params: Sequence[Var]) -> bool:
    named = all(isinstance(op, Op) and op.name in _RESHAPES for op in ops)
    return named and all(isinstance(p.type_annotation, TensorType) for p in params)
