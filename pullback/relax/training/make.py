"""The short way: a trainer from a model, a loss and an optimizer in one call."""

from __future__ import annotations

from functools import partial
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.words import explained
from pullback.relax.convention import BACKBONE, PARAMETER
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.training.adapters import initial
from pullback.relax.training.distribution import Distribution
from pullback.relax.training.initializers import Initializer, by_pattern, drawn, match
from pullback.relax.training.loss import Loss
from pullback.relax.training.optimizer import Optimizer
from pullback.relax.training.setup_trainer import (
    SetupTrainer,
    check_backbone,
    check_flush,
    check_loss_and_optimizer,
    check_model,
    check_precision,
    with_backbone,
)
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.distributed import Distributed
from pullback.runtime.device import Device
from pullback.runtime.ranks import start

_ONE_HOT = "one-hot"


@partial(explained, name="pullback.trainer")
def make_trainer(
    module: IRModule,
    loss: Loss,
    optimizer: Optimizer,
    *,
    target: Any = "llvm",
    device: Device | None = None,
    seed: int = 0,
    init: Any = "xavier",
    targets: StructInfo | str | list[StructInfo] | None = None,
    profile: bool = False,
    precision: str | None = None,
    flush_subnormals: bool = True,
    trainable: Any = None,
    distributed: Any = None,
) -> Trainer:
    """A trainer for a model: sets it up, compiles it for ``target`` and initialises its parameters.

    Args:
        module: has the function ``backbone`` (``predict`` in older programs), whose parameters are declared by
            ``R.Param`` and ``R.State`` or counted by the attributes ``param_num`` and ``state_num``.
        loss: a Loss of ``pullback.relax.training.loss``.
        optimizer: one of ``pullback.optim``.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).
        device: where values live; ``pullback.cpu()`` by default.
        seed: of the initial values, of the order in which ``fit`` takes the rows, and of what the model draws itself,
            as dropout does.
        init: "xavier" (uniform; biases zero; scales of normalisation layers ones) or "zeros"; or a dict from patterns
            of parameter names to initializers (``relax/training/initializers.py``) or their names: what no pattern
            matches is "xavier". States begin as zeros, the moving variances of batch norm as ones.
        targets: the types of the loss's targets; by default class indices (int64, one for each row) for a cross
            entropy, else the type of the prediction; "one-hot" stands for the prediction's type.
        profile: accepted as in other packages, without effect.
        precision: "bfloat16" or "float16" trains in mixed precision, as :class:`SetupTrainer` says.
        flush_subnormals: whether numbers below 1.2e-38 are taken for 0.
        trainable: patterns of the parameters that are trained, by default all that the model does not freeze.
        distributed: "data", "zero1", "zero2", "zero3" or a ``Distribution``: the ranks that mpirun started train
            together, as :func:`pullback.trainer` says.

    Returns:
        the trainer.
    """
    check_model(module)
    module = with_backbone(module)
    check_backbone(module)
    check_loss_and_optimizer(loss, optimizer)
    check_precision(precision)
    check_flush(flush_subnormals)
    chosen = _initializers(module, init)
    infos = [*_predictions(module, loss), *_targets(module, loss, targets)]
    legalize = False  # the compiler starts from the ops in any case
    setup = SetupTrainer(
        loss, optimizer, infos, legalize, precision, flush_subnormals, trainable, _over_ranks(distributed)
    )
    trainer = Trainer(module, int(module.attrs["param_num"]), setup)
    trainer.build(target, device, profile)
    trainer.seed(seed)
    trainer.init_states()
    if init != "zeros":
        trainer.xavier_uniform_init_params(seed)
    trainer.load_params(drawn(chosen, seed, {p.name: p.struct_info for p in module[BACKBONE].params}))
    return trainer


def _over_ranks(given: Any) -> Distributed | None:
    """Over which ranks a trainer is distributed, and how; None for one process that takes its batches as they are."""
    chosen = Distribution.of(given)
    if chosen is None:
        return None
    size = start().size
    return None if size == chosen.micro_batches == 1 else chosen.over(size)


def _initializers(module: IRModule, init: Any) -> dict[str, Initializer]:
    """Which parameters an initializer draws that ``init`` names; an ArgumentError for what is none."""
    if isinstance(init, str) and init in ("xavier", "zeros"):
        return {} if init == "zeros" else initial(module)
    roles = check_backbone(module)
    names = [module[BACKBONE].params[i].name for i in roles.taken(PARAMETER)]
    return initial(module) | match(by_pattern(init), names)


def _predictions(module: IRModule, loss: Loss) -> list[StructInfo]:
    """The types of the outputs that the loss takes."""
    info = module[BACKBONE].ret_struct_info
    return list(info.fields if isinstance(info, TupleStructInfo) else (info,))[: loss.num_backbone_outputs]


def _targets(module: IRModule, loss: Loss, asked: Any) -> list[StructInfo]:
    prediction = _predictions(module, loss)[0]
    if isinstance(asked, StructInfo):
        return [asked]
    if isinstance(asked, (list, tuple)):
        return list(asked)
    if asked is not None and not (isinstance(asked, str) and asked == _ONE_HOT):
        raise ArgumentError(
            f'targets must be a struct info, a list of them, or "{_ONE_HOT}", got {asked!r}',
            hint='R.Tensor((64,), "int64"), or "one-hot"',
        )
    if not isinstance(prediction, TensorStructInfo) or prediction.shape is None:
        raise ArgumentError("the type of the targets cannot be told from the prediction's", hint="give targets=…")
    return [prediction] if asked is not None else loss.default_targets(prediction)
