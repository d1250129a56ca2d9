"""What an exported trainer is, as data: its tensors with their places, its functions, its values, its checkpoints.

Everything that the C tables, the header and the manifest say is read from here; ``native/program.h`` has the same
structures in C.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pullback.deploy.folding import folded_values
from pullback.deploy.functions import Planned, plan_functions
from pullback.deploy.targets import Platform
from pullback.ir.errors import ArgumentError, TargetError
from pullback.relax.convention import (
    DIVISOR_VALUE,
    EVALUATE,
    INPUT,
    OF_OPTIMIZER,
    OPTIMIZER_STATE,
    OUTPUT,
    PARAMETER,
    RANDOM,
    STATE,
    TARGET,
    Value,
)
from pullback.relax.matching import bind_sizes
from pullback.relax.struct_info import symbolic_vars
from pullback.relax.training.checkpoint import fixed_metadata, key_of
from pullback.relax.training.checkpoint_file import announced
from pullback.relax.training.data import has_labels
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss.base import class_axis
from pullback.relax.training.trainer import Trainer
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from pullback.tir.stmt import Recur

ALIGNMENT = 64
_OPTIONAL_METADATA = ("optimizer_states", "hyperparameters", "loss", "training")  # older files lack them
BARE_SIZES = {"struct pb_model": 640, "struct pb_pool": 64, "pb_data_column": 8, "void *": 4}  # whole lines of memory
_CHECKPOINT_BYTES = 2048  # of its metadata's entries, and of what is read at a time
_SLACK = 1024  # bytes that another writer's header may be longer


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a batch, or one that is kept. ``offset``: of what is kept, from its beginning. ``constant``: the
    values of what is folded into the functions, which lies in no instance."""

    kind: str
    name: str
    key: str | None
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0
    has_rows: bool = False
    is_label: bool = False
    constant: np.ndarray | None = field(default=None, compare=False)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def row_elements(self) -> int:
        return math.prod(self.shape[1:]) if self.has_rows else 0

    @property
    def announced(self) -> str | None:
        return None if self.key is None else announced(self.key, self.dtype, self.shape).decode()


@dataclass(frozen=True)
class FunctionEntry:
    """A compiled function: where each of its buffers lies (place, number), and its results' offsets."""

    planned: Planned
    buffers: tuple[tuple[str, int], ...]
    result_bytes: int
    results: Mapping[tuple[str, int], int]
    dtypes: Mapping[tuple[str, int], str]


@dataclass(frozen=True)
class Variant:
    """The functions for one CPU of a platform."""

    cpu: str
    target: Target
    functions: Mapping[str, FunctionEntry]

    @property
    def arena_bytes(self) -> int:
        return max(f.planned.layout.arena_bytes for f in self.functions.values())

    @property
    def result_bytes(self) -> int:
        return max(f.result_bytes for f in self.functions.values())

    @property
    def constants(self) -> list[np.ndarray]:
        """Those of all functions, each once."""
        found: dict[bytes, np.ndarray] = {}
        for function in self.functions.values():
            for array in function.planned.constants:
                found.setdefault(constant_key(array), array)
        return list(found.values())


def constant_key(array: np.ndarray) -> bytes:
    """What tells constants apart."""
    return array.dtype.str.encode() + repr(array.shape).encode() + np.ascontiguousarray(array).tobytes()


