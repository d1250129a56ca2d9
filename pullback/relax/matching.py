"""Matching of static types: symbolic sizes are variables that a call binds."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.relax.struct_info import (
    Dim,
    FuncStructInfo,
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    dim,
    same_info,
)
from pullback.tir.expr import PrimExpr
from pullback.tir.expr import Var as SizeVar
from pullback.tir.polynomial import same
from pullback.tir.visitor import substitute


def bind_size(size: Dim, sizes: Mapping[SizeVar, Dim]) -> Dim:
    """A size with symbolic variables replaced."""
    return dim(substitute(size, sizes)) if isinstance(size, PrimExpr) and sizes else size


def bind_sizes(info: StructInfo, sizes: Mapping[SizeVar, Dim]) -> StructInfo:
    """A type with symbolic variables replaced."""
    if not sizes:
        return info
    if isinstance(info, TensorStructInfo) and info.shape is not None:
        return TensorStructInfo(tuple(bind_size(s, sizes) for s in info.shape), info.dtype)
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(bind_sizes(f, sizes) for f in info.fields))
    if isinstance(info, ShapeStructInfo):
        return ShapeStructInfo(tuple(bind_size(s, sizes) for s in info.values))
    if isinstance(info, FuncStructInfo):
        return FuncStructInfo(tuple(bind_sizes(p, sizes) for p in info.params), bind_sizes(info.ret, sizes))
    return info


def match_info(expected: StructInfo, given: StructInfo, sizes: dict[SizeVar, Dim]) -> bool:
    """Whether ``given`` fits ``expected``; symbolic sizes of ``expected`` are bound in ``sizes``."""
    if isinstance(expected, ObjectStructInfo):
        return True
    if isinstance(expected, TensorStructInfo) and isinstance(given, TensorStructInfo):
        if expected.dtype != given.dtype:
            return False
        if expected.shape is None or given.shape is None:
            return expected.ndim in (-1, given.ndim)
        if len(expected.shape) != len(given.shape):
            return False
        if expected.is_static and given.is_static:
            return expected.shape == given.shape
        return all(_match_size(e, g, sizes) for e, g in zip(expected.shape, given.shape, strict=True))
    if isinstance(expected, TupleStructInfo) and isinstance(given, TupleStructInfo):
        if len(expected.fields) != len(given.fields):
            return False
        return all(match_info(e, g, sizes) for e, g in zip(expected.fields, given.fields, strict=True))
    return same_info(expected, given)


def _match_size(expected: Dim, given: Dim, sizes: dict[SizeVar, Dim]) -> bool:
    if isinstance(expected, SizeVar) and expected not in sizes:
        sizes[expected] = given
        return True
    return same(bind_size(expected, sizes), given)
