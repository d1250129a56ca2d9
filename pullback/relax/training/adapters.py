"""What fine-tuning adds to a model: low-rank updates of weights that stay as they are (``transform/low_rank.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, suggestion
from pullback.ir.module import IRModule
from pullback.relax.convention import BACKBONE, PARAMETER, STATE, Convention
from pullback.relax.declared import Declared, declared_of, with_declared
from pullback.relax.expr import Function, Tuple, Var
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training.initializers import Constant, Initializer, KaimingUniform
from pullback.relax.training.setup_trainer import check_backbone, with_backbone
from pullback.relax.training.subset import frozen_by, with_frozen
from pullback.relax.transform import RaiseOps
from pullback.relax.transform.bind_params import BindParams
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.low_rank import (
    LOW_RANK,
    LowRank,
    Update,
    as_attribute,
    updates_of,
    with_updates,
    without_updates,
)
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.tensor import Tensor, tensor
from pullback.tir.expr import FLOATS

A, B = "lora_A", "lora_B"  # what parameters of updates are called, as in the library PEFT
BOTTLENECKS = "bottlenecks"  # module attribute: of each layer with an adapter the names of its parameters
FROZEN_FOR = (
    "frozen_for_updates"  # module attribute: names of parameters that are not trained because others were added
)
PARTS = ("adapter_down.weight", "adapter_down.bias", "adapter_up.weight", "adapter_up.bias")
WEIGHT = ".weight"  # left out of a layer's name


def named(weight: str) -> tuple[str, str]:
    """The names of A and B of a weight: ``fc.weight`` has fc.lora_A and fc.lora_B."""
    layer = weight.removesuffix(WEIGHT)
    return f"{layer}.{A}", f"{layer}.{B}"


def shapes(shape: Sequence[int], rank: int, transposed: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Those of A and B."""
    rows, columns = shape[0], math.prod(shape[1:])
    rows, columns = (columns, rows) if transposed else (rows, columns)
    return (rank, columns), (rows, rank)


BEGIN, ZEROS = KaimingUniform(a=math.sqrt(5)), Constant(0.0)


def initial(module: IRModule) -> dict[str, Initializer]:
    """How the parameters begin that were added to a model, by name: such that it computes what it did before."""
    found: dict[str, Initializer] = {}
    for u in updates_of(module):
        found |= {u.a: BEGIN, u.b: ZEROS}
    for down, *others in module.attrs.get(BOTTLENECKS, {}).values():
        found |= {down: BEGIN, **dict.fromkeys(others, ZEROS)}
    return found


# ---- which weights


@dataclass(frozen=True)
class Candidate:
    """A parameter that may be a target: all of its names, the first being its own."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def layers(self) -> tuple[str, ...]:
        """The names by which it can be meant: its own, and those of the layers whose weight it is."""
        return (*self.names, *(n.removesuffix(WEIGHT) for n in self.names if n.endswith(WEIGHT)))


def sizes_of_parts(width: int, size: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of an adapter's parameters, in the order of ``PARTS``."""
    return (size, width), (size,), (width, size), (width,)


def target_patterns(targets: Any) -> tuple[str, ...]:
    """Patterns of layers, of a list or of a text with | between them; an ArgumentError for what is none."""
    found = targets.split("|") if isinstance(targets, str) else targets
    is_right = isinstance(found, (list, tuple, set, frozenset)) and all(isinstance(p, str) and p for p in found)
    if not is_right or not found:
        raise ArgumentError(
            f"targets must be patterns of layer names, got {targets!r:.80}",
            hint='as of a shell: ["*.query", "*.value"], or the last part of a name: ["query", "value"]',
        )
    return tuple(found)


def means(pattern: str, name: str) -> bool:
    """Whether a pattern is meant by a layer's name: it matches all of it, or is its last parts."""
    return fnmatchcase(name, pattern) or name.endswith(f".{pattern}")


def chosen(targets: Sequence[str], candidates: Sequence[Candidate], rank: int) -> list[Candidate]:
    """The parameters that patterns mean. An ArgumentError for a pattern that means none, or none that is a matrix, and
    where the rank is larger than a weight."""
    matrices = [c for c in candidates if len(c.shape) >= 2 and c.dtype in FLOATS]
    layers = list(dict.fromkeys(c.layers[-1] for c in matrices))
    found: dict[str, Candidate] = {}
    for pattern in targets:
        meant = [c for c in matrices if any(means(pattern, name) for name in c.layers)]
        if not meant:
            others = [c for c in candidates if any(means(pattern, name) for name in (*c.layers, *_owners(c)))]
            if others:
                listed = ", ".join(f"{c.name} {c.shape}" for c in others[:FEW])
                raise ArgumentError(
                    f"targets: {pattern!r} matches no matrix, only {listed}",
                    hint=f"weights of two axes or more have updates: {_few(layers)}",
                )
            raise ArgumentError(
                f"targets: no layer matches {pattern!r}{suggestion(pattern, layers)}; the layers with a weight are:"
                f" {_few(layers)}",
                hint="patterns are those of a shell: '*.query', or the last part of a name: 'query'",
            )
        found |= {c.name: c for c in meant}
    small = [c for c in found.values() if rank > min(c.shape[0], math.prod(c.shape[1:]))]
    if small:
        listed = ", ".join(f"{c.name}, {c.shape[0]} by {math.prod(c.shape[1:])}" for c in small[:FEW])
        more = f" and {len(small) - FEW} more" if len(small) > FEW else ""
        raise ArgumentError(
            f"rank {rank} is larger than the weight {listed}{more}", hint="take a lower rank, or narrower targets"
        )
    return list(found.values())


