"""The passes that ``relay.optimize`` runs, in their order. Which of them run is up to the context's level:

with relay.transform.PassContext(opt_level=3):
    module, params = relay.optimize(module)
"""

from __future__ import annotations

from pullback.ir.passes import Sequential
from pullback.relay.transform.batching_ops import BatchingOps
from pullback.relay.transform.canonicalize_cast import CanonicalizeCast
from pullback.relay.transform.canonicalize_ops import CanonicalizeOps
from pullback.relay.transform.dynamic_to_static import DynamicToStatic
from pullback.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from pullback.relay.transform.fast_math import FastMath
from pullback.relay.transform.flatten_atrous_conv import FlattenAtrousConv
from pullback.relay.transform.fold_constant import FoldConstant
from pullback.relay.transform.fold_scale_axis import FoldScaleAxis
from pullback.relay.transform.infer_type import InferType
from pullback.relay.transform.legalize import Legalize
from pullback.relay.transform.simplify_expr import SimplifyExpr
from pullback.relay.transform.simplify_inference import SimplifyInference


def standard_passes() -> Sequential:
    """Optimizations for inference: at level 2 norms in simpler ops, algebra and constants; at 3 scales in weights and
    equal calls merged as well; at 4 parallel branches combined, and elementary functions less exact.

        multiply(nn.dropout(%x, rate=0.5f).0, add(1f, 2f))      →      multiply(%x, 3f)

    Checks: those of the passes. What is above the context's level does not run.
    """
    steps = [
        InferType(), DynamicToStatic(), Legalize(), SimplifyInference(), EliminateCommonSubexpr(), SimplifyExpr(),
        BatchingOps(), FoldConstant(), FoldScaleAxis(), CanonicalizeCast(), CanonicalizeOps(), FlattenAtrousConv(),
        FastMath(), FoldConstant(),
    ]  # fmt: skip
    return Sequential(steps, name="standard_passes")
