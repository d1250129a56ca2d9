"""relay's passes: one a file. Each says in its docstring what it makes of what."""

from __future__ import annotations

from typing import Any

from pullback.ir.instrument import PassInstrument, PassTimingInstrument, pass_instrument
from pullback.ir.pass_context import PassContext, PassInfo
from pullback.ir.passes import ModulePass, Pass, PrintIR, Sequential, module_pass, set_pass_of_name
from pullback.relay.transform.backward_fold_scale_axis import BackwardFoldScaleAxis
from pullback.relay.transform.canonicalize_cast import CanonicalizeCast
from pullback.relay.transform.canonicalize_ops import CanonicalizeOps
from pullback.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from pullback.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from pullback.relay.transform.combine_parallel_dense import CombineParallelDense
from pullback.relay.transform.defuse_ops import DefuseOps
from pullback.relay.transform.dynamic_to_static import DynamicToStatic
from pullback.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relay.transform.fast_math import FastMath
from pullback.relay.transform.fold_constant import FoldConstant, FoldConstantExpr
from pullback.relay.transform.fold_scale_axis import FoldScaleAxis
from pullback.relay.transform.forward_fold_scale_axis import ForwardFoldScaleAxis
from pullback.relay.transform.fuse_ops import FuseOps
from pullback.relay.transform.infer_type import InferType, InferTypeLocal
from pullback.relay.transform.infra import ApplyPassToFunction, FunctionPass, function_pass
from pullback.relay.transform.legalize import Legalize
from pullback.relay.transform.plan_devices import PlanDevices
from pullback.relay.transform.simplify_expr import SimplifyExpr
from pullback.relay.transform.simplify_inference import SimplifyInference
from pullback.relay.transform.split_args import SplitArgs

__all__ = [
    "ApplyPassToFunction", "BackwardFoldScaleAxis", "CanonicalizeCast", "CanonicalizeOps",
    "CombineParallelBatchMatmul", "CombineParallelConv2D", "CombineParallelDense", "DefuseOps", "DynamicToStatic",
    "EliminateCommonSubexpr", "FastMath", "FoldConstant", "FoldConstantExpr", "FoldScaleAxis", "ForwardFoldScaleAxis",
    "FunctionPass", "FuseOps", "InferType", "InferTypeLocal", "Legalize", "ModulePass", "Pass", "PassContext",
    "PassInfo", "PassInstrument", "PassTimingInstrument", "PlanDevices", "PrintIR", "Sequential", "SimplifyExpr",
    "SimplifyInference", "SplitArgs", "function_pass", "module_pass", "pass_instrument",
]  # fmt: skip


def _pass_of_name(name: str) -> Any:
    """The pass that others require by this name."""
    kind = globals().get(name) if name in __all__ else None
    return None if kind is None else kind()


set_pass_of_name(_pass_of_name)