FEW = 12  # names that an error lists


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "") if names else "none"


def _owners(candidate: Candidate) -> tuple[str, ...]:
    return tuple(name.rpartition(".")[0] for name in candidate.names)


# ---- a model with updates, and without


def add_updates(module: IRModule, updates: Sequence[Update], rank: int, saved: Sequence[str]) -> IRModule:
    """A model whose weights have updates. Of its other parameters only those named ``saved`` are trained."""
    infos: dict[str, Any] = {p.name: p.struct_info for p in module[BACKBONE].params}
    added = []
    for u in updates:
        info = infos[u.weight]
        pair = zip((u.a, u.b), shapes(info.shape, rank, u.transposed), strict=True)
        added += [Var(name, TensorStructInfo(shape, info.dtype)) for name, shape in pair]

    def change(backbone: Function) -> Function:
        found = {p.name: p for p in backbone.params}
        new = [LowRank(found[u.weight], found[u.a], found[u.b], u.scale, u.dropout, u.transposed) for u in updates]
        return with_updates(backbone, new)

    attribute = as_attribute((*updates_of(module), *updates))
    return with_parameters(module, added, change, saved).with_attr(LOW_RANK, attribute)


def with_parameters(
    module: IRModule, added: Sequence[Var], change: Callable[[Function], Function], saved: Sequence[str]
) -> IRModule:
    """A model with more parameters, which come after the others, and a backbone that ``change`` makes of the one that
    takes them. Of its other parameters only those that were added before are trained, and those named ``saved``."""
    module = RaiseOps()(with_backbone(module))
    roles = check_backbone(module)
    backbone = inline_calls(module[BACKBONE], module)
    places = roles.taken(PARAMETER)
    names = [backbone.params[i].name for i in places]
    frozen = frozen_by(module, names)
    declared, end = declared_of(backbone), places[-1] + 1
    plain = with_declared(backbone, None)
    params = (*plain.params[:end], *added, *plain.params[end:])
    function = change(Function(params, plain.body, None, plain.attrs, span=plain.span))
    if declared is not None:
        entries = (*declared[:end], *(Declared(PARAMETER) for _ in added), *declared[end:])
        function = with_declared(function, entries)
    result = module.copy()
    result[BACKBONE] = function
    was_frozen = module.attrs.get(FROZEN_FOR, ())
    kept = [n for n in names if n not in saved and n not in initial(module) and (n not in frozen or n in was_frozen)]
    result = result.with_attrs({"param_num": len(names) + len(added), FROZEN_FOR: tuple(kept)})
    return with_frozen(result, [n for n in names if n in kept or (n in frozen and n not in was_frozen)])


def remove_updates(module: IRModule) -> IRModule:
    """A model as it was before its updates."""
    updates = updates_of(module)
    names = [n for u in updates for n in (u.a, u.b)]
    result = module.copy()
    result[BACKBONE] = function = without_updates(inline_calls(module[BACKBONE], module), names)
    infos: dict[str, Any] = {p.name: p.struct_info for p in function.params}
    zeros = {n: np.zeros(infos[n].shape, numpy_dtype(infos[n].dtype)) for n in names}
    result = BindParams(BACKBONE, zeros)(result)  # nothing reads them
    frozen = frozen_by(result, [p.name for p in result[BACKBONE].params])
    was_frozen = result.attrs.get(FROZEN_FOR, ())
    result = IRModule(result.functions, {k: v for k, v in result.attrs.items() if k not in (LOW_RANK, FROZEN_FOR)})
    return with_frozen(result, [n for n in frozen if n not in was_frozen])


# ---- values


def merged(values: Mapping[str, Tensor], updates: Iterable[Update]) -> dict[str, Tensor]:
    """Values by name in which weights are W + scale·B·A, and A and B are gone. They are computed in float64, and
    rounded once."""
    result = dict(values)
    for u in updates:
        weight, a, b = (np.asarray(result[name]) for name in (u.weight, u.a, u.b))
        result[u.weight] = tensor(updated(weight, a, b, u.scale, u.transposed))
        del result[u.a], result[u.b]
    return result


def updated(weight: np.ndarray, a: np.ndarray, b: np.ndarray, scale: float, transposed: bool) -> np.ndarray:
    """W + scale·B·A, in the dtype of W."""
    product = b.astype(np.float64) @ a.astype(np.float64)
    product = product.T if transposed else product
    return (weight.astype(np.float64) + scale * product.reshape(weight.shape)).astype(weight.dtype)


def moving_states(module: IRModule) -> tuple[str, ...]:
    """The names of the states that steps change: those that the backbone does not return as they are."""
    backbone, roles = module[BACKBONE], Convention.of(module)[BACKBONE]
    values = {b.var: b.value for b in backbone.bindings}
    body: Any = backbone.body.body
    results = body.fields if isinstance(body, Tuple) else (body,)

    def source(value: Any) -> Any:
        while value in values and isinstance(values[value], Var):
            value = values[value]
        return value

    found = []
    for place in roles.returned(STATE):
        number = roles.returns[place][1]
        param = next(backbone.params[i] for i in roles.taken(STATE) if roles.takes[i][1] == number)
        if source(results[place]) is not param:
            found.append(param.name)
    return tuple(found)
