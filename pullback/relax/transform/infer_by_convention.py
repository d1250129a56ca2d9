"""InferByConvention: the functions of a trainer module that predict take their form for inference.

    def backbone(x, gamma, beta, mean, var):                def backbone(x, gamma, beta, mean, var):
        y = R.nn.batch_norm(x, gamma, beta, mean, var)          lv = R.ewise_fma(x, scale, shift)
        …                                                →      y = (lv, mean, var)

A trainer module holds its model as the user wrote it, so that other batch sizes can be derived from it. The form for
inference is chosen where it is compiled: batch norm takes its moving statistics, and dropout drops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.convention import functions_for_inference
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.decompose_ops import DecomposeOpsForInference
from pullback.relax.transform.raise_ops import RaiseOps


@dataclass(frozen=True)
class InferByConvention(Pass):
    """Decompose ``backbone`` and ``__evaluate`` of a trainer module for inference; other modules stay as they are.

    Checks: the functions of the training step keep their ops as they were written.
    """

    def run(self, module: IRModule) -> IRModule:
        names = functions_for_inference(module)
        if not names:
            return module
        raised, result = RaiseOps()(module), module.copy()  # legalised ops have no form for inference
        for name in names:
            # without what only training draws, for which there is no state
            result[name] = remove_dead_bindings(DecomposeOpsForInference(name)(raised)[name])
        return result
