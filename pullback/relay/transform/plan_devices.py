"""PlanDevices: which device computes what. There is one here, so every expression is on it, and nothing changes.

on_device(%x, …)      →      %x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_call


@dataclass(frozen=True)
class PlanDevices(FunctionPass):
    """Take out what says on which device an expression is computed, and copies between devices: ``config``, the
    reference's description of devices, has one CPU.

    Checks: ``config`` is not read.
    """

    config: Any = None

    def function(self, function: Function, module: IRModule) -> Function:
        return _OneDevice().visit(function)


class _OneDevice(CallRewriter):
    def rewrite(self, old: Call, new: Call) -> Expr | None:
        return new.args[0] if is_call(new, "on_device", "device_copy") else None
