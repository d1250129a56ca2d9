"""Samples of ops as concrete calls: what stands beside an op's definition becomes arrays, from a seeded generator."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir.op import Op, is_packaged
from pullback.relax.op.family import DTYPE_CLASSES
from pullback.relax.op.sample import Bools, Domain, Floats, Ints
from pullback.runtime.dtype import numpy_dtype

UNARY_SHAPES = ((), (0,), (1,), (3,), (17,), (129,), (3, 17), (2, 0, 3))
BINARY_SHAPES = (
    ((), ()),
    ((17,), (17,)),
    ((129,), (129,)),
    ((3, 17), (17,)),
    ((3, 1), (1, 17)),
    ((2, 3, 4), (3, 1)),
    ((), (5,)),
    ((1,), (0,)),
    ((4, 1, 3), ()),
)
UNTESTED = (
    "relax.call_tir",  # no op in the sense of this table: it calls kernels
    "relax.call_packed",  # nor these: they call registered functions
    "relax.call_pure_packed",
    *(
        f"relax.{name}" for name in ("branch", "custom", "custom_gradient", "fori_loop", "loop", "scan", "while_loop")
    ),  # these take functions
    *(f"relax.{name}" for name in ("box", "unbox", "null")),  # handles are no arrays: test_boxes
    *(f"relax.{name}" for name in ("recurse", "call_self")),  # a function that calls itself: test_recursion
    *(
        f"relax.batch.{kind}{rule}" for kind in ("op", "kernel") for rule in ("", "_without_rule")
    ),  # of any op: test_vmap
    *(
        f"relax.ccl.{name}"
        for name in (
            "allreduce",
            "avg",
            "allgather",
            "reduce_scatter",
            "broadcast",
            "all_to_all",
            "scatter_from_worker0",
            "piece",
            "reduce",
            "reduce_pieces",
            "gather_pieces",
            "rank",
        )
    ),  # what several ranks compute together: test_ccl
    "relax.dynamic_strided_slice",  # a call of it becomes a strided_slice at once
)


@dataclass(frozen=True)
class Case:
    """One call of an op on arrays."""

    op: Op
    label: str
    args: tuple[np.ndarray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True

    @property
    def id(self) -> str:
        return f"{self.op.short}-{self.label}"


def all_ops() -> list[Op]:
    """The package's ops that have samples, by name; those that other tests register are none of them."""
    import pullback.relax.op  # noqa: F401  registers them

    return [op for name, op in sorted(Op.registry.items()) if name not in UNTESTED and is_packaged(op)]


def dtypes_of(op: Op) -> tuple[str, ...]:
    """The dtypes that the op's family takes; for ops with samples of their own, those that stand for their floats."""
    if isinstance(op.samples, Domain):
        return DTYPE_CLASSES[op.samples.dtypes]
    return DTYPE_CLASSES["float"] if _has_floats(op.samples) else ("float32",)


def _has_floats(samples: Any) -> bool:
    return any(not isinstance(a, (Ints, Bools, np.ndarray)) for s in samples for a in s.args)


def cases(op: Op, dtype: str) -> Iterator[Case]:
    """All samples of the op, its free element types being ``dtype``."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {dtype}".encode()))
    if isinstance(op.samples, Domain):
        yield from _family_cases(op, op.samples, dtype, rng)
        return
    for number, sample in enumerate(op.samples):
        args = tuple(_array(a, dtype, rng) for a in sample.args)
        shapes = "_".join("x".join(map(str, a.shape)) or "scalar" for a in args)
        yield Case(op, f"{number}-{shapes}-{dtype}", args, _attrs(op, sample.attrs), sample.smooth)


def _attrs(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes: the given ones, and the defaults."""
    return {name: given.get(name, default) for name, default in op.signature.attrs.items()}


def _family_cases(op: Op, domain: Domain, dtype: str, rng: np.random.Generator) -> Iterator[Case]:
    shapes: Sequence[Any] = [(s,) for s in UNARY_SHAPES] if domain.family == "unary" else BINARY_SHAPES
    for given in shapes:
        args = tuple(_draw(s, domain, dtype, rng) for s in given)
        label = "_".join("x".join(map(str, s)) or "scalar" for s in given)
        yield Case(op, f"{label}-{dtype}", args, _attrs(op, {}))
    base = [_draw((6, 10), domain, dtype, rng) for _ in given]
    yield Case(op, f"transposed-{dtype}", tuple(b.T for b in base), _attrs(op, {}))
    yield Case(op, f"strided-{dtype}", tuple(b[::2, ::-3] for b in base), _attrs(op, {}))
    if domain.kinks:
        yield Case(op, f"kinks-{dtype}", (_array(list(domain.kinks), dtype, rng),), _attrs(op, {}), smooth=False)


def _draw(shape: tuple[int, ...], domain: Domain, dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    target = numpy_dtype(dtype)
    if dtype in DTYPE_CLASSES["integer"]:
        low, high = int(domain.low), int(domain.high) + 1
        return rng.integers(max(low, 0) if dtype.startswith("u") else low, high, shape).astype(target)
    return np.asarray(rng.uniform(domain.low, domain.high, shape)).astype(target)


def _array(argument: Any, dtype: str, rng: np.random.Generator) -> np.ndarray:
    if isinstance(argument, np.ndarray):
        return argument
    if isinstance(argument, list):
        with np.errstate(over="ignore"):  # in a narrow type, a large number is an infinity
            return np.asarray(argument, np.float64).astype(numpy_dtype(dtype))
    if isinstance(argument, Ints):
        return np.asarray(rng.integers(argument.low, argument.high, argument.shape)).astype(argument.dtype)
    if isinstance(argument, Bools):
        return np.asarray(rng.integers(0, 2, argument.shape)).astype(np.bool_)
    floats = argument if isinstance(argument, Floats) else Floats(argument)
    return np.asarray(rng.uniform(floats.low, floats.high, floats.shape)).astype(numpy_dtype(dtype))
