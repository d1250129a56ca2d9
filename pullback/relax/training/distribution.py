"""Passes that distribute a trainer module over ranks, and the options of a trainer for it.

    >>> module = SetupTrainer(loss, optimizer, infos)(model)
    >>> module = DataParallel(Mesh(data=4))(module)
    >>> module = ZeRO(stage=2)(module)

The module's functions stay those of whole values and of any rows; its step (``JoinStep``) becomes that of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.convention import (
    ADJOINT,
    GRADIENT,
    LOSS,
    LOSS_SCALE,
    PARAMETER,
    RANDOM,
    Convention,
    is_trainer_module,
)
from pullback.relax.training.adjoint import with_adjoint
from pullback.relax.training.setup_trainer import source_digests
from pullback.relax.transform import RaiseOps
from pullback.relax.transform.distributed import BUCKET_BYTES, DISTRIBUTED, STAGES, Distributed
from pullback.relax.transform.join_step import JoinStep
from pullback.relax.transform.mixed_precision import HALF

NAMES = {"data": 0, "zero1": 1, "zero2": 2, "zero3": 3}
_HOW = 'pullback.trainer(net, loss, optimizer, distributed="data") sets a trainer up for several ranks'


@dataclass(frozen=True)
class Mesh:
    """The axes along which ranks divide the work: so far, ``data`` ranks divide the rows of a batch.

    Args:
        data: how many ranks there are, at least 1.

    Raises:
        ArgumentError: for another number of ranks.

    Examples:
        >>> from pullback.distributed import Mesh
        >>> Mesh(data=4).size
        4
    """

    data: int

    def __post_init__(self) -> None:
        if isinstance(self.data, bool) or not isinstance(self.data, int) or self.data < 1:
            raise ArgumentError(f"data must be a number of ranks, at least 1, got {self.data!r}", hint="Mesh(data=4)")

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.data


@dataclass(frozen=True)
class Distribution:
    """How a trainer is distributed over the ranks that mpirun started: ``pullback.trainer(…, distributed=…)``.

    Args:
        stage: 0 is data parallel; 1, 2 and 3 are the stages of ZeRO: each rank holds its pieces of optimizer states,
            then of gradients, then of parameters (Rajbhandari et al., 2020). "data", "zero1", "zero2" and "zero3" stand
            for them.
        deterministic: results depend on the number of shards (ranks · micro_batches) alone, bit for bit: 4 ranks do
            what one with 4 micro-batches does. (Runs with equally many ranks repeat in any case.)
        micro_batches: each rank cuts its rows into so many shards, which it computes one after another.
        sync_batch_norm: batch norm takes the statistics of all ranks' rows, as one process would; else those of each
            shard, and moving statistics are averaged.
        bucket_bytes: gradients are sent together until they have so many bytes.

    Raises:
        ArgumentError: for another stage, numbers below 1, and flags that are no bools.

    Examples:
        >>> options = pullback.distributed.Distribution(stage=1, micro_batches=2)
        >>> trainer = pullback.trainer(net, "cross_entropy", "adam", example=x, distributed=options)
    """

    stage: int = 0
    deterministic: bool = False
    micro_batches: int = 1
    sync_batch_norm: bool = True
    bucket_bytes: int = BUCKET_BYTES

    def __post_init__(self) -> None:
        if self.stage not in STAGES or isinstance(self.stage, bool):
            hint = "0 is data parallel, 1 to 3 are the stages of ZeRO"
            raise ArgumentError(f"stage must be one of 0, 1, 2, 3, got {self.stage!r}", hint=hint)
        for name in ("deterministic", "sync_batch_norm"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("micro_batches", "bucket_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} must be an int of at least 1, got {value!r}")

    def over(self, ranks: int) -> Distributed:
        """This, over so many ranks: what a trainer module says of it."""
        return Distributed(
            ranks, self.stage, self.micro_batches, self.sync_batch_norm, self.bucket_bytes, self.deterministic
        )

    @staticmethod
    def of(value: Any) -> Distribution | None:
        """What is meant by an argument ``distributed``."""
        if value is None or isinstance(value, Distribution):
            return value
        if isinstance(value, str) and value in NAMES:
            return Distribution(NAMES[value])
        known = ", ".join(map(repr, NAMES))
        more = suggestion(value, NAMES) if isinstance(value, str) else ""
        raise ArgumentError(
            f"distributed must be one of {known}, or a Distribution, got {value!r:.80}{more}",
            hint='distributed="data" divides the rows of each batch among the ranks',
        )


@dataclass(frozen=True)
class DataParallel(Pass):
    """Have the step of a trainer module divide each batch among the ranks of ``mesh``: see :class:`Distribution`.

        backbone_loss_adjoint(batch)        →        backbone_loss_adjoint(shard of a batch)

    Args:
        mesh: the ranks.
        micro_batches: into how many shards each rank cuts its rows.
        sync_batch_norm: whether batch norm takes the statistics of all ranks' rows, or those of each shard.
        bucket_bytes: gradients are sent together until they have so many bytes.
        deterministic: whether results depend on the number of shards alone, bit for bit.

    Examples:
        >>> from pullback.distributed import DataParallel, Mesh
        >>> module = DataParallel(Mesh(data=4), micro_batches=2)(trainer.mod)
        >>> module.attrs["distributed"]["ranks"]
        4

    Checks: raises UserError for what is no trainer module, ArgumentError for what is no ``Mesh``. The adjoint is taken
    anew, of the loss on a shard; JoinStep then adds up losses and gradients of all ranks.
    """

    mesh: Mesh
    micro_batches: int = 1
    sync_batch_norm: bool = True
    bucket_bytes: int = BUCKET_BYTES
    deterministic: bool = False

    def run(self, module: IRModule) -> IRModule:
        if not isinstance(self.mesh, Mesh):
            raise ArgumentError(f"DataParallel takes a Mesh, got {self.mesh!r:.80}", hint="DataParallel(Mesh(data=4))")
        _check_trainer_module(module, "DataParallel")
        draws = any(kind == RANDOM for kind, _ in Convention.of(module)[LOSS].takes)  # by the number of the row
        made = Distributed(
            self.mesh.size, 0, self.micro_batches, self.sync_batch_norm, self.bucket_bytes, self.deterministic, draws
        )
        return with_distribution(module, made)


@dataclass(frozen=True)
class ZeRO(Pass):
    """Have each rank hold its pieces of what the ``stage`` says, of a module that ``DataParallel`` distributed.

        stage 1        __step holds a piece of each optimizer state
        stage 2   →    … and of each gradient
        stage 3        … and of each parameter, which it gathers where it is read

    Args:
        stage: 1, 2 or 3.

    Examples:
        >>> from pullback.distributed import DataParallel, Mesh, ZeRO
        >>> module = ZeRO(stage=2)(DataParallel(Mesh(data=4))(trainer.mod))
        >>> module.attrs["distributed"]["stage"]
        2

    Checks: raises a UserError where the optimizer's update is no function of single elements. It also raises UserError
    for a module that DataParallel did not distribute, and ArgumentError for other stages than 1, 2 and 3.
    """

    stage: int

    def run(self, module: IRModule) -> IRModule:
        _check_trainer_module(module, "ZeRO")
        distributed = Distributed.of(module)
        if distributed is None:
            raise UserError("ZeRO divides what ranks hold, but the module is not distributed", hint=f"{_ORDER}; {_HOW}")
        if self.stage not in (1, 2, 3):
            raise ArgumentError(f"stage must be 1, 2 or 3, got {self.stage!r}", hint="ZeRO(stage=2)")
        result = module.with_attr(DISTRIBUTED, replace(distributed, stage=self.stage).attribute)
        JoinStep()(RaiseOps()(result))  # an error comes now, not when it is compiled
        return result


_ORDER = "apply DataParallel(Mesh(data=4)) first"


def with_distribution(module: IRModule, distributed: Distributed) -> IRModule:
    """The trainer module for these ranks: its adjoint is taken anew."""
    raised = RaiseOps()(module)
    record = dict(module.attrs["training"])
    result = raised.with_attr(DISTRIBUTED, distributed.attribute)
    convention = Convention.of(result)
    del result[ADJOINT]
    takes = convention[LOSS].takes
    trained = [takes.index((PARAMETER, i)) for kind, i in convention[ADJOINT].returns if kind == GRADIENT]
    has_scale = any(kind == LOSS_SCALE for kind, _ in convention[ADJOINT].takes)
    result = with_adjoint(result, trained, has_scale, record.get("precision") in HALF)
    known = record["source"]
    source = {name: digest for name, digest in source_digests(result).items() if name in known}
    return result.with_attr("training", record | {"source": source})


def _check_trainer_module(module: IRModule, name: str) -> None:
    if not is_trainer_module(module) or "training" not in module.attrs:
        raise UserError(
            f"{name} takes a trainer module: it divides the step that SetupTrainer made",
            hint=f"module = SetupTrainer(loss, optimizer, infos)(model); or {_HOW}",
        )
