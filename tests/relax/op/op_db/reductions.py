"""Reductions, scans and norms."""

from __future__ import annotations

import math
from typing import Any

import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, dtype_name, translate


def cast(x: Any, dtype: torch.dtype | None) -> Any:
    return x if dtype is None else ops.astype(x, dtype_name(dtype))


def axes(dim: Any) -> Any:
    """PyTorch's empty list of axes means all."""
    return None if dim is None or dim == () or dim == [] else dim


@translate("sum", "sum")
def sum_(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return ops.sum(cast(x, dtype), axes(dim), keepdim)


@translate("mean", "mean")
def mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return ops.mean(cast(x, dtype), axes(dim), keepdim)


@translate("prod", "prod")
def prod(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return ops.prod(cast(x, dtype), dim, keepdim)


@translate("max", "amax")
def amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.max(x, axes(dim), keepdim)


@translate("min", "amin")
def amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.min(x, axes(dim), keepdim)


@translate("min, max", "aminmax")
def aminmax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.min(x, dim, keepdim), ops.max(x, dim, keepdim)


@translate("max, argmax", "max.reduction_with_dim")
def max_with_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return ops.max(x, dim, keepdim), ops.argmax(x, dim, keepdim)


@translate("min, argmin", "min.reduction_with_dim")
def min_with_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return ops.min(x, dim, keepdim), ops.argmin(x, dim, keepdim)


@translate("max", "max.reduction_no_dim")
def max_(x: Any) -> Any:
    return ops.max(x)


@translate("min", "min.reduction_no_dim")
def min_(x: Any) -> Any:
    return ops.min(x)


@translate("median", "median")
def median(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None or x.shape == ():
        return ops.median(x) if dim is None else (ops.median(x), None)
    return ops.median(x, dim, keepdim)[0], None  # which of equal ones is not said


@translate("argmax", "argmax")
def argmax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.argmax(x, dim, keepdim)


@translate("argmin", "argmin")
def argmin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.argmin(x, dim, keepdim)


@translate("any", "any")
def any_(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.any(x, axes(dim), keepdim)


@translate("all", "all")
def all_(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.all(x, axes(dim), keepdim)


@translate("count_nonzero", "count_nonzero")
def count_nonzero(x: Any, dim: Any = None) -> Any:
    return ops.count_nonzero(x, axes(dim))


@translate("logsumexp", "logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return ops.logsumexp(x, axes(dim), keepdim)


@translate("sum, where, isnan", "nansum")
def nansum(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = cast(x, dtype)
    return ops.sum(ops.where(ops.isnan(x), 0.0, x), axes(dim), keepdim)


@translate("sum, where, isnan, divide", "nanmean")
def nanmean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = cast(x, dtype)
    count = ops.sum(ops.astype(ops.logical_not(ops.isnan(x)), x.dtype), axes(dim), keepdim)
    return ops.divide(ops.sum(ops.where(ops.isnan(x), 0.0, x), axes(dim), keepdim), count)


# ---- variance --------------------------------------------------------------------------------------------------------


def count(x: Any, dim: Any) -> int:
    """How many elements are reduced."""
    dims = range(len(x.shape)) if axes(dim) is None else [dim] if isinstance(dim, int) else dim
    return math.prod(x.shape[d] for d in dims)


def variance(x: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool) -> Any:
    n, less = count(x, dim), 1 if correction is None else correction
    less = less if unbiased is None else int(unbiased)
    if n - less <= 0:
        raise Skip("a variance of no degree of freedom")
    return ops.multiply(ops.variance(x, axes(dim), keepdim), n / (n - less))


def std(x: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool) -> Any:
    n, less = count(x, dim), 1 if correction is None else correction
    less = less if unbiased is None else int(unbiased)
    if n - less <= 0:
        raise Skip("a variance of no degree of freedom")
    return ops.multiply(ops.std(x, axes(dim), keepdim), math.sqrt(n / (n - less)))


def moments(*args: Any, unbiased: Any = None, correction: Any = None, keepdim: bool = False, dim: Any = None) -> Any:
    """The forms (x), (x, unbiased), (x, dim, unbiased, keepdim) and (x, dim, *, correction, keepdim)."""
    x, *rest = args
    if rest and isinstance(rest[0], bool):
        unbiased, *rest = rest
    if rest:
        dim, *rest = rest
    if rest:
        unbiased, *rest = rest
    if rest:
        keepdim = rest[0]
    return x, dim, unbiased, correction, keepdim


@translate("variance", "var", "var.unbiased")
def var_(*args: Any, **kwargs: Any) -> Any:
    return variance(*moments(*args, **kwargs))


@translate("std", "std", "std.unbiased")
def std_(*args: Any, **kwargs: Any) -> Any:
    return std(*moments(*args, **kwargs))


@translate("variance, mean", "var_mean", "var_mean.unbiased")
def var_mean(*args: Any, **kwargs: Any) -> Any:
    x, dim, _, _, keepdim = given = moments(*args, **kwargs)
    return variance(*given), ops.mean(x, axes(dim), keepdim)


@translate("std, mean", "std_mean", "std_mean.unbiased")
def std_mean(*args: Any, **kwargs: Any) -> Any:
    x, dim, _, _, keepdim = given = moments(*args, **kwargs)
    return std(*given), ops.mean(x, axes(dim), keepdim)


# ---- scans -----------------------------------------------------------------------------------------------------------


@translate("cumsum", "cumsum")
def cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return ops.cumsum(x, dim, None if dtype is None else dtype_name(dtype))


@translate("cumprod", "cumprod")
def cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return ops.cumprod(x, dim, None if dtype is None else dtype_name(dtype))


# ---- norms -----------------------------------------------------------------------------------------------------------


@translate("norm", "linalg.vector_norm")
def vector_norm(x: Any, ord: float = 2.0, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return ops.norm(cast(x, dtype), float(ord), dim, keepdim)


@translate("norm", "norm", "norm.fro", "norm.inf")
def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return ops.norm(cast(x, dtype), 2.0 if p == "fro" or p is None else float(p), dim, keepdim)


@translate("norm", "linalg.norm", "linalg.norm.subgradients_at_zero")
def linalg_norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    pair = len(x.shape) == 2 if dim is None else isinstance(dim, (tuple, list)) and len(dim) == 2
    if ord is not None and pair and ord != "fro":
        raise Skip("a norm of matrices other than Frobenius'")
    return ops.norm(cast(x, dtype), 2.0 if ord in (None, "fro") else float(ord), dim, keepdim)


@translate("norm", "linalg.matrix_norm")
def matrix_norm(x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    if ord != "fro":
        raise Skip("a norm of matrices other than Frobenius'")
    return ops.norm(cast(x, dtype), 2.0, dim, keepdim)


@translate("norm, subtract", "dist")
def dist(x: Any, y: Any, p: float = 2.0) -> Any:
    return ops.norm(ops.subtract(x, y), float(p))


@translate("norm, divide, maximum", "nn.functional.normalize")
def normalize(x: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    return ops.divide(x, ops.maximum(ops.norm(x, float(p), dim, True), eps))


@translate("norm, subtract", "nn.functional.pairwise_distance")
def pairwise_distance(x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return ops.norm(ops.add(ops.subtract(x, y), eps), float(p), -1, keepdim)
