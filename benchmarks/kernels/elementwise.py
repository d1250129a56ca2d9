"""Elementwise and row-wise kernels, each in sizes that live in L2, in L3 and in DRAM.

Most are bound by memory. Those that call elementary functions are bound by the units that multiply: their limit counts
the multiplications, fused or not, and divisions of the formula, one instruction of a vector each.

What is read counts twice where all of it must have been read before the first element is written: a channel's mean is
known when its last image has been seen. (A row's comes the second time from the nearest cache, and counts once.) A
gradient reads what the forward pass keeps (`gradient.py`): a few values of each row or channel, which don't count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.kernels.case import Case, Shape, size
from benchmarks.peak import cache_bytes

COLUMNS = 512
PIXELS = 256  # of an image, for batch norm
CHANNELS = 16


class Form(NamedTuple):
    """A function on arrays of the same shape, and on vectors over columns or channels; ``images``: whether the shape of
    the whole arrays is that of rows (R, 512) or of images (N, 16, 16, 16)."""

    relax: Callable[..., Any]
    torch: Callable[..., Any]
    arrays: int = 1
    vectors: int = 0
    images: bool = False
    wrt: int | None = None
    results: int = 1  # arrays written
    reduces: bool = False  # to a vector
    calls: tuple[str, ...] = ()  # elementary functions of each element
    products: int = 0  # other multiplications of each element, where there are calls
    twice: bool = False  # the whole arrays are read, once more when all is known


def _torch() -> Any:
    from torch.nn import functional

    return functional


def _torch_module() -> Any:
    import torch

    return torch


def _adam(p: Any, g: Any, m: Any, v: Any) -> list[Any]:
    """The update of `torch.optim.Adam` with its bias corrections for some step."""
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return [p - (m / 0.5) / ((v / 0.25) ** 0.5 + 1e-8) * 1e-3, m, v]


def _adam_relax(op: Any, p: Any, g: Any, m: Any, v: Any) -> list[Any]:
    from pullback.relax import const

    def times(x: Any, value: float) -> Any:
        return op.multiply(x, const(value, "float32"))

    m = op.add(times(m, 0.9), times(g, 0.1))
    v = op.add(times(v, 0.999), times(op.multiply(g, g), 0.001))
    root = op.add(op.sqrt(op.divide(v, const(0.25, "float32"))), const(1e-8, "float32"))
    return [op.subtract(p, times(op.divide(op.divide(m, const(0.5, "float32")), root), 1e-3)), m, v]


def _batch_norm_relax(op: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return _batch_norm_outputs(op, x, gamma, beta)[0]


def _batch_norm_outputs(op: Any, x: Any, gamma: Any, beta: Any) -> Any:
    """(out, mean, unbiased variance): with a momentum of 1 nothing stays of the moving statistics."""
    moving = [op.full((CHANNELS,), value, "float32") for value in (0.0, 1.0)]
    return op.nn.batch_norm(x, gamma, beta, *moving, axis=1, momentum=1.0)


def _batch_statistics_relax(op: Any, x: Any) -> list[Any]:
    outputs = _batch_norm_outputs(op, x, *(op.full((CHANNELS,), value, "float32") for value in (1.0, 0.0)))
    return [outputs[1], outputs[2]]


def _apply_relax(op: Any, x: Any, gamma: Any, beta: Any) -> Any:
    gamma, beta = (op.reshape(v, (1, CHANNELS, 1, 1)) for v in (gamma, beta))
    return op.add(op.multiply(x, gamma), beta)


def _layer_norm(op: Any, *args: Any) -> Any:
    return op.nn.layer_norm(*args, axes=[-1])


def _batch_norm_torch(x: Any, gamma: Any, beta: Any) -> Any:
    return _torch().batch_norm(x, None, None, gamma, beta, True)


def _layer_norm_torch(x: Any, gamma: Any, beta: Any) -> Any:
    return _torch().layer_norm(x, (COLUMNS,), gamma, beta)


def _gelu(op: Any, x: Any) -> Any:
    return op.nn.gelu(x)


FORMS = {
    "add": Form(lambda op, a, b: op.add(a, b), lambda a, b: a + b, arrays=2),
    "relu": Form(lambda op, x: op.nn.relu(x), lambda x: x.relu()),
    "exp": Form(lambda op, x: op.exp(x), lambda x: x.exp(), calls=("exp",)),
    "gelu": Form(_gelu, lambda x: _torch().gelu(x), calls=("erf",), products=3),
    "gelu, backward": Form(_gelu, lambda x: _torch().gelu(x), wrt=0, calls=("erf", "exp"), products=7),
    "softmax": Form(lambda op, x: op.nn.softmax(x, axis=-1), lambda x: x.softmax(-1), calls=("exp",), products=1),
    "layer norm": Form(_layer_norm, _layer_norm_torch, vectors=2),
    "layer norm, backward": Form(_layer_norm, _layer_norm_torch, vectors=2, wrt=0),
    "batch statistics": Form(
        _batch_statistics_relax, lambda x: _torch_module().var_mean(x, (0, 2, 3))[::-1], images=True, results=2,
        reduces=True,
    ),
    "scale and shift": Form(
        _apply_relax, lambda x, g, b: x * g.view(1, -1, 1, 1) + b.view(1, -1, 1, 1), vectors=2, images=True,
    ),
    "batch norm": Form(_batch_norm_relax, _batch_norm_torch, vectors=2, images=True, twice=True),
    "batch norm, backward": Form(_batch_norm_relax, _batch_norm_torch, vectors=2, images=True, wrt=0, twice=True),
    "Adam": Form(_adam_relax, _adam, arrays=4, results=3),
}  # fmt: skip


@functools.cache
def _multiplications(call: str) -> int:
    """Of a call's expansion in float32."""
    from pullback.tir import Binary, Call, FloatImm
    from pullback.tir.math import expand
    from pullback.tir.visitor import walk

    def multiplies(node: Any) -> bool:
        if isinstance(node, Call):
            return node.name == "fma"
        is_sign = isinstance(node, Binary) and isinstance(node.b, FloatImm) and node.b.value == -1
        return isinstance(node, Binary) and node.kind in ("mul", "div") and not is_sign

    expansion = expand(call, "float32")
    assert expansion is not None
    return sum(map(multiplies, set(walk(expansion.value.body))))