@dataclass(frozen=True)
class Program:
    """A trainer as it is exported for a platform."""

    name: str
    platform: Platform
    batch: int
    inputs: tuple[TensorEntry, ...]
    targets: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    kept: tuple[TensorEntry, ...]
    variants: tuple[Variant, ...]
    initial: bytes  # of what is kept, up to the last value that is not zero
    classes: int  # axis of the classes in output 0; -1: the loss has none
    ignored: int | None
    adds_up: bool
    metadata: Mapping[str, tuple[str, bool, bool]]  # text, whether it must match, whether it may be missing
    header_bytes: int
    hyperparameters: Mapping[str, tuple[tuple[int, ...], float | None, float | None]]
    random: Mapping[str, Any]  # the state of NumPy's generator
    epochs: int

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        return self.inputs + self.targets + self.outputs + self.kept

    @cached_property
    def kept_bytes(self) -> int:
        return max((aligned(t.offset + t.nbytes) for t in self.kept if t.constant is None), default=0)

    @property
    def constants(self) -> list[np.ndarray]:
        """Those of all functions, and what is folded into these as checkpoints have it; each once."""
        arrays = [array for variant in self.variants for array in variant.constants]
        arrays += [t.constant for t in self.kept if t.constant is not None]
        return list({constant_key(array): array for array in arrays}.values())

    @property
    def needs_heap(self) -> bool:
        """Whether a function allocates memory while it runs."""
        return any(f.planned.needs_heap for v in self.variants for f in v.functions.values())

    @property
    def instance_bytes(self) -> int | None:
        """What ``NAME_bytes(1)`` returns where threads take nothing, so that memory can be a static array; else None.
        ``native/model.c`` and ``checkpoint_read.c`` lay it out; NAME.c asserts that the sizes of structures are these.
        """
        if not self.platform.bare:
            return None
        columns, kept = len(self.inputs) + len(self.targets), len(self.kept)
        arena = max(v.arena_bytes for v in self.variants)
        buffers = max(len(f.buffers) for v in self.variants for f in v.functions.values())
        checkpoint = aligned(self.header_bytes + 1) + aligned(8 * kept) + aligned(4 * kept) + _CHECKPOINT_BYTES
        return (
            BARE_SIZES["struct pb_model"]
            + BARE_SIZES["struct pb_pool"]
            + self.kept_bytes
            + self.batch_bytes
            + aligned(max(v.result_bytes for v in self.variants))
            + aligned(columns * BARE_SIZES["pb_data_column"])
            + aligned(columns * BARE_SIZES["void *"])
            + aligned(buffers * BARE_SIZES["void *"])
            + aligned(max(arena, checkpoint))
        )

    @property
    def batch_bytes(self) -> int:
        return sum(aligned(t.nbytes) for t in self.inputs + self.targets)

    @property
    def steps(self) -> int:
        """The number of the kept tensor that counts steps."""
        return next(i for i, t in enumerate(self.kept) if t.kind == OPTIMIZER_STATE)

    @property
    def by_key(self) -> list[int]:
        """The numbers of what is kept, in the order of their keys."""
        return sorted(range(len(self.kept)), key=lambda i: str(self.kept[i].key))


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def program_of(
    trainer: Trainer,
    name: str,
    platform: Platform,
    batch: int,
    sizes: Mapping[str, int],
    names: tuple[str, ...],
    fold_frozen: bool = False,
) -> Program:
    """Plan a trainer for all CPUs of a platform. ``fold_frozen``: what no step changes becomes constants."""
    trainer._values.check_complete(trainer._interface)
    interface = _fixed(trainer._interface, batch, sizes)
    values = [np.asarray(value) for value in trainer._values.all]
    constants = folded_values(trainer) if fold_frozen else {}
    kept, initial = _kept(interface, values, constants)
    variants = []
    for cpu, target in platform.targets.items():
        planned = plan_functions(trainer, target, batch, sizes, names, constants)
        _check_heap(platform, planned)
        variants.append(Variant(cpu, target, {n: _function(f, interface) for n, f in planned.items()}))
    record, first = interface.record, variants[0].functions
    predict = first.get("predict") or first["predict_one"]
    outputs = _outputs(predict.planned, batch)
    metadata = {
        key: (text, key != "hyperparameters", key in _OPTIONAL_METADATA)
        for key, text in sorted(fixed_metadata(interface).items())
    }
    return Program(
        name=name,
        platform=platform,
        batch=batch,
        inputs=tuple(_slot(interface, s, INPUT) for s in interface.inputs),
        targets=tuple(_slot(interface, s, TARGET) for s in interface.targets),
        outputs=outputs,
        kept=kept,
        variants=tuple(variants),
        initial=initial,
        classes=class_axis(len(outputs[0].shape)) if _has_classes(interface) else -1,
        ignored=record.ignore_index,
        adds_up=(DIVISOR_VALUE, 0) not in interface.convention[EVALUATE].returns,
        metadata=metadata,
        header_bytes=_header_bytes(kept, metadata),
        hyperparameters=_hyperparameters(interface),
        random=trainer._generator.bit_generator.state,
        epochs=trainer._epochs,
    )


