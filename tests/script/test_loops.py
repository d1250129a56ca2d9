"""Parsing and printing loop functions."""

from __future__ import annotations

import textwrap

import pytest

from pullback import tir
from pullback.ir import ScriptError, structural_equal, structural_hash
from pullback.script import from_source
from pullback.script import tir as T
from tests.helpers import round_trip


def parse(text: str) -> tir.PrimFunc:
    return from_source(textwrap.dedent(text))


# Each is printed exactly as it is written.
PROGRAMS = {
    "elementwise": """\
        @T.prim_func
        def double(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
            for i, j in T.grid(4, 8):
                x: T.float32 = A[i, j]
                B[i, j] = x + x
        """,
    "loop kinds": """\
        @T.prim_func
        def k(A: T.Buffer((4, "n * 2"), "float32"), n: T.int64):
            for i in T.parallel(4):
                for j in range(n):
                    for v in T.vectorized(2):
                        A[i, j * 2 + v] = T.float32(0.0)
            for i in T.unrolled(4):
                A[i, 0] = T.float32(1.0)
        """,
    "allocation": """\
        @T.prim_func
        def k(A: T.Buffer((16,), "float32")):
            T.func_attr({"grain": 8})
            acc = T.alloc_buffer((8, 2), "float32")
            for i in range(8):
                acc[i, 0] = A[i]
            scratch = T.alloc_buffer((4,), "int32", scope="workspace")
            scratch[0] = T.int32(3)
            A[0] = acc[0, 0]
        """,
    "scopes": """\
        @T.prim_func
        def k(A: T.Buffer((16,), "float32")):
            with T.scope():
                x: T.float32 = A[0]
                A[1] = x
            with T.scope():
                x: T.float32 = A[1]
                A[2] = x
            A[3] = T.float32(1.0)
        """,
    "conditions": """\
        @T.prim_func
        def k(A: T.Buffer((16,), "float32"), flag: T.bool):
            for i in range(16):
                if flag and (i < 3 or not A[i] >= T.float32(0.0)):
                    A[i] = T.float32(1.0)
                elif i % 2 == 0:
                    A[i] = T.select(i == 4, A[i], T.float32(2.0))
                else:
                    pass
        """,
    "intrinsics": """\
        @T.prim_func
        def k(A: T.Buffer((), "float32"), B: T.Buffer((2,), "int32")):
            A[()] = T.fma(T.exp(A[()]), T.max(A[()], T.float32(0.5)), T.sqrt(A[()]))
            B[0] = T.reinterpret("int32", A[()]) & ~B[1] | T.int32(255) << T.int32(8)
            B[1] = T.cast("int32", T.float32(float("nan"))) ^ T.truncmod(B[0], T.int32(7))
        """,
    "host": """\
        @T.prim_func
        def main(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
            T.func_attr({"kind": "host"})
            n = T.int64()
            ok = T.arena_buffer((1,), "bool", offset=256)
            lv = T.arena_buffer((n, 4), "float32")
            T.kernel("check", A, ok)
            T.check(ok, 3)
            T.kernel("double", A, lv)
            if n > 4:
                T.kernel("double", lv, B)
        """,
    "drivers": """\
        @T.prim_func
        def loop_1(
            x: T.Buffer((5, 4), "float32"),
            y: T.Buffer((), "float32"),
            n: T.Buffer((), "int64"),
            a: T.Buffer((96,), "uint8"),
        ):
            T.func_attr({"inner": True, "kind": "host"})
            if n[()] > 5:
                T.stop(2)
            for k in range(n[()]):
                T.host("body", T.piece(n, 0), T.piece(x, 4 - k), T.piece(y, 0), arena=a)
            while y[()] < T.float32(9.0) and n[()] < 7:
                T.host("condition", n, y)
                n[()] = n[()] + 1
        """,
    "hints": """\
        @T.prim_func
        def k(A: T.Buffer((4, 64), "float32")):
            for i in range(4):
                T.prefetch(A[i + 1, 0], "read")
                T.prefetch(A[i, 32], "write")
                for j in T.vectorized(64):
                    A[i, j] = A[i, j] + T.float32(1.0)
        """,
    "empty": """\
        @T.prim_func(private=True)
        def nothing():
            pass
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_and_read(name: str) -> None:
    text = textwrap.dedent(PROGRAMS[name])
    function = parse(text)
    assert function.script(header=False) == text
    round_trip(function)


def test_sugar() -> None:
    sugar = parse("""
        @T.prim_func
        def k(A: T.Buffer((8,), "float32")):
            half = 4
            for i in T.serial(half, 8):
                x = A[i]
                y = T.let(2.0)
                A[i] += x * 2 if 0 <= i < 6 else y
        """)
    plain = parse("""
        @T.prim_func
        def k(A: T.Buffer((8,), "float32")):
            for i in range(4):
                x: T.float32 = A[i + 4]
                y: T.float32 = T.float32(2.0)
                A[i + 4] = A[i + 4] + T.select(0 <= i + 4 and i + 4 < 6, x * T.float32(2.0), y)
        """)
    assert structural_equal(sugar, plain)


def test_the_decorator_reads_the_source() -> None:
    width = 8

    def relu(x: tir.PrimExpr) -> tir.PrimExpr:
        return T.max(x, 0.0)

    @T.prim_func
    def k(A: T.Buffer((width,), "float32"), B: T.Buffer((width,), "float32")):
        for i in T.parallel(width):
            B[i] = relu(A[i])

    assert k.name == "k" and k.buffers[0].shape == (8,)
    assert k.body.kind == "parallel" and k.body.body.value.kind == "max"
    assert k.body.body.span is not None and k.body.body.span.source_line().strip() == "B[i] = relu(A[i])"
    round_trip(k)


def test_sequences_that_no_text_would_have() -> None:
    a = tir.Buffer("a", (4,), "int64")
    s, x = tir.store(a, 0, 1), tir.Var("x")
    let = tir.Let(x, tir.as_expr(3), tir.store(a, x, x))
    for body in (
        tir.Seq(()), tir.Seq((s,)), tir.Seq((tir.Seq((s, s)), tir.Seq(()), tir.Seq((tir.Seq((s,)),)))), tir.Seq((let,)),
        tir.Seq((let, let, tir.Seq((s, s)))), tir.Let(tir.Var("y"), tir.as_expr(1), tir.Seq((let,))),
        tir.If(tir.IntImm(1, "bool"), tir.Seq(()), tir.Seq(())), tir.If(tir.IntImm(1, "bool"), let, tir.Seq((let, s))),
    ):  # fmt: skip
        round_trip(tir.PrimFunc("k", (a,), body))


def test_one_variable_bound_by_two_loops() -> None:
    a, i, j = tir.Buffer("a", (4,), "int64"), tir.Var("i"), tir.Var("i")
    once = tir.For(i, 4, tir.store(a, i, i))
    shared = tir.PrimFunc("k", (a,), tir.Seq((once, once)))
    apart = tir.PrimFunc("k", (a,), tir.Seq((once, tir.For(j, 4, tir.store(a, j, j)))))
    assert structural_equal(shared, apart) and structural_hash(shared) == structural_hash(apart)
    round_trip(shared)
    inner = tir.For(i, 4, tir.For(i, 4, tir.store(a, i, i)))
    outer = tir.For(i, 4, tir.For(j, 4, tir.store(a, i, i)))
    assert not structural_equal(inner, outer)
    round_trip(tir.PrimFunc("k", (a,), inner))


def test_names_become_identifiers() -> None:
    names = ("for", "a.b", "1x", "T", "a_b", "", "_", "é")
    buffers = [tir.Buffer(n, (4,), "int64") for n in names]
    i = tir.Var("float")
    body = tir.For(i, 4, tir.seq(*(tir.store(b, i, i) for b in buffers)))
    text = round_trip(tir.PrimFunc("k", tuple(buffers), body))
    again = parse(text)
    assert [b.name for b in again.buffers] == ["for_", "a_b", "v1x", "T_1", "a_b_1", "v", "__", "é"]
    assert again.body.var.name == "float_1"


def test_parts_print() -> None:
    a, i = tir.Buffer("a", (4,), "float32"), tir.Var("i")
    assert str(i + 1) == "i + 1"
    assert str(tir.store(a, i, a[i] * 2.0)) == "a[i] = a[i] * T.float32(2.0)"
    assert str(a) == 'a: T.Buffer((4,), "float32")'


CASTS = ['T.cast(A[0], "int32")', 'T.cast("int32", A[0])', "T.cast(A[0], T.int32)", "T.cast(T.int32, A[0])"]
NO_CASTS = {
    'T.cast(A[0], "int33")': "there is no dtype 'int33'",
    "T.cast(A[0], A[0])": "T.cast takes a scalar and the name of a dtype",
}


def with_value(value: str) -> tir.PrimFunc:
    """A kernel that stores the value."""
    lines = ["@T.prim_func", 'def k(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "int32")):', f"    B[0] = {value}"]
    return from_source("\n".join(lines))


@pytest.mark.parametrize("text", CASTS)
def test_a_cast_takes_the_dtype_before_or_after_the_value(text):
    assert structural_equal(with_value(text), with_value(CASTS[0]))


@pytest.mark.parametrize("text", NO_CASTS)
def test_a_cast_needs_a_dtype(text):
    with pytest.raises(ScriptError, match=NO_CASTS[text]):
        with_value(text)
