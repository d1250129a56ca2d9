"""Every op of the catalogue as a case: its value, and its value with all gradients, at several sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.kernels import op_table, op_table_boxes
from benchmarks.kernels.op_table import Row
from pullback.relax.op.sample import Bools, Domain, Floats, Ints

SIZES = {"1e3": 1_000, "1e5": 100_000, "1e7": 10_000_000}
KINDS = ("forward", "gradient")
NONE = "PyTorch has none"
NO_CASE = {
    "random.site": "a state, of two numbers",
    "shape_to_tensor": "as many numbers as axes",
    "random.shard": "a part of what other ops draw",
    "nn.sync_batch_norm": "that of several ranks: benchmarks scale",
}
ROWS = op_table.ROWS | op_table_boxes.ROWS

# Elementwise ops whose name in PyTorch is another, or whose call has more arguments.
UNARY: dict[str, str] = {
    "negative": "neg", "nn.gelu_tanh": "gelu", "nn.leakyrelu": "leaky_relu", "bitwise_not": "bitwise_not",
}  # fmt: skip
BINARY: dict[str, str] = {
    "equal": "eq", "not_equal": "ne", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "mod": "remainder", "power": "pow",
}  # fmt: skip
OURS: dict[str, dict[str, Any]] = {
    "clip": {"min": -0.5, "max": 0.5},
    "polygamma": {"n": 1},
    "nn.threshold": {"threshold": 0.1, "value": 20.0},
}
THEIRS: dict[str, dict[str, Any]] = {**OURS, "nn.gelu_tanh": {"approximate": "tanh"}}


@dataclass(frozen=True)
class OpCase:
    """One op at one size, its value alone or with the gradients of Σ value · dy, dy being a further argument."""

    op: str
    size: str
    kind: str

    @property
    def label(self) -> str:
        return f"{self.op} {self.size} {self.kind}"

    @staticmethod
    def of(label: str) -> OpCase:
        return OpCase(*label.split())

    @property
    def row(self) -> Row:
        return _row(self.op)

    @functools.cached_property
    def specs(self) -> list[Any]:
        return self.row.arguments(SIZES[self.size])

    def arguments(self) -> list[Any]:
        """Arrays and plain numbers, always the same."""
        rng = np.random.default_rng(0)
        return [_draw(spec, rng) for spec in self.specs]

    def wanted(self) -> list[int]:
        """The arguments that are differentiated."""
        floats = [k for k, spec in enumerate(self.specs) if isinstance(spec, Floats)]
        return floats if self.row.wrt is None else [k for k in floats if k < self.row.wrt]

    @property
    def nbytes(self) -> int:
        """About how much memory the case takes: arguments, results, and as much again of each for a gradient."""
        arrays = [4 * int(np.prod(spec.shape)) for spec in self.specs if hasattr(spec, "shape")]
        whole = max([*arrays, 4 * SIZES[self.size]])
        return (sum(arrays) + whole) * (1 if self.kind == "forward" else 3)


def out_gradient(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.random.default_rng(1).random(shape, dtype=np.float32) + np.float32(0.1))


def _draw(spec: Any, rng: np.random.Generator) -> Any:
    if isinstance(spec, Floats):
        return (rng.random(spec.shape, dtype=np.float32) * (spec.high - spec.low) + spec.low).astype(np.float32)
    if isinstance(spec, Ints):
        return rng.integers(spec.low, spec.high, spec.shape).astype(spec.dtype)
    if isinstance(spec, Bools):
        return rng.random(spec.shape, dtype=np.float32) < 0.5
    return spec


@functools.cache
def _row(name: str) -> Row:
    from pullback.ir.op import Op

    row = ROWS.get(name)
    if row is not None:
        return row
    op = Op.get(name)
    count = len(op.signature.tensors)
    return Row(_elementwise_arguments(op, count), _ours(name), _theirs(name, count))


def _elementwise_arguments(op: Any, count: int) -> Callable[[int], list[Any]]:
    """Vectors from the op's own domain, of floats where it takes any."""
    domain = op.samples if isinstance(op.samples, Domain) else Domain("", 0.2, 2.0, "float")

    def argument(n: int) -> Any:
        if domain.dtypes == "bool":
            return Bools((n,))
        if domain.dtypes.startswith("integer"):
            return Ints((n,), int(max(domain.low, 0)), int(domain.high) + 1, "int32")
        return Floats((n,), domain.low, domain.high)

    return lambda n: [argument(n)] * count


def _ours(name: str) -> Callable[..., Any]:
    def call(o: Any, *args: Any) -> Any:
        for part in name.split("."):
            o = getattr(o, part)
        return o(*args, **OURS.get(name, {}))

    return call


def _theirs(name: str, count: int) -> Callable[..., Any] | None:
    import importlib.util

    if name == "ewise_fma":
        return lambda t, x, y, z: t.addcmul(z, x, y)
    if name == "polygamma":
        return lambda t, x: t.polygamma(1, x)
    if importlib.util.find_spec("torch") is None:
        return None

    def call(t: Any, *args: Any) -> Any:
        known = (UNARY if count == 1 else BINARY).get(name, name.removeprefix("nn."))
        found = getattr(t.nn.functional, known, None) if name.startswith("nn.") else getattr(t, known)
        return found(*args, **THEIRS.get(name, {}))

    return call


def cases(names: list[str], sizes: list[str]) -> list[OpCase]:
    """The catalogue's ops by size, the value and, where there are any, the gradients."""
    from pullback.relax.op import catalogue

    entries = {e.name: e for e in catalogue.entries() if not names or e.name in names}
    missing = [n for n in names if n not in entries]
    if missing:
        raise ValueError(f"no op {missing[0]!r}")
    found = []
    for size in sizes:
        for name, entry in entries.items():
            if name in NO_CASE:
                continue
            value = OpCase(name, size, "forward")
            found.append(value)
            if entry.kind != "zero" and value.wanted():
                found.append(OpCase(name, size, "gradient"))
    return found
