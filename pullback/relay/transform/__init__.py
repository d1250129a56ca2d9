"""relay's passes: one a file. Each says in its docstring what it makes of what."""

from __future__ import annotations

import inspect

from pullback.ir.errors import UserError
from pullback.ir.instrument import PassInstrument, PassTimingInstrument, pass_instrument
from pullback.ir.pass_context import PassContext, PassInfo
from pullback.ir.passes import ModulePass, Pass, PrintIR, Sequential, module_pass, set_pass_of_name
from pullback.relay.transform.alter_op_layout import AlterOpLayout
from pullback.relay.transform.annotate_spans import AnnotateSpans
from pullback.relay.transform.backward_fold_scale_axis import BackwardFoldScaleAxis
from pullback.relay.transform.batching_ops import BatchingOps
from pullback.relay.transform.build_config import build_config
from pullback.relay.transform.canonicalize_cast import CanonicalizeCast
from pullback.relay.transform.canonicalize_ops import CanonicalizeOps
from pullback.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from pullback.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from pullback.relay.transform.combine_parallel_dense import CombineParallelDense
from pullback.relay.transform.convert_layout import ConvertLayout
from pullback.relay.transform.dead_code import DeadCodeElimination
from pullback.relay.transform.defunctionalization import Defunctionalization
from pullback.relay.transform.defuse_ops import DefuseOps
from pullback.relay.transform.dynamic_to_static import DynamicToStatic
from pullback.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relay.transform.eta_expand import EtaExpand
from pullback.relay.transform.fast_math import FastMath
from pullback.relay.transform.flatten_atrous_conv import FlattenAtrousConv
from pullback.relay.transform.fold_constant import FoldConstant, FoldConstantExpr
from pullback.relay.transform.fold_scale_axis import FoldScaleAxis
from pullback.relay.transform.forward_fold_scale_axis import ForwardFoldScaleAxis
from pullback.relay.transform.fuse_ops import FuseOps
from pullback.relay.transform.gradient import first_order_gradient, gradient
from pullback.relay.transform.infer_type import InferType, InferTypeLocal
from pullback.relay.transform.infra import ApplyPassToFunction, FunctionPass, function_pass
from pullback.relay.transform.inline import Inline
from pullback.relay.transform.lambda_lift import LambdaLift
from pullback.relay.transform.lazy_gradient_init import LazyGradientInit
from pullback.relay.transform.legalize import Legalize
from pullback.relay.transform.merge_composite import MergeComposite
from pullback.relay.transform.partial_evaluate import PartialEvaluate
from pullback.relay.transform.plan_devices import PlanDevices
from pullback.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from pullback.relay.transform.simplify_expr import SimplifyExpr
from pullback.relay.transform.simplify_inference import SimplifyInference
from pullback.relay.transform.split_args import SplitArgs
from pullback.relay.transform.standard import standard_passes
from pullback.relay.transform.to_anf import ToANormalForm, ToANormalFormExpr
from pullback.relay.transform.to_basic_block import ToBasicBlockNormalForm
from pullback.relay.transform.to_cps import ToCPS, UnCPS, to_cps, un_cps
from pullback.relay.transform.to_gnf import ToGraphNormalForm
from pullback.relay.transform.to_mixed_precision import ToMixedPrecision

__all__ = [
    "AlterOpLayout", "AnnotateSpans", "ApplyPassToFunction", "BackwardFoldScaleAxis", "BatchingOps",
    "CanonicalizeCast", "CanonicalizeOps", "CombineParallelBatchMatmul", "CombineParallelConv2D",
    "CombineParallelDense", "ConvertLayout", "DeadCodeElimination", "Defunctionalization", "DefuseOps",
    "DynamicToStatic", "EliminateCommonSubexpr", "EtaExpand", "FastMath", "FlattenAtrousConv", "FoldConstant",
    "FoldConstantExpr", "FoldScaleAxis", "ForwardFoldScaleAxis", "FunctionPass", "FuseOps", "InferType",
    "InferTypeLocal", "Inline", "LambdaLift", "LazyGradientInit", "Legalize", "MergeComposite", "ModulePass",
    "PartialEvaluate", "Pass", "PassContext", "PassInfo", "PassInstrument", "PassTimingInstrument", "PlanDevices",
    "PrintIR", "RemoveUnusedFunctions", "Sequential", "SimplifyExpr", "SimplifyInference", "SplitArgs",
    "ToANormalForm", "ToANormalFormExpr", "ToBasicBlockNormalForm", "ToCPS",
    "ToGraphNormalForm", "ToMixedPrecision", "UnCPS", "build_config",
    "first_order_gradient", "function_pass", "gradient", "module_pass", "pass_instrument", "standard_passes", "to_cps",
    "un_cps",
]  # fmt: skip


def _pass_of_name(name: str) -> Pass | None:
    """The pass that others require by this name; a UserError for one that takes arguments."""
    kind = globals().get(name) if name in __all__ else None
    if kind is None:
        return None
    try:
        inspect.signature(kind).bind()
    except TypeError:
        hint = "put it in front of the pass that requires it"
        raise UserError(f"{name} takes arguments, so it cannot be required by its name", hint=hint) from None
    found = kind()
    return found if isinstance(found, Pass) else None


set_pass_of_name(_pass_of_name)
