"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Constant
from pullback.relax.frontend.torch.aten.promotion import promoted, tensor
from pullback.relax.frontend.torch.aten.reduce import sum_
from pullback.relax.frontend.torch.aten.shape import view
from pullback.relax.frontend.torch.table import ATEN

ATEN.same(
    {
        f"aten.{name}": lambda x, y: op.matmul(x, y)
        for name in ("matmul", "linalg_matmul", "mv", "dot", "vdot", "bmm", "mm")
    }
)
ATEN.same({f"aten.{name}": lambda x, y: _outer(x, y) for name in ("outer", "ger")})
ATEN.same({"aten.inner": lambda x, y: inner(x, y), "aten.trace": lambda x: sum_(op.diagonal(x))})


def _outer(x: Any, y: Any) -> Any:
    return op.outer(*promoted(x, y))


def inner(x: Any, y: Any) -> Any:
    """Products along the last axes; with a number, of each element."""
    x, y = promoted(x, y)
    if not len(x.shape) or not len(y.shape):
        return x * y
    return op.tensordot(x, y, [[len(x.shape) - 1], [len(y.shape) - 1]])


@ATEN.register("aten.linalg_vecdot")
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    return op.vecdot(*promoted(x, y), dim)


@ATEN.register("aten.einsum")
def einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    return op.einsum(list(tensors), equation.replace(" ", ""))


@ATEN.register("aten.tensordot")
def tensordot(x: Any, y: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> Any:
    return op.tensordot(x, y, [list(dims_self), list(dims_other)])


@ATEN.register("aten.addmm", "aten.baddbmm", "aten.addmv", "aten.addr")
def addmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = op.outer(a, b) if len(a.shape) == len(b.shape) == 1 else op.matmul(a, b)
    return _added(x, product, beta, alpha)


@ATEN.register("aten.addbmm")
def addbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, op.einsum([a, b], "bij,bjk->ik"), beta, alpha)


def _added(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """beta·x + alpha·product; x does not count where beta is 0, be it NaN."""
    scaled = product if alpha == 1 else product * tensor(alpha, product.dtype)
    if beta == 0:
        return scaled
    return scaled + (x if beta == 1 else x * tensor(beta, x.dtype))


@ATEN.register("aten.kron")
def kron(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    rank = max(len(x.shape), len(y.shape))
    x, y = (view(v, (1,) * (rank - len(v.shape)) + tuple(v.shape)) for v in (x, y))
    spread = op.expand_dims(x, [2 * k + 1 for k in range(rank)]) * op.expand_dims(y, [2 * k for k in range(rank)])
    return view(spread, tuple(a * b for a, b in zip(x.shape, y.shape, strict=True)))


@ATEN.register("aten.linalg_cross", "aten.cross")
def cross(x: Any, y: Any, dim: int | None = None, **keywords: int) -> Any:
    x, y = promoted(x, y)
    dim = keywords.get("dim", dim)
    if dim is None:
        dim = next(k for k, size in enumerate(x.shape) if isinstance(size, int) and size == 3)
    axis = dim % max(len(x.shape), len(y.shape)) - max(len(x.shape), len(y.shape))
    return op.roll(x, -1, axis) * op.roll(y, 1, axis) - op.roll(x, 1, axis) * op.roll(y, -1, axis)


@ATEN.register("aten.linalg_multi_dot", "aten.chain_matmul")
def multi_dot(tensors: Sequence[Any]) -> Any:
    result = tensors[0]
    for x in tensors[1:]:
        result = op.matmul(result, x)
    return result


@ATEN.register("aten.matrix_power", "aten.linalg_matrix_power")
def matrix_power(x: Any, n: int) -> Any:
    if n < 0:
        raise UserError(f"the matrix power {n} needs an inverse, and cannot be converted", hint="powers from 0 on can")
    result = None
    while n:
        if n & 1:
            result = x if result is None else op.matmul(result, x)
        n >>= 1
        x = op.matmul(x, x) if n else x
    return op.broadcast_to(op.eye(x.shape[-1], dtype=x.dtype), x.shape) if result is None else result


# -- distances


def _distance(difference: Any, p: float) -> Any:
    return op.norm(difference, float(p), -1)


@ATEN.register("aten._cdist_forward", "aten.cdist")
def cdist(x: Any, y: Any, p: float = 2, compute_mode: int | None = None) -> Any:
    """The distance of each row of x from each row of y: (…, M, D), (…, N, D) → (…, M, N)."""
    return _distance(op.expand_dims(x, -2) - op.expand_dims(y, -3), p)


@ATEN.register("aten._euclidean_dist")
def euclidean_dist(x: Any, y: Any) -> Any:
    return cdist(x, y)


@ATEN.register("aten.pairwise_distance")
def pairwise_distance(x: Any, y: Any, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return op.norm(x - y + eps, float(p), -1, keepdim)


@ATEN.register("aten._pdist_forward", "aten.pdist")
def pdist(x: Any, p: float = 2) -> Any:
    """The distances of all pairs of rows, each pair once."""
    if not isinstance(x.shape[0], int):
        raise UserError("pdist of a symbolic number of rows cannot be converted", hint="export it with a fixed batch")
    first, second = np.triu_indices(x.shape[0], 1)
    rows = [op.take(x, Constant(i.astype(np.int64)), 0) for i in (first, second)]
    return _distance(rows[0] - rows[1], p)