def _check_heap(platform: Platform, planned: Mapping[str, Planned]) -> None:
    """Raise a TargetError where a function would allocate memory on a machine that has none to allocate."""
    wanting = [name for name, function in planned.items() if function.needs_heap]
    recursive = [n for n in wanting if any(isinstance(f.body, Recur) for f in planned[n].inner.values())]
    if platform.bare and recursive:
        raise TargetError(
            f"{recursive[0]} has functions that call themselves, each call on memory of its own, and a library for"
            f" {platform.name} allocates no memory",
            hint="write a loop: R.scan, R.fori_loop, or R.while_loop with max_steps=…",
        )
    if platform.bare and wanting:
        raise TargetError(
            f"{wanting[0]} keeps values of every step of a loop, nobody knows of how many, and a library for"
            f" {platform.name} allocates no memory",
            hint="say how many steps a loop may make: max_steps=…",
        )


def _fixed(interface: Interface, batch: int, sizes: Mapping[str, int]) -> Interface:
    """The interface with all sizes known."""
    resized = interface.with_rows(batch)
    _check_sizes(resized, interface.batch, sizes)

    def bound(slots: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            replace(s, info=bind_sizes(s.info, {v: sizes[v.name] for v in symbolic_vars(s.info) if v.name in sizes}))
            for s in slots
        )

    result = replace(resized, inputs=bound(resized.inputs), targets=bound(resized.targets))
    for slot in (*result.inputs, *result.targets):
        if not slot.info.is_static:
            missing = sorted({v.name for v in symbolic_vars(slot.info)})[0]
            raise ArgumentError(
                f"an exported library has fixed sizes, and {missing} of {slot} is not given",
                hint=f"export(…, sizes={{{missing!r}: 64}})",
            )
    return result


def _check_sizes(interface: Interface, batch: Any, sizes: Mapping[str, int]) -> None:
    """Raise an ArgumentError for a size that no axis has."""
    known = sorted({v.name for s in (*interface.inputs, *interface.targets) for v in symbolic_vars(s.info)})
    for name in sorted(sizes.keys() - set(known)):
        if getattr(batch, "name", None) == name:
            raise ArgumentError(f"the size {name!r} is the batch", hint=f"export(…, batch_size={sizes[name]})")
        raise ArgumentError(
            f"the trainer has no symbolic size {name!r} but the batch",
            hint=f"its sizes are {', '.join(known)}" if known else "leave sizes out",
        )


def _has_classes(interface: Interface) -> bool:
    return interface.record.classification and has_labels(interface)


def _slot(interface: Interface, slot: Any, kind: str) -> TensorEntry:
    is_label = kind == TARGET and slot is interface.targets[0] and _has_classes(interface)
    return TensorEntry(
        kind, slot.name, None, slot.info.sizes, slot.info.dtype, has_rows=interface.has_rows(slot), is_label=is_label
    )


def _outputs(predict: Planned, batch: int) -> tuple[TensorEntry, ...]:
    found = []
    kinds = [predict.layout.outputs[k] for k in predict.layout.fresh]
    for (_, number), kind in zip(predict.returns, kinds, strict=True):
        has_rows = bool(kind.shape) and kind.shape[0] == predict.rows
        if not has_rows:
            raise ArgumentError(
                f"output {number} of the model has the shape {kind.shape}, whose first axis is not the batch",
                hint="a library predicts any number of rows: return what has a row for each",
            )
        name = "output" if len(kinds) == 1 else f"output{number}"
        found.append(TensorEntry(OUTPUT, name, None, (batch, *kind.shape[1:]), kind.dtype, has_rows=True))
    return tuple(found)


