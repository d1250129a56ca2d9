"""Passes over graph functions: one pass a file, the file's name is the pass's."""

from typing import Any

from pullback.ir.pass_context import PassContext, PassInfo
from pullback.ir.passes import FunctionPass, ModulePass, Pass, PrintIR, Sequential, module_pass
from pullback.relax.transform.add_random_state import AddRandomState
from pullback.relax.transform.bind_params import BindParams
from pullback.relax.transform.bind_sizes import BindSizes
from pullback.relax.transform.canonicalize_bindings import CanonicalizeBindings
from pullback.relax.transform.dead_code_elimination import DeadCodeElimination
from pullback.relax.transform.decompose_ops import DecomposeOpsForInference, DecomposeOpsForTraining
from pullback.relax.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relax.transform.fold_constant import FoldConstant
from pullback.relax.transform.fold_scale import FoldScale
from pullback.relax.transform.fold_transpose import FoldTranspose
from pullback.relax.transform.fuse_ops import FuseOps
from pullback.relax.transform.gradient import Gradient
from pullback.relax.transform.hoist_invariants import HoistInvariants
from pullback.relax.transform.hoist_sums import HoistSums
from pullback.relax.transform.inline_custom_gradients import InlineCustomGradients
from pullback.relax.transform.inline_functions import InlineFunctions
from pullback.relax.transform.join_step import JoinStep
from pullback.relax.transform.jvp import JVP
from pullback.relax.transform.legalize_ops import LegalizeOps
from pullback.relax.transform.lower_to_tir import LowerToTir
from pullback.relax.transform.mixed_precision import MixedPrecision, to_mixed_precision
from pullback.relax.transform.move_views import MoveViews
from pullback.relax.transform.normalize import Normalize
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.rebatch_inputs import RebatchInputs
from pullback.relax.transform.repeat_broadcasts import RepeatBroadcasts
from pullback.relax.transform.resolve_match_cast import ResolveMatchCast
from pullback.relax.transform.share_prefixes import SharePrefixes
from pullback.relax.transform.simplify import Simplify
from pullback.relax.transform.simplify_loops import SimplifyLoops
from pullback.relax.transform.split_gradient import SplitGradient
from pullback.relax.transform.sync_batch_norm import SyncBatchNorm
from pullback.relax.transform.unrounded_products import UnroundedProducts
from pullback.relax.transform.vmap import VMap

ToMixedPrecision = to_mixed_precision  # the reference's name


def __getattr__(name: str) -> Any:
    if name == "AppendLoss":  # its home is the room above
        from pullback.relax.training.utils import AppendLoss

        return AppendLoss
    raise AttributeError(f"there is no pass {name!r}")


__all__ = [
    "JVP",
    "AddRandomState",
    "BindParams",
    "BindSizes",
    "CanonicalizeBindings",
    "DeadCodeElimination",
    "DecomposeOpsForInference",
    "DecomposeOpsForTraining",
    "EliminateCommonSubexpr",
    "FoldConstant",
    "FoldScale",
    "FoldTranspose",
    "FunctionPass",
    "FuseOps",
    "Gradient",
    "HoistInvariants",
    "HoistSums",
    "InlineCustomGradients",
    "InlineFunctions",
    "JoinStep",
    "LegalizeOps",
    "LowerToTir",
    "MixedPrecision",
    "ModulePass",
    "MoveViews",
    "Normalize",
    "Pass",
    "PassContext",
    "PassInfo",
    "PrintIR",
    "RaiseOps",
    "RebatchInputs",
    "RepeatBroadcasts",
    "ResolveMatchCast",
    "Sequential",
    "SharePrefixes",
    "Simplify", "SimplifyLoops",
    "SplitGradient",
    "SyncBatchNorm",
    "ToMixedPrecision",
    "UnroundedProducts",
    "VMap",
    "module_pass",
]  # fmt: skip
