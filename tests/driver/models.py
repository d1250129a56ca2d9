"""Trainer modules for tests, with values to train from."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import pullback
from pullback.ir import IRModule, Op
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import SGD
from pullback.relax.transform.plan_memory import flatten_info


def mlp(sizes: tuple[int, ...], batch: int) -> IRModule:
    """A backbone of dense layers with relu between them."""
    x = Var("x", TensorStructInfo((batch, sizes[0]), "float32"))
    params = []
    for k, (m, n) in enumerate(pairwise(sizes)):
        params += [Var(f"w{k}", TensorStructInfo((m, n), "float32")), Var(f"b{k}", TensorStructInfo((n,), "float32"))]
    builder = BlockBuilder()
    with builder.function("backbone", [x, *params]):
        with builder.dataflow():
            value = x
            for k in range(0, len(params), 2):
                value = Op.get("matmul")(value, params[k]) + params[k + 1]
                value = Op.get("nn.relu")(value) if k + 2 < len(params) else value
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": len(params), "state_num": 0})


def mlp_trainer_module(sizes: tuple[int, ...] = (20, 12, 12, 12, 5), batch: int = 8, optimizer=None) -> IRModule:
    """The MLP with a summed cross entropy on class indices."""
    out = TensorStructInfo((batch, sizes[-1]), "float32")
    labels = TensorStructInfo((batch,), "int64")
    optimizer = optimizer or SGD(0.01 / batch, weight_decay=0.01)
    return SetupTrainer(CrossEntropyLoss("sum"), optimizer, [out, labels])(mlp(sizes, batch))


def step_arguments(module: IRModule) -> list[pullback.Tensor]:
    """Flat tensors for ``__step``, the same at every call."""
    from pullback.relax.transform.join_step import JoinStep

    rng = np.random.default_rng(0)
    step = JoinStep()(module)["__step"]
    classes = module["backbone"].ret_struct_info.shape[-1]
    tensors = []
    for param in step.params:
        for info in flatten_info(param.struct_info):
            if info.dtype == "int64":
                value = rng.integers(0, classes, info.shape) if info.shape else np.zeros((), "int64")
            else:
                value = (rng.standard_normal(info.shape) * 0.2).astype(info.dtype)
            tensors.append(pullback.tensor(value, copy=True))
    return tensors
