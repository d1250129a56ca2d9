"""The law of script, on random programs of the loop IR: print, parse, structurally equal."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback import tir
from pullback.ir import structural_equal
from pullback.tir.expr import ARITHMETIC, BITWISE, COMPARISONS, DTYPES, FLOATS, INTEGERS, LOGIC, holds
from tests.helpers import round_trip

BUFFERS = {d: tir.Buffer(f"A_{d}", (4, 8), d) for d in DTYPES}
SCALARS = {d: tir.Var(f"s_{d}", d) for d in DTYPES}


def constants(dtype: str) -> st.SearchStrategy[tir.PrimExpr]:
    if dtype in FLOATS:
        return st.floats().filter(lambda v: holds(dtype, v)).map(lambda v: tir.FloatImm(v, dtype))
    if dtype == "bool":
        return st.booleans().map(lambda v: tir.IntImm(v, "bool"))
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max)).map(lambda v: tir.IntImm(v, dtype))


@st.composite
def expressions(draw: st.DrawFn, dtype: str, depth: int) -> tir.PrimExpr:
    """Any node of the grammar, folded or not."""

    def sub(d: str) -> tir.PrimExpr:
        return draw(expressions(d, depth - 1))

    kinds = ["constant", "scalar", "load"]
    if depth > 0:
        kinds += ["binary", "select", "cast", "call", "negate", "compare"]
    kind = draw(st.sampled_from(kinds))
    if kind == "binary":
        table = (
            (*LOGIC, "bitand", "bitor", "bitxor")
            if dtype == "bool"
            else ARITHMETIC + (BITWISE if dtype in INTEGERS else ())
        )
        operation = draw(st.sampled_from(table))
        return draw(st.sampled_from([tir.binary, tir.Binary]))(operation, sub(dtype), sub(dtype))
    if kind == "compare" and dtype == "bool":
        operands = draw(st.sampled_from(DTYPES))
        return tir.Binary(draw(st.sampled_from(COMPARISONS)), sub(operands), sub(operands))
    if kind == "negate" and dtype != "bool":
        return -sub(dtype)
    if kind == "select":
        return draw(st.sampled_from([tir.select, tir.Select]))(sub("bool"), sub(dtype), sub(dtype))
    if kind == "cast":
        value = sub(draw(st.sampled_from(DTYPES)))
        fits = not isinstance(value, tir.IntImm) or dtype not in FLOATS or holds(dtype, float(value.value))
        return draw(st.sampled_from([tir.cast, tir.expr.Cast]) if fits else st.just(tir.expr.Cast))(dtype, value)
    if kind == "call":
        floats, others = ("exp", "sqrt", "pow"), ("not",)
        name = draw(st.sampled_from(["abs", "floor", "fma", "reinterpret", *(floats if dtype in FLOATS else others)]))
        if name == "reinterpret":
            return tir.call(name, sub(draw(st.sampled_from(DTYPES))), dtype=dtype)
        return tir.call(name, *(sub(dtype) for _ in range({"fma": 3, "pow": 2}.get(name, 1))))
    if kind == "load":
        return (
            BUFFERS[dtype][(draw(expressions("int64", 0)), draw(expressions("int64", min(depth - 1, 1))))]
            if (depth > 0)
            else SCALARS[dtype]
        )
    return SCALARS[dtype] if kind == "scalar" else draw(constants(dtype))


@st.composite
def statements(draw: st.DrawFn, depth: int) -> tir.Stmt:
    kinds = ["store"] + (["for", "let", "allocate", "if", "seq"] if depth > 0 else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "for":
        extent = draw(st.one_of(st.integers(0, 9), st.just(SCALARS["int64"]), st.just(SCALARS["int32"])))
        var = tir.Var(draw(st.sampled_from("ij")), draw(st.sampled_from(["int64", "int32"])))
        loop_kind = draw(st.sampled_from(["serial", "serial", "parallel", "vectorized", "unrolled"]))
        body = tir.seq(tir.store(BUFFERS[var.dtype], (0, 0), var), draw(statements(depth - 1)))
        return tir.For(var, extent, draw(st.sampled_from([body, draw(statements(depth - 1))])), loop_kind)
    if kind == "let":
        value = draw(expressions(draw(st.sampled_from(DTYPES)), 2))
        var = tir.Var(draw(st.sampled_from(["x", "y", "i"])), value.dtype)
        return tir.Let(var, value, tir.Seq((tir.store(BUFFERS[var.dtype], (0, 0), var), draw(statements(depth - 1)))))
    if kind == "allocate":
        scope = draw(st.sampled_from(["local", "workspace"]))
        width = 8 if scope == "local" else SCALARS["int64"] * 2
        buffer = tir.Buffer("acc", (2, width), draw(st.sampled_from(DTYPES)), scope)
        return tir.Allocate(buffer, tir.seq(tir.store(BUFFERS["bool"], (0, 0), True), draw(statements(depth - 1))))
    if kind == "if":
        otherwise = draw(st.one_of(st.none(), statements(depth - 1)))
        return tir.If(draw(expressions("bool", 2)), draw(statements(depth - 1)), otherwise)
    if kind == "seq":
        return tir.Seq(tuple(draw(st.lists(statements(depth - 1), max_size=3))))
    dtype = draw(st.sampled_from(DTYPES))
    return tir.store(BUFFERS[dtype], (0, draw(expressions("int64", 1))), draw(expressions(dtype, 2)))


def function(body: tir.Stmt) -> tir.PrimFunc:
    return tir.PrimFunc("k", (*BUFFERS.values(), *SCALARS.values()), body)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DTYPES).flatmap(lambda d: expressions(d, 4)))
def test_expressions(expr: tir.PrimExpr) -> None:
    round_trip(function(tir.store(BUFFERS[expr.dtype], (0, 0), expr)))


@settings(max_examples=200, deadline=None)
@given(statements(4))
def test_statements(stmt: tir.Stmt) -> None:
    round_trip(function(stmt))


@given(st.floats(), st.floats())
def test_floats_are_equal_when_their_bits_are(a: float, b: float) -> None:
    same = (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    assert structural_equal(tir.FloatImm(a), tir.FloatImm(b)) == same
