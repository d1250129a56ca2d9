"""A pass of the user's own between SetupTrainer and compile: here it clips each gradient to a norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import pullback
from pullback.ir import IRModule
from pullback.relax import BlockBuilder, Tuple, op, transform
from pullback.relax.analysis import check_well_formed
from pullback.relax.mutator import copy_with_new_vars, emit_body
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.relax.training.setup_trainer import ADJOINT
from tests.relax.training.models import mlp


@dataclass(frozen=True)
class ClipGradients(transform.Pass):
    """Scale every gradient whose norm is larger than ``limit`` down to it."""

    limit: float

    def run(self, module: IRModule) -> IRModule:
        adjoint = copy_with_new_vars(module[ADJOINT])
        builder = BlockBuilder(module)
        with builder.function(ADJOINT, adjoint.params):
            with builder.dataflow():
                results, gradients = emit_body(adjoint, {}, builder).fields
                loss = builder.emit_output(results, "loss_out")
                clipped = [builder.emit_output(self.clip(g), "clipped") for g in gradients.fields]
            builder.emit_func_output(Tuple((loss, Tuple(tuple(clipped)))))
        return builder.get()

    def clip(self, gradient):
        norm = op.sqrt(op.sum(op.multiply(gradient, gradient)))
        return op.multiply(gradient, op.minimum(op.divide(self.limit, norm), 1.0))


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("limit", [1e-3, 1e3])
def test_gradients_are_clipped(target: str, limit: float) -> None:
    info = pullback.relax.TensorStructInfo((4, 2), "float64")
    model = mlp(4, (3, 2), "float64")
    plain = SetupTrainer(MSELoss(), SGD(1.0), [info, info], legalize=False)(model)
    module = ClipGradients(limit)(plain)
    check_well_formed(module)
    trainers = []
    for m in (plain, module):
        machine = pullback.VirtualMachine(pullback.compile(m, target), pullback.cpu())
        trainers.append(Trainer(m, machine, pullback.cpu()))
        trainers[-1].xavier_uniform_init_params(seed=0)
    before = {k: v.numpy() for k, v in trainers[0].params.items()}
    x, y = np.random.default_rng(0).standard_normal((4, 5))[:, :3], np.ones((4, 2))
    assert trainers[0].update(x, y).item() == pytest.approx(trainers[1].update(x, y).item(), rel=1e-12)
    for name, old in before.items():
        gradient = old - trainers[0].params[name].numpy()
        clipped = gradient * min(1.0, limit / np.linalg.norm(gradient))
        np.testing.assert_allclose(old - trainers[1].params[name].numpy(), clipped, rtol=1e-6, atol=1e-15)
