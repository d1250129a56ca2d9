"""The functions that fusion makes of a module."""

from __future__ import annotations

from pullback.ir.digest import structural_hash
from pullback.ir.module import IRModule
from pullback.relay.expr import Function
from pullback.relay.visitor import post_order


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """The primitive functions of a module after ``SimplifyInference`` and ``FuseOps(3)``, by their structural hashes:
    equal ones are one."""
    from pullback.relay.transform import FuseOps, SimplifyInference

    fused = FuseOps(3)(SimplifyInference()(mod))
    functions = (f for f in fused.functions.values() if isinstance(f, Function))
    nodes = (node for function in functions for node in post_order(function))
    return {structural_hash(n): n for n in nodes if isinstance(n, Function) and n.attrs.get("Primitive")}
