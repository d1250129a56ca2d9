"""Loops, memory access and control flow in generated code, beside the interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.codegen import compile_assembly, emit_module
from pullback.codegen.expressions import Expressions
from pullback.ir.errors import InternalError, UserError
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from pullback.tir import (
    Allocate,
    Buffer,
    BufferStore,
    For,
    If,
    IntImm,
    Let,
    PrimFunc,
    Stmt,
    Var,
    call,
    cast,
    fma,
    loop,
    minimum,
    select,
    seq,
    store,
)

SIZES = [0, 1, 2, 3, 10, 15, 16, 17, 31, 32, 33, 48, 129]
rng = np.random.default_rng(7)


def floats(*shape):
    return rng.normal(size=shape).astype(np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
def test_sizes(n, dtype, native):
    x, y = Buffer("x", (n,), dtype), Buffer("y", (n,), dtype)
    func = PrimFunc("f", (x, y), loop("i", n, lambda i: store(y, i, x[i] + x[i]), "vectorized"))
    native.check(func, rng.integers(0, 2, n).astype(dtype), zeros(n, dtype=dtype))


def test_dynamic_extent(native):
    n = Var("n")
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    func = PrimFunc("f", (x, y, n), loop("i", n, lambda i: store(y, i, x[i] * 2.0), "vectorized"))
    library = native.load([func])
    for size in SIZES:
        native.check(func, floats(size), zeros(size), size, library=library)


def test_dynamic_matrix(native):
    m, n = Var("m"), Var("n")
    x, y = Buffer("x", (m, n)), Buffer("y", (n, m))
    body = loop("i", m, lambda i: loop("j", n, lambda j: store(y, (j, i), x[i, j]), "vectorized"), "parallel")
    func = PrimFunc("transpose", (x, y, m, n), body)
    library = native.load([func])
    for size in [(1, 1), (3, 17), (17, 3), (5, 32), (0, 4), (4, 0)]:
        native.check(func, floats(*size), zeros(*size[::-1]), *size, library=library)


@pytest.mark.parametrize("stride, offset", [(2, 0), (3, 1), (-1, 40), (7, 0)])
def test_strided(stride, offset, native):
    size = 40 * abs(stride) + 41
    x, y = Buffer("x", (size,)), Buffer("y", (size,))
    body = loop("i", 37, lambda i: store(y, i * stride + offset, x[i * stride + offset] + x[i]), "vectorized")
    native.check(PrimFunc("f", (x, y), body), floats(size), zeros(size))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("data", ["float32", "float64", "bool", "bfloat16"])
def test_gather_scatter(dtype, data, native):
    kind = numpy_dtype(data)
    x, at, y, z = (
        Buffer("x", (50,), data),
        Buffer("at", (37,), dtype),
        Buffer("y", (37,), data),
        Buffer("z", (50,), data),
    )
    body = loop("i", 37, lambda i: seq(store(y, i, x[cast("int64", at[i])]), store(z, cast("int64", at[i]), x[i])),
                "vectorized")  # fmt: skip
    permutation = rng.permutation(50)[:37].astype(dtype)
    native.check(PrimFunc("f", (x, at, y, z), body), rng.integers(0, 3, 50).astype(kind), permutation,
                 zeros(37, dtype=kind), zeros(50, dtype=kind))  # fmt: skip


def test_duplicate_scatter_last_lane_wins(native):
    x, y = Buffer("x", (35,)), Buffer("y", (1,))
    native.check(PrimFunc("f", (x, y), loop("i", 35, lambda i: store(y, 0, x[i]), "vectorized")), floats(35), zeros(1))


@pytest.mark.parametrize("c", [1, 3, 16, 32, 48, 10])
def test_broadcast_by_division(c, native):
    """Flattened loops: the divisions vanish when whole vectors fit in a row, and are right when they don't."""
    n = 6 * c
    x, bias, y = Buffer("x", (6, c)), Buffer("bias", (c,)), Buffer("y", (6, c))
    scale = Buffer("scale", (6,))
    body = loop(
        "i", n, lambda i: store(y, (i // c, i % c), x[i // c, i % c] * scale[i // c] + bias[i % c]), "vectorized"
    )
    native.check(PrimFunc("f", (x, bias, scale, y), body), floats(6, c), floats(c), floats(6), zeros(6, c))


def test_division_vanishes():
    x, bias, y = Buffer("x", (6, 64)), Buffer("bias", (64,)), Buffer("y", (6, 64))
    body = loop("i", 6 * 64, lambda i: store(y, (i // 64, i % 64), x[i // 64, i % 64] + bias[i % 64]), "vectorized")
    text = emit_module([PrimFunc("f", (x, bias, y), body)], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"))
    assert "gather" not in text and text.count("load <16 x float>") == 2


def test_negative_indices_divide_like_python(native):
    y = Buffer("y", (2, 64), "int64")
    body = loop("i", 64, lambda i: seq(store(y, (0, i), (i - 30) // 7), store(y, (1, i), (i - 30) % 7)), "vectorized")
    (result,) = native.check(PrimFunc("f", (y,), body), zeros(2, 64, dtype=np.int64))
    np.testing.assert_array_equal(result, [(np.arange(64) - 30) // 7, (np.arange(64) - 30) % 7])


@pytest.mark.parametrize("kind", ["serial", "vectorized", "parallel"])
def test_conditions(kind, native):
    """Padding: a condition on indices, an else, a load that is out of bounds where the condition fails."""
    x, y = Buffer("x", (20,)), Buffer("y", (37,))
    body = loop("i", 37, lambda i: If((i >= 8) & (i < 28), store(y, i, x[i - 8]), store(y, i, -1.0)), kind)
    native.check(PrimFunc("f", (x, y), body), floats(20), zeros(37))


def test_data_dependent_condition(native):
    x, at, y = Buffer("x", (37,)), Buffer("at", (37,), "int64"), Buffer("y", (37,))
    inner = lambda i: If(x[i] > 0.0, seq(store(y, i, x[at[i]]), If(x[i] > 1.0, store(y, i, y[i] + 5.0))))  # noqa: E731
    func = PrimFunc("f", (x, at, y), loop("i", 37, inner, "vectorized"))
    values = floats(37)
    at_values = np.where(values > 0, rng.integers(0, 37, 37), 10**9)
    native.check(func, values, at_values, zeros(37))
    native.check(func, -abs(values), at_values, zeros(37))


def test_uniform_condition_and_folding(native):
    x, y, n = Buffer("x", (64,)), Buffer("y", (64,)), Var("n")
    body = loop("i", 4, lambda i: loop("j", 16, lambda j: If(
        i * 16 + j < 64, If(n > i, store(y, i * 16 + j, x[i * 16 + j]), store(y, i * 16 + j, 3.0)), store(y, 0, 9.0)),
        "vectorized"))  # fmt: skip
    func = PrimFunc("f", (x, y, n), body)
    for value in range(5):
        native.check(func, floats(64), zeros(64), value)


def matmul(m, n, k, rows, columns, kind="parallel"):
    """C = A B by register tiles; ragged edges are masked."""
    a, b, c = Buffer("A", (m, k)), Buffer("B", (k, n)), Buffer("C", (m, n))
    acc = Buffer("acc", (rows, columns), "float32", "local")

    def lanes(body):
        return loop("v", columns, lambda v: loop("r", rows, lambda r: body(r, v), "unrolled"), "vectorized")

    def tile(i, j):
        row, column = (lambda r: minimum(i * rows + r, m - 1)), (lambda v: minimum(j * columns + v, n - 1))
        inside = lambda r, v: (i * rows + r < m) & (j * columns + v < n)  # noqa: E731
        step = lambda t: lanes(lambda r, v: store(acc, (r, v), fma(a[row(r), t], b[t, column(v)], acc[r, v])))  # noqa: E731
        if m % rows == 0 and n % columns == 0:
            row, column, inside = (lambda r: i * rows + r), (lambda v: j * columns + v), None
        put = lambda r, v: store(c, (i * rows + r, j * columns + v), acc[r, v])  # noqa: E731
        return Allocate(acc, seq(
            lanes(lambda r, v: store(acc, (r, v), 0.0)), loop("k", k, step),
            lanes(put if inside is None else lambda r, v: If(inside(r, v), put(r, v))),
        ))  # fmt: skip

    outer = loop("i", -(-m // rows), lambda i: loop("j", -(-n // columns), lambda j: tile(i, j)), kind)
    return PrimFunc("matmul", (a, b, c), outer)


@pytest.mark.parametrize("shape", [(8, 48, 5), (16, 96, 33), (4, 10, 7), (3, 17, 1), (9, 50, 12), (1, 1, 1)])
def test_matmul(shape, native):
    m, n, k = shape
    tile = (min(8, m), min(48, n))
    a, b = floats(m, k), floats(k, n)
    *_, c = native.check(matmul(m, n, k, *tile), a, b, zeros(m, n))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_tile_stays_in_registers():
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    text = compile_assembly(emit_module([matmul(64, 96, 128, 8, 48, "serial")], target), target)
    assert text.count("vfmadd") == 24 * 4  # four terms are one step
    assert "Spill" not in text and "(%rsp" not in text


@pytest.mark.parametrize("n", [1, 5, 10, 16, 17, 40, 100])
def test_local_row(n, native):
    """A softmax: a local row with a padded tail, a lane-wise maximum, a serial sum."""
    x, y = Buffer("x", (7, n)), Buffer("y", (7, n))
    row, top, total = (Buffer("row", (n,), "float32", "local"), Buffer("top", (1,), "float32", "local"),
                       Buffer("total", (1,), "float32", "local"))  # fmt: skip

    def body(i):
        return Allocate(row, Allocate(top, Allocate(total, seq(
            store(top, 0, -np.inf),
            loop("j", n, lambda j: store(top, 0, select(x[i, j] > top[0], x[i, j], top[0]))),
            loop("j", n, lambda j: store(row, j, call("exp", x[i, j] - top[0])), "vectorized"),
            store(total, 0, 0.0),
            loop("j", n, lambda j: store(total, 0, total[0] + row[j])),
            loop("j", n, lambda j: store(y, (i, j), row[j] / total[0]), "vectorized"),
        ))))  # fmt: skip

    values = floats(7, n)
    *_, result = native.check(PrimFunc("softmax", (x, y), loop("i", 7, body, "parallel")), values, zeros(7, n), ulp=4)
    np.testing.assert_allclose(result.sum(1), np.ones(7), rtol=1e-5)


@pytest.mark.parametrize("n", [64, 100, 7])
def test_reduction_tree(n, native):
    """Sixteen partial sums in lanes, added by halves: offsets inside a register."""
    x, y = Buffer("x", (n,)), Buffer("y", (1,))
    acc = Buffer("acc", (16,), "float32", "local")

    def halve(width):
        return loop("l", width, lambda i: store(acc, i, acc[i] + acc[i + width]), "vectorized")

    body = Allocate(acc, seq(
        loop("l", 16, lambda i: store(acc, i, 0.0), "vectorized"),
        loop("k", -(-n // 16), lambda k: loop("l", 16, lambda i: If(
            k * 16 + i < n, store(acc, i, acc[i] + x[k * 16 + i])), "vectorized")),
        *(halve(w) for w in (8, 4, 2, 1)), store(y, 0, acc[0]),
    ))  # fmt: skip
    native.check(PrimFunc("sum", (x, y), body), floats(n), zeros(1))


def test_local_memory_of_each_lane(native):
    """A buffer allocated inside a vectorized loop: every lane has its own."""
    x, y = Buffer("x", (21, 3)), Buffer("y", (21,))
    own, at = Buffer("own", (3,), "float32", "local"), Buffer("at", (21,), "int64")
    body = loop("i", 21, lambda i: Allocate(own, seq(
        loop("j", 3, lambda j: store(own, j, x[i, j] * 2.0), "unrolled"),
        store(y, i, own[at[i]] + own[0]))), "vectorized")  # fmt: skip
    native.check(PrimFunc("f", (x, at, y), body), floats(21, 3), rng.integers(0, 3, 21), zeros(21))


def test_dynamic_local_index(native):
    x, at, y = Buffer("x", (40,)), Buffer("at", (40,), "int32"), Buffer("y", (40,))
    table = Buffer("table", (40,), "float32", "local")
    body = Allocate(table, seq(
        loop("i", 40, lambda i: store(table, 39 - i, x[i]), "vectorized"),
        loop("i", 40, lambda i: store(y, i, table[cast("int64", at[i])]), "vectorized")))  # fmt: skip
    native.check(PrimFunc("f", (x, at, y), body), floats(40), rng.integers(0, 40, 40).astype(np.int32), zeros(40))


def test_mixed_widths(native):
    """float32 stored in sixteens, read in eights beside float64."""
    x, y = Buffer("x", (40,)), Buffer("y", (40,), "float64")
    row = Buffer("row", (40,), "float32", "local")
    body = Allocate(row, seq(
        loop("i", 40, lambda i: store(row, i, x[i] + 1.0), "vectorized"),
        loop("i", 40, lambda i: store(y, i, cast("float64", row[i]) / 3.0), "vectorized")))  # fmt: skip
    native.check(PrimFunc("f", (x, y), body), floats(40), zeros(40, dtype=np.float64))


def test_let_and_values_of_indices(native):
    y, z = Buffer("y", (50,)), Buffer("z", (50,), "int64")
    t, u = Var("t"), Var("u", "float32")
    body = loop("i", 50, lambda i: Let(t, i * 3 - 5, Let(u, cast("float32", t) / 7.0, seq(
        store(y, i, u * u), store(z, i, t * t + select(t > 20, t, IntImm(1)))))), "vectorized")  # fmt: skip
    native.check(PrimFunc("f", (y, z), body), zeros(50), zeros(50, dtype=np.int64))


def cast_places(rows: int, columns: int, left: int, dtype: str, far: int) -> PrimFunc:
    """Elements are what ``far`` and their numbers are as another type: of whole rows, and of what is left of them."""
    y = Buffer("y", (rows, columns), dtype)

    def row(r: Var) -> Stmt:
        part = minimum(left - r, columns)
        return loop("i", part, lambda i: store(y, (r, i), cast(dtype, r * columns + i + far)), "vectorized")

    return PrimFunc("places", (y,), loop("r", rows, row, "parallel"))


@pytest.mark.parametrize("far", [0, -7, 2**31 - 40, 2**53 - 60])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int8"])
def test_indices_as_numbers(dtype, far, native):
    """In 32 bits where these hold them, and right where they don't."""
    for left in (1, 5, 38, 50):  # the first leaves less than nothing to the last row
        native.check(cast_places(3, 37, left, dtype, far), np.zeros((3, 37), numpy_dtype(dtype)))


def test_indices_are_converted_as_vectors():
    """AVX2 converts vectors of int32 alone."""
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")

    def text(far: int) -> str:
        return compile_assembly(emit_module([cast_places(64, 64, 100, "float64", far)], target), target)

    assert "vcvtdq2pd" in text(0) and "vcvtsi2sd" not in text(0)
    assert "vcvtdq2pd" not in text(2**31)


def test_load_after_store(native):
    x = Buffer("x", (33,))
    shared = x[0] * 2.0
    body = seq(store(x, 0, shared), store(x, 0, shared), store(x, 1, shared),
               loop("i", 5, lambda i: store(x, 0, shared)), store(x, 2, shared))  # fmt: skip
    native.check(PrimFunc("f", (x,), body), floats(33))


def test_serial_recurrence(native):
    x = Buffer("x", (64, 20))
    body = loop(
        "t", 63, lambda t: loop("i", 20, lambda i: store(x, (t + 1, i), x[t, i] * 0.5 + x[t + 1, i]), "vectorized")
    )
    native.check(PrimFunc("scan", (x,), body), floats(64, 20))


def test_triangular(native):
    x, y = Buffer("x", (9, 9)), Buffer("y", (9, 9))
    for kind in ("serial", "vectorized"):
        body = loop(
            "i", 9, lambda i, kind=kind: loop("j", i + 1, lambda j: store(y, (i, j), x[i, j]), kind), "parallel"
        )
        native.check(PrimFunc("tril", (x, y), body), floats(9, 9), zeros(9, 9))


def test_parallel_captures(native):
    """A task uses buffers, sizes, an outer loop's variable, let-bound values and a local table of its surroundings."""
    n, t = Var("n"), Var("t", "float32")
    flag = Var("flag", "bool")
    x, y, table = Buffer("x", (n,)), Buffer("y", (3, n)), Buffer("table", (4,), "float32", "local")
    body = Allocate(table, seq(
        loop("i", 4, lambda i: store(table, i, cast("float32", i) + 0.5), "vectorized"),
        loop("k", 3, lambda k: Let(t, x[0] + 1.0, Let(flag, x[0] > 0.0, loop("i", n, lambda i: store(
            y, (k, i), select(flag, x[i], t) * table[i % 4] + cast("float32", k)), "parallel"))))))  # fmt: skip
    func = PrimFunc("f", (x, y, n), body)
    native.runtime.pieces.clear()
    native.check(func, floats(11), zeros(3, 11), 11)
    assert len(native.runtime.pieces) > 6


def test_parallel_of_one_runs_inline(native):
    x, y = Buffer("x", (8,)), Buffer("y", (8,))
    inner = loop("j", 8, lambda j: store(y, j, x[j]), "vectorized")
    native.runtime.pieces.clear()
    native.check(PrimFunc("f", (x, y), For(Var("i"), 1, inner, "parallel")), floats(8), zeros(8))
    assert not native.runtime.pieces


def test_bool_and_byte_mix(native):
    x, m, y = Buffer("x", (70,)), Buffer("m", (70,), "bool"), Buffer("y", (70,), "uint8")
    body = loop("i", 70, lambda i: seq(store(m, i, x[i] > 0.0), store(y, i, cast("uint8", m[i]) + cast("uint8", i))),
                "vectorized")  # fmt: skip
    native.check(PrimFunc("f", (x, m, y), body), floats(70), zeros(70, dtype=bool), zeros(70, dtype=np.uint8))


def twice(kind, x):
    return loop("i", 4, lambda i: loop("j", 4, lambda j: store(x, j, 1.0), kind), kind)


@pytest.mark.parametrize("body, message", [
    (lambda x, b: Allocate(Buffer("w", (4,), "float32", "workspace"), store(x, 0, 1.0)), "workspace"),
    (lambda x, b: Allocate(Buffer("s", (Var("n"),), "float32", "local"), store(x, 0, 1.0)), "symbolic shape"),
    (lambda x, b: store(b, 0, 1.0), "not a parameter"),
    (lambda x, b: store(x, Var("loose"), 1.0), "not bound"),
    (lambda x, b: For(Var("i"), Var("n"), store(x, 0, 1.0), "unrolled"), "not bound|symbolic"),
])  # fmt: skip
def test_errors(body, message, native):
    x, other = Buffer("x", (4,)), Buffer("other", (4,))
    with pytest.raises(InternalError, match=message):
        native.load([PrimFunc("f", (x,), body(x, other))])


@pytest.mark.parametrize("body, message", [
    (lambda x: twice("vectorized", x), "the vectorized loop over j is inside another one"),
    (lambda x: twice("parallel", x), "the parallel loop over j is inside a parallel"),
    (lambda x: Allocate(Buffer("big", (1 << 20,), "float32", "local"), store(x, 0, 1.0)), "needs 4194304 bytes"),
])  # fmt: skip
def test_mistakes_of_users(body, message, native):
    x = Buffer("x", (4,))
    with pytest.raises(UserError, match=message):
        native.load([PrimFunc("f", (x,), body(x))])


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 70), rows=st.integers(1, 4), offset=st.integers(0, 3), stride=st.integers(1, 3),
    dtype=st.sampled_from(["float32", "float64", "int32", "int8", "float16"]), split=st.integers(1, 9),
)  # fmt: skip
def test_random_kernels(native, n, rows, offset, stride, dtype, split):
    """Random mixtures of strides, divisions, conditions and local rows."""
    size = rows * (n * stride + offset + 1)
    x, y = Buffer("x", (rows, size), dtype), Buffer("y", (rows, size), dtype)
    row = Buffer("row", (max(n, 1),), dtype, "local")

    def body(r):
        return Allocate(row, seq(
            loop("i", n, lambda i: store(row, i, x[r, i * stride + offset] + x[r, i // split]), "vectorized"),
            loop("i", n, lambda i: If(
                (i % split).not_equal(0), BufferStore(y, row[i] + row[i // split], (r, i + offset))), "vectorized"),
        ))  # fmt: skip

    data = np.arange(rows * size).reshape(rows, size).astype(dtype)
    native.check(PrimFunc("f", (x, y), loop("r", rows, body, "parallel")), data, np.zeros_like(data))


@pytest.mark.parametrize("kind", ["serial", "unrolled", "vectorized"])
def test_an_index_that_blocks_share_is_computed_where_it_is_used(kind, native):
    """A quotient and a loaded index, in both branches of a condition, after it, and behind a loop: what one block has
    computed is not there for the next. The loaded index is another one once it was overwritten."""
    n = 6
    place, x, y = Buffer("place", (n,), "int64"), Buffer("x", (64,)), Buffer("y", (4, n, n))

    def body(i):
        quotient, loaded = (place[0] * 5 + i * 3 + 1) // 7, place[i] + i // 2
        bound = minimum(i * 2, quotient)

        def row(k, j):
            return store(y, (k, i, j), x[quotient + j] + x[loaded] + x[bound])

        def over(k, inner="serial"):
            return loop("j", n, lambda j: row(k, j), inner)

        branch = If((i + place[1]) % 3 < 1, over(0), over(1, "unrolled"))
        return seq(branch, over(2), store(place, i, (place[i] + 3) % 5), over(3))

    func = PrimFunc("f", (place, x, y), loop("i", n, body, kind))
    native.check(func, np.arange(n) % 4 + 1, floats(64), zeros(4, n, n))


def test_an_index_is_computed_once_while_its_variables_last(monkeypatch):
    """Whatever is bound inside of them, and however much is stored there."""
    asked = []
    plain = Expressions._divided
    monkeypatch.setattr(Expressions, "_divided", lambda self, *args: asked.append(1) or plain(self, *args))
    x, y = Buffer("x", (64,)), Buffer("y", (40, 8, 16))

    def row(task):
        def at(r, j):
            return store(y, (task, r, j), x[(task * 3 + 1) // 7])

        return loop("r", 8, lambda r: loop("j", 16, lambda j: at(r, j), "vectorized"), "unrolled")

    emit_module([PrimFunc("f", (x, y), loop("task", 40, row))], Target("llvm"))
    assert len(asked) == 1
