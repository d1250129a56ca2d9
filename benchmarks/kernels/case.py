"""A kernel that is timed: a function of arrays, or the gradient of one of its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


@dataclass(frozen=True)
class Case(ABC):
    """``wrt``: None for the function itself, else the number of the argument whose gradient is computed from that of
    the result, which is a further array."""

    wrt: int | None = None

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def shapes(self) -> list[Shape]:
        """Of the arguments."""

    @property
    @abstractmethod
    def out_shape(self) -> Shape: ...

    @property
    @abstractmethod
    def flops(self) -> int: ...

    @property
    def bilinear(self) -> bool:
        """Whether the gradient of one argument needs the other argument only."""
        return True

    @property
    def saves(self) -> bool:
        """Whether the gradient reads what the forward pass keeps of the arguments: values smaller than these."""
        return False

    @abstractmethod
    def relax(self, op: Any, *args: Any) -> Any:
        """The function in graph IR; several results as a list."""

    @abstractmethod
    def torch(self, *args: Any) -> Any:
        """The function in PyTorch; several results as a tuple."""

    @property
    def kind(self) -> str:
        return "forward" if self.wrt is None else f"gradient of argument {self.wrt}"

    @property
    def label(self) -> str:
        return self.name if self.wrt is None else f"{self.name}, {self.kind}"

    def arrays(self) -> list[np.ndarray]:
        """The arguments, always the same; positive, so that none is outside of a function's domain."""
        generator = np.random.default_rng(0)
        return [generator.random(shape, dtype=np.float32) + 0.1 for shape in self.shapes]

    def out_gradient(self) -> np.ndarray:
        return np.random.default_rng(1).random(self.out_shape, dtype=np.float32) + 0.1

    @property
    def read(self) -> int:
        """Bytes that have to be read."""
        if self.wrt is None:
            return 4 * sum(map(size, self.shapes))
        others = [s for k, s in enumerate(self.shapes) if k != self.wrt or not self.bilinear]
        return 4 * (sum(map(size, others)) + size(self.out_shape))

    @property
    def written(self) -> int:
        """Bytes that have to be written."""
        return 4 * size(self.out_shape if self.wrt is None else self.shapes[self.wrt])


@dataclass(frozen=True)
class MatMul(Case):
    """(batch) m x k by k x n; a transposed operand is stored the other way."""

    m: int = 1
    n: int = 1
    k: int = 1
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 0

    @property
    def name(self) -> str:
        stored = "NT"[self.transpose_a] + "NT"[self.transpose_b]
        return f"{f'{self.batch} x ' if self.batch else ''}{self.m}x{self.n}x{self.k} {stored}"

    @property
    def shapes(self) -> list[Shape]:
        a, b = (self.m, self.k), (self.k, self.n)
        pair = [a[::-1] if self.transpose_a else a, b[::-1] if self.transpose_b else b]
        return [(self.batch, *s) for s in pair] if self.batch else pair

    @property
    def out_shape(self) -> Shape:
        return (self.batch, self.m, self.n) if self.batch else (self.m, self.n)

    @property
    def flops(self) -> int:
        return 2 * max(1, self.batch) * self.m * self.n * self.k

    def relax(self, op: Any, a: Any, b: Any) -> Any:
        axes = [*range(len(self.out_shape) - 2), len(self.out_shape) - 1, len(self.out_shape) - 2]
        a = op.permute_dims(a, axes) if self.transpose_a else a
        return op.matmul(a, op.permute_dims(b, axes) if self.transpose_b else b)

    def torch(self, a: Any, b: Any) -> Any:
        return (a.mT if self.transpose_a else a) @ (b.mT if self.transpose_b else b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a = a.swapaxes(-1, -2) if self.transpose_a else a
        return a @ (b.swapaxes(-1, -2) if self.transpose_b else b)


@dataclass(frozen=True)
class Convolution(Case):
    """NCHW by OIHW."""

    n: int = 1
    ci: int = 1
    h: int = 1
    w: int = 1
    co: int = 1
    kh: int = 1
    kw: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        extras = [("stride", self.stride, 1), ("pad", self.padding, 0), ("dilation", self.dilation, 1)]
        extras.append(("groups", self.groups, 1))
        told = " ".join(f"{name} {value}" for name, value, usual in extras if value != usual)
        return f"{self.n}x{self.ci}x{self.h}x{self.w} by {self.co}x{self.kh}x{self.kw} {told}".rstrip()

    @property
    def kind(self) -> str:
        return {None: "forward", 0: "data", 1: "weight"}[self.wrt]

    @property
    def shapes(self) -> list[Shape]:
        return [(self.n, self.ci, self.h, self.w), (self.co, self.ci // self.groups, self.kh, self.kw)]

    @property
    def out_shape(self) -> Shape:
        def out(length: int, kernel: int) -> int:
            return (length + 2 * self.padding - self.dilation * (kernel - 1) - 1) // self.stride + 1

        return self.n, self.co, out(self.h, self.kh), out(self.w, self.kw)

    @property
    def flops(self) -> int:
        return 2 * size(self.out_shape) * self.ci // self.groups * self.kh * self.kw

    def relax(self, op: Any, x: Any, weight: Any) -> Any:
        return op.nn.conv2d(
            x, weight, strides=(self.stride,) * 2, padding=(self.padding,) * 2, dilation=(self.dilation,) * 2,
            groups=self.groups,
        )  # fmt: skip

    def torch(self, x: Any, weight: Any) -> Any:
        from torch.nn.functional import conv2d

        return conv2d(x, weight, None, self.stride, self.padding, self.dilation, self.groups)


def with_gradients(*cases: Any) -> list[Any]:
    """Each function, and the gradients of its two arguments."""
    from dataclasses import replace

    return [replace(case, wrt=wrt) for case in cases for wrt in (None, 0, 1)]