@dataclass(frozen=True)
class Elementwise(Case):
    """A form of :data:`FORMS` on so many rows or images."""

    form: str = "add"
    level: str = "L2"
    rows: int = 1

    @property
    def name(self) -> str:
        return f"{self.form} in {self.level}"

    @property
    def label(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        return "forward" if self.wrt is None else "backward"

    @property
    def _form(self) -> Form:
        return FORMS[self.form]

    @property
    def shapes(self) -> list[Shape]:
        whole = (self.rows, CHANNELS, 16, 16) if self._form.images else (self.rows, COLUMNS)
        vector = (CHANNELS if self._form.images else COLUMNS,)
        return [whole] * self._form.arrays + [vector] * self._form.vectors

    @property
    def out_shape(self) -> Shape:
        return (CHANNELS,) if self._form.reduces else self.shapes[0]

    @property
    def flops(self) -> int:
        """What the units that multiply could do while they are busy with it: each multiplication might add as well."""
        form = self._form
        return 2 * (form.products + sum(map(_multiplications, form.calls))) * size(self.shapes[0])

    @property
    def bilinear(self) -> bool:
        return False

    @property
    def saves(self) -> bool:
        return True  # a norm's statistics

    @property
    def read(self) -> int:
        return super().read * (2 if self._form.twice else 1)

    @property
    def written(self) -> int:
        return super().written * self._form.results

    def relax(self, op: Any, *args: Any) -> Any:
        return self._form.relax(op, *args)

    def torch(self, *args: Any) -> Any:
        return self._form.torch(*args)


def elementwise_cases(threads: int = 2) -> list[Elementwise]:
    """Each form at the sizes of the levels: half of the L2 caches, half of L3, three times L3."""
    caches = cache_bytes()
    totals = {"DRAM": 3 * caches.get("L3", 1 << 25)}
    totals |= {"L3": caches["L3"] // 2} if "L3" in caches else {}
    totals |= {"L2": caches["L2"] // 2 * threads} if "L2" in caches else {}
    cases = []
    for name, form in FORMS.items():
        arrays = form.arrays + (0 if form.reduces else form.results) + (form.wrt is not None)
        row = 4 * arrays * (CHANNELS * PIXELS if form.images else COLUMNS)
        cases += [Elementwise(form.wrt, name, level, max(1, totals[level] // row)) for level in reversed(totals)]
    return cases
