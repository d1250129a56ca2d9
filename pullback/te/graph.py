"""The DAG of tensor expressions, and turning elements into scalar expressions of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pullback.ir.errors import InternalError
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir.expr import Binary, FloatImm, IntImm, PrimExpr, Var, call, const, is_float, maximum, minimum
from pullback.tir.visitor import Mutator, Substitute, walk


def body_expr(tensor: Tensor) -> PrimExpr:
    """The scalar expression of a stage: of a reduction, its source."""
    body = tensor.body
    if body is None:
        raise InternalError(f"{tensor.name} is a placeholder")
    return body.source if isinstance(body, Reduce) else body


def summed_product(tensor: Tensor) -> Binary | None:
    """The product that a stage multiplies and sums up itself, be it fused with others or not."""
    body = tensor.body
    source = body.source if isinstance(body, Reduce) and body.kind == "sum" else None
    return source if isinstance(source, Binary) and source.kind == "mul" else None


def reads_once(reduction: Tensor) -> bool:
    """Whether a reduction reads, at each of its points, other elements of all that it reads."""
    assert isinstance(reduction.body, Reduce)
    sizes = dict(zip(reduction.axes, reduction.shape, strict=True)) | {a.var: a.extent for a in reduction.body.axes}
    axes = {v for v, size in sizes.items() if size != 1}
    return all(axes <= set(load.indices) for load in loads_of(reduction))


def loads_of(tensor: Tensor) -> tuple[TensorLoad, ...]:
    """The reads of other tensors in the element of a stage."""
    return tensor.loads


def stages(outputs: Iterable[Tensor]) -> list[Tensor]:
    """All computed tensors that the outputs need, each after what it reads."""
    order: dict[Tensor, None] = {}

    def visit(tensor: Tensor) -> None:
        if tensor in order or tensor.is_placeholder:
            return
        for load in loads_of(tensor):
            visit(load.tensor)
        order[tensor] = None

    for output in outputs:
        visit(output)
    return list(order)


def placeholders(outputs: Iterable[Tensor]) -> list[Tensor]:
    """The inputs that the outputs read, in order of appearance."""
    found: dict[Tensor, None] = {}
    for stage in stages(outputs):
        found.update((load.tensor, None) for load in loads_of(stage) if load.tensor.is_placeholder)
    found.update((t, None) for t in outputs if t.is_placeholder)
    return list(found)


def read_counts(all_stages: Sequence[Tensor]) -> dict[Tensor, int]:
    """How many loads of each tensor the stages contain."""
    counts: dict[Tensor, int] = {}
    for stage in all_stages:
        for load in loads_of(stage):
            counts[load.tensor] = counts.get(load.tensor, 0) + 1
    return counts


def nodes_inlined(order: Sequence[Tensor], kept: Callable[[Tensor, int], bool]) -> dict[Tensor, int]:
    """How many nodes the element of each stage has as a tree, with the stages that it reads written out in it, but for
    those that are ``kept(stage, nodes)``."""
    nodes: dict[Tensor, int] = {}
    read_as: dict[Tensor, int] = {}
    for stage in order:
        nodes[stage] = stage.nodes + sum(read_as.get(load.tensor, 1) for load in loads_of(stage))
        read_as[stage] = 1 if kept(stage, nodes[stage]) else nodes[stage]
    return nodes


Reader = Callable[[tuple[PrimExpr, ...]], PrimExpr]


class Lower(Mutator):
    """Turns elements into loop-IR expressions: a tensor with a reader is read through it, any other is inlined."""

    def __init__(self, readers: Mapping[Tensor, Reader]) -> None:
        super().__init__()
        self.readers = readers
        self._elements: dict[Any, PrimExpr] = {}
        self._kept: list[PrimExpr] = []  # the indices of elements: their ids are theirs while they live

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if not isinstance(node, TensorLoad):
            return super()._expr(node)
        indices = tuple(self.expr(i) for i in node.indices)
        return self.element(node.tensor, indices)

    def element(self, tensor: Tensor, indices: Sequence[PrimExpr]) -> PrimExpr:
        """``tensor[indices]`` as a loop-IR expression."""
        reader = self.readers.get(tensor)
        if reader is not None:
            return reader(tuple(indices))
        if tensor.is_reduction or tensor.is_placeholder:
            raise InternalError(f"{tensor.name} cannot be inlined")
        key = (tensor, tuple(map(id, indices)))
        known = self._elements.get(key)
        if known is None:
            places = dict(zip(tensor.axes, indices, strict=True))
            known = self._elements[key] = _Element(self, places).expr(body_expr(tensor))
            self._kept.extend(indices)
        return known


class _Element(Substitute):
    """One element of a stage: its axes replaced by indices, and what it reads by the elements of other stages."""

    def __init__(self, lower: Lower, places: Mapping[Var, PrimExpr]) -> None:
        super().__init__(places)
        self.lower = lower

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, TensorLoad):
            return self.lower.element(node.tensor, tuple(self.expr(i) for i in node.indices))
        return super()._expr(node)


def identity(kind: str, dtype: str) -> PrimExpr:
    """The neutral element of a reduction."""
    if kind == "sum":
        return const(0, dtype)
    if kind == "prod":
        return const(1, dtype)
    low = kind in ("max", "argmax")
    if is_float(dtype):
        return const(float("-inf") if low else float("inf"), dtype)
    if dtype == "bool":
        return const(0 if low else 1, dtype)
    width = int(dtype.lstrip("uint"))
    smallest, largest = (0, 2**width - 1) if dtype.startswith("u") else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    return const(smallest if low else largest, dtype)


def combine(kind: str, accumulator: PrimExpr, value: PrimExpr) -> PrimExpr:
    """One step of a reduction."""
    if kind == "sum":
        return accumulator + value
    if kind == "prod":
        return accumulator * value
    if value.dtype == "bool":
        return (accumulator | value) if kind == "max" else (accumulator & value)
    return maximum(accumulator, value) if kind == "max" else minimum(accumulator, value)


def better(kind: str, value: PrimExpr, best: PrimExpr, at_start: PrimExpr) -> PrimExpr:
    """Whether ``value`` replaces ``best`` in an argmax or argmin: the first index wins, NaN wins over numbers."""
    wins = value > best if kind == "argmax" else value < best
    if is_float(value.dtype):
        wins = wins | (call("isnan", value) & ~call("isnan", best))
    return wins | at_start


def is_index_map(tensor: Tensor) -> bool:
    """Whether a stage only moves or repeats elements (or is a constant), with indices free of division."""

    body = tensor.body
    if isinstance(body, (IntImm, FloatImm)):
        return True
    if not isinstance(body, TensorLoad):
        return False
    parts = [n for i in body.indices for n in walk(i)]
    return not any(isinstance(n, TensorLoad) or (isinstance(n, Binary) and "floor" in n.kind) for n in parts)