def _kept(
    interface: Interface, values: list[np.ndarray], constants: Mapping[Value, np.ndarray]
) -> tuple[tuple[TensorEntry, ...], bytes]:
    """What is kept, those first that do not begin as zeros, and the bytes that these begin with; what is constant has
    no place among them."""
    labels = interface.record.optimizer_states
    nonzero = [bool(np.ascontiguousarray(v).reshape(-1).view(np.uint8).any()) for v in values]
    own = [constants.get(value) for value in interface.convention.kept]
    offsets, end, used = [0] * len(values), 0, 0
    for k in sorted((k for k, constant in enumerate(own) if constant is None), key=lambda k: not nonzero[k]):
        offsets[k] = end
        end += aligned(values[k].nbytes)
        used = offsets[k] + values[k].nbytes if nonzero[k] else used
    initial = np.zeros(used, np.uint8)
    entries = []
    for slot, value, offset, counts, constant in zip(interface.kept, values, offsets, nonzero, own, strict=True):
        name = slot.name
        if slot.kind == OPTIMIZER_STATE and int(slot.name) < len(labels):
            name = labels[int(slot.name)]
        key, dtype = key_of(slot), slot.info.dtype
        entries.append(TensorEntry(slot.kind, name, key, value.shape, dtype, offset, constant=constant))
        if counts and constant is None:
            initial[offset : offset + value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return tuple(entries), initial.tobytes()


def _function(planned: Planned, interface: Interface) -> FunctionEntry:
    places: dict[tuple[str, int], tuple[str, int]] = {}
    first = 0
    for kind, slots in ((PARAMETER, interface.params), (STATE, interface.states), (RANDOM, interface.random)):
        places |= {(kind, i): ("KEPT", first + i) for i in range(len(slots))}
        first += len(slots)
    kept = [value for value in interface.convention.kept if value[0] in OF_OPTIMIZER]
    places |= {value: ("KEPT", first + i) for i, value in enumerate(kept)}
    places |= {(INPUT, i): ("INPUT", i) for i in range(len(interface.inputs))}
    places |= {(TARGET, i): ("TARGET", i) for i in range(len(interface.targets))}
    buffers = [places[value] for value in planned.takes]
    buffers += [("CONSTANT", i) for i in range(len(planned.constants))]
    results, dtypes, end = {}, {}, 0
    for value, number in zip(planned.returns, planned.layout.fresh, strict=True):
        info = planned.layout.outputs[number]
        results[value], dtypes[value] = end, info.dtype
        buffers.append(("RESULT", end))
        end += aligned(max(1, info.nbytes))
    return FunctionEntry(planned, tuple(buffers), end, results, dtypes)


def _hyperparameters(interface: Interface) -> dict[str, tuple[tuple[int, ...], float | None, float | None]]:
    first = len(interface.params) + len(interface.states) + len(interface.random)
    return {
        name: (tuple(first + i for i in entry["states"]), entry["least"], entry["below"])
        for name, entry in interface.record.run_time.items()
    }


def _header_bytes(kept: tuple[TensorEntry, ...], metadata: Mapping[str, tuple[str, bool, bool]]) -> int:
    """No header of a checkpoint of this trainer is longer, with some room for other ways to write one."""
    largest = {"state": 2**128 - 1, "inc": 2**128 - 1}
    random = {"bit_generator": "PCG64", "state": largest, "has_uint32": 1, "uinteger": 2**32 - 1}
    texts = {key: text for key, (text, _, _) in metadata.items()}
    texts |= {"random": json.dumps(random), "steps": str(2**63), "epochs": str(2**63), "sha256": "0" * 64}
    end = sum(t.nbytes for t in kept)
    table = {str(t.key): {"dtype": "BF16", "shape": list(t.shape), "data_offsets": [end, end]} for t in kept}
    return aligned(len(json.dumps({"__metadata__": texts, **table})) + _SLACK)
