"""Products of matrices."""

from __future__ import annotations

from typing import Any

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, promoted, translate

for _name in ("matmul", "mm", "bmm", "mv"):
    translate("matmul", _name)(lambda x, y: ops.matmul(x, y))
for _name in ("dot", "vdot"):
    translate("dot", _name)(lambda x, y: ops.dot(x, y))


@translate("outer", "outer")
def outer(x: Any, y: Any) -> Any:
    return ops.outer(x, y)


@translate("tensordot", "inner")
def inner(x: Any, y: Any) -> Any:
    if () in (x.shape, y.shape):
        return ops.multiply(x, y)
    return ops.tensordot(x, y, ((-1,), (-1,)))


def plus(x: Any, product: Any, alpha: float, beta: float) -> Any:
    product = product if alpha == 1 else ops.multiply(product, alpha)
    return ops.add(x if beta == 1 else ops.multiply(x, beta), product)


@translate("matmul, add", "addmm", "addmm.decomposed", "addmv", "baddbmm")
def addmm(x: Any, a: Any, b: Any, *, alpha: float = 1, beta: float = 1) -> Any:
    return plus(x, ops.matmul(a, b), alpha, beta)


@translate("matmul, sum, add", "addbmm")
def addbmm(x: Any, a: Any, b: Any, *, alpha: float = 1, beta: float = 1) -> Any:
    return plus(x, ops.sum(ops.matmul(a, b), 0), alpha, beta)


@translate("outer, add", "addr")
def addr(x: Any, a: Any, b: Any, *, alpha: float = 1, beta: float = 1) -> Any:
    return plus(x, ops.outer(a, b), alpha, beta)


@translate("linear", "nn.functional.linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    if len(weight.shape) == 1:
        raise Skip("linear with a vector for a weight")
    return ops.linear(x, weight, bias)


@translate("einsum", "einsum")
def einsum(operands: Any, equation: str) -> Any:
    return ops.einsum(list(operands), equation)


@translate("einsum", "nn.functional.bilinear")
def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    result = ops.einsum([x, weight, y], "...i,oij,...j->...o")
    return result if bias is None else ops.add(result, bias)


@translate("tensordot", "tensordot")
def tensordot(x: Any, y: Any, dims: Any = 2) -> Any:
    if not isinstance(dims, int) and [x.shape[k] for k in dims[0]] != [y.shape[k] for k in dims[1]]:
        raise Skip("summed axes that broadcast")
    return ops.tensordot(x, y, dims)


@translate("vecdot", "linalg.vecdot")
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    return ops.vecdot(*promoted(x, y), dim)


@translate("matmul", "linalg.multi_dot")
def multi_dot(matrices: Any) -> Any:
    result = matrices[0]
    for matrix in matrices[1:]:
        result = ops.matmul(result, matrix)
    return result


@translate("einsum, reshape", "kron")
def kron(x: Any, y: Any) -> Any:
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise Skip("kron of other ranks than 2")
    (a, b), (c, d) = x.shape, y.shape
    return ops.reshape(ops.einsum([x, y], "ab,cd->acbd"), (a * c, b * d))


@translate("matmul", "linalg.matrix_power")
def matrix_power(x: Any, n: int) -> Any:
    if n < 1:
        raise Skip("powers of matrices below 1")
    result = x
    for _ in range(n - 1):
        result = ops.matmul(result, x)
    return result


@translate("diagonal, sum", "trace")
def trace(x: Any) -> Any:
    return ops.sum(ops.diagonal(x))
