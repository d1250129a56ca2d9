"""How a trainer module is distributed over ranks: its attribute ``distributed``, as :class:`Distributed`.

    I.module_attrs({"distributed": {"ranks": 4, "stage": 2, "micro_batches": 1, "batch": "even", …}})

Each of ``ranks`` ranks runs the same step on its rows of the batch; ``micro_batches`` says into how many *shards* it
cuts these again. ``stage`` is that of ZeRO (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models, 2020): what a rank holds only its pieces of.

    0   nothing: data parallel
    1   optimizer states
    2   and gradients
    3   and parameters

``batch``: "even", all shards have equally many rows; "uneven", a rank is a shard, and some have one row more; "same",
all ranks compute the whole batch, which counts once. :meth:`Distributed.of_batch` says which it is for some rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.convention import OPTIMIZER, PARAMETER, Convention, Value
from pullback.relax.struct_info import StructInfo, TensorStructInfo, flat_infos
from pullback.runtime.collectives import piece_length

DISTRIBUTED = "distributed"
BATCHES = ("even", "uneven", "same")
BUCKET_BYTES = 4 << 20  # a message of so many takes 0.4 ms at 10 GB/s: what it costs to send one, some 10 µs, is little
STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Distributed:
    """See above. ``bucket_bytes``: gradients are sent together until they have so many."""

    ranks: int
    stage: int = 0
    micro_batches: int = 1
    sync_batch_norm: bool = True
    bucket_bytes: int = BUCKET_BYTES
    deterministic: bool = False  # no sum depends on how the shards lie on ranks
    draws: bool = False  # the model draws random numbers, by the number of the row
    batch: str = "even"

    @property
    def shards(self) -> int:
        """Into how many parts a batch is cut, on all ranks together."""
        return self.ranks * self.micro_batches

    def of_batch(self, rows: int) -> Distributed:
        """The same for a batch of so many rows, on all ranks together.

        Rows that the shards cannot share evenly are divided among the ranks unevenly, or computed by all of them: of
        fewer rows than ranks, and where what is computed would depend on the number of ranks otherwise.
        """
        if rows % self.shards == 0:
            return replace(self, batch="even")
        is_same = self.deterministic or self.draws or rows < self.ranks
        return replace(self, batch="same" if is_same else "uneven", micro_batches=1)

    @property
    def attribute(self) -> dict[str, Any]:
        """As plain values, which can be printed."""
        return asdict(self)

    @staticmethod
    def of(module: IRModule) -> Distributed | None:
        """What a module's attribute says; None where it has none."""
        attribute = module.attrs.get(DISTRIBUTED)
        if attribute is None:
            return None
        try:
            found = Distributed(**attribute)
        except TypeError as error:
            raise ArgumentError(f"the module attribute {DISTRIBUTED!r} is not understood: {error}", hint=_HOW) from None
        for name, known in (("stage", STAGES), ("batch", BATCHES)):
            if getattr(found, name) not in known:
                raise ArgumentError(
                    f"the module attribute {DISTRIBUTED!r} has {name} {getattr(found, name)!r}; there are:"
                    f" {', '.join(map(repr, known))}",
                    hint=_HOW,
                )
        return found


_HOW = "relax.training.DataParallel(Mesh(data=4))(module) writes it"


def held_as_pieces(module: IRModule) -> Mapping[Value, TensorStructInfo]:
    """What a rank holds its piece of: for each such value of the convention, the type of that piece."""
    distributed, convention = Distributed.of(module), Convention.of(module)
    if distributed is None or not distributed.stage:
        return {}
    takes = convention[OPTIMIZER].takes
    infos: list[StructInfo] = [i for p in module[OPTIMIZER].params for i in flat_infos(p.struct_info)]
    types = dict(zip(takes, infos, strict=True))
    labels = module.attrs.get("training", {}).get("optimizer_states", ())
    names = dict(zip(convention.optimizer_states, labels, strict=False))
    params = {p.name: p.struct_info for p in module["backbone"].params}
    result: dict[Value, TensorStructInfo] = {}
    for value in convention.optimizer_states:
        info = types[value]
        owner = params.get(names.get(value, "").partition(" of ")[2])
        if isinstance(info, TensorStructInfo) and owner is not None and _same_shape(info, owner):
            result[value] = piece_info(info, distributed.ranks)
    if distributed.stage == 3:
        result |= {v: piece_info(types[v], distributed.ranks) for v in takes if v[0] == PARAMETER}
    return result


def piece_info(info: Any, ranks: int) -> TensorStructInfo:
    """The type of a rank's piece of a tensor."""
    elements = 1
    for size in info.sizes:
        elements *= size
    return TensorStructInfo((piece_length(elements, ranks),), info.dtype)


def _same_shape(info: TensorStructInfo, other: Any) -> bool:
    return tuple(info.sizes) == tuple(other.sizes) and len(info.sizes) > 0
