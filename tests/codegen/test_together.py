"""Several vectors or terms as one step of a loop: functions side by side, whole lines past the caches, sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pullback.codegen import emit_module
from pullback.codegen.statements import BRIEF, SIDE_BY_SIDE
from pullback.target import Target
from pullback.tir import Allocate, Buffer, If, PrimFunc, Var, call, cast, loop, minimum, seq, store
from tests.codegen.test_streamed import kernel as streamed_kernel

HASWELL = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
LANES = HASWELL.lanes("float32")
DTYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def kernel(n, dtype="float32", kind="vectorized", name="exp", length=None):
    """y = f(x) * x for the first n elements."""
    x, y = (Buffer(b, (length or n,), dtype) for b in "xy")
    params = (x, y, n) if isinstance(n, Var) else (x, y)
    return PrimFunc("f", params, loop("i", n, lambda i: store(y, (i,), call(name, x[i]) * x[i]), kind))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "tanh", "sin"])
def test_as_one_after_another(native, dtype, name):
    """Whatever is left behind whole vectors and sets of them, of a known length or not, and the same bits."""
    step = SIDE_BY_SIDE * Target("llvm").vector_bytes // 4
    longest = 2 * step + 9
    x = np.linspace(-4, 4, longest).astype(DTYPES[dtype])
    n = Var("n")
    library = native.load([kernel(n, dtype, name=name, length=longest)])
    serial = native.load([kernel(n, dtype, "serial", name, longest)])
    for count in (0, 1, 7, step // 2, step - 1, step, step + 1, 2 * step, longest):
        results = [np.full_like(x, 9) for _ in range(3)]
        func = kernel(n, dtype, name=name, length=longest)
        native.call(library, func, [x, results[0], count])
        native.call(serial, func, [x, results[1], count])
        if count:
            native(kernel(count, dtype, name=name, length=longest), x, results[2])
        for result in results:
            assert result.tobytes() == results[1].tobytes(), count


def test_chains_are_side_by_side():
    wide = f"<{SIDE_BY_SIDE * LANES} x float>"
    rest = f"<{LANES} x float>"
    text = emit_module([kernel(SIDE_BY_SIDE * LANES * 5)], HASWELL)
    assert wide in text and rest not in text
    text = emit_module([kernel(SIDE_BY_SIDE * LANES * 5 + LANES)], HASWELL)
    assert wide in text and rest in text


def test_what_is_no_chain_is_not():
    """One instruction; one that may have to ask libm, for all lanes if for any; branches."""
    wide = f"<{SIDE_BY_SIDE * LANES} x float>"
    n = SIDE_BY_SIDE * LANES * 5
    assert wide not in emit_module([kernel(n, name="sqrt")], HASWELL)
    assert wide not in emit_module([kernel(n, name="sin")], HASWELL)
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    branch = loop("i", n, lambda i: If(x[i] > 0.0, store(y, (i,), call("exp", x[i]))), "vectorized")
    assert wide not in emit_module([PrimFunc("f", (x, y), branch)], HASWELL)


@pytest.mark.parametrize("cpu, lanes", [("haswell", 16), ("x86-64", 16), ("skylake-avx512", 16)])
def test_whole_lines_go_past_the_caches(cpu, lanes):
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    text = emit_module([streamed_kernel(1024)], target)
    (stored,) = {line.split("store ")[1].split(" %")[0] for line in text.splitlines() if "!nontemporal" in line}
    assert stored == f"<{lanes} x float>"


def test_few_vectors_are_written_out():
    """A loop of two iterations is none; one of many is."""
    x, y = Buffer("x", (40, 64)), Buffer("y", (40, 64))

    def text(columns):
        rows = loop("i", 40, lambda i: loop("j", columns, lambda j: store(y, (i, j), x[i, j] + 1.0), "vectorized"))
        return emit_module([PrimFunc("f", (x, y), rows)], HASWELL)

    assert text(2 * LANES).count("phi i64") == 1 and text(2 * LANES).count("fadd") == 2
    assert text(64).count("phi i64") == 2 and text(64).count("fadd") == 1


def test_few_vectors_of_a_long_body_are_a_loop():
    """Written out, what a body does many times would be as many lines again for each vector, and gain nothing."""
    x, y = Buffer("x", (40, BRIEF, 2 * LANES)), Buffer("y", (40, 2 * LANES))

    def text(terms):
        def body(i):
            return loop(
                "j", 2 * LANES, lambda j: store(y, (i, j), sum((x[i, k, j] for k in range(terms)), 0.0)), "vectorized"
            )

        return emit_module([PrimFunc("f", (x, y), loop("i", 40, body))], HASWELL)

    assert text(8).count("phi i64") == 1 and text(8).count("load <") == 16
    assert text(BRIEF).count("phi i64") == 2 and text(BRIEF).count("load <") == BRIEF


def test_numbers_that_are_converted_are_side_by_side(native):
    """Lanes of several types in one step."""
    x, y = Buffer("x", (200,), "int32"), Buffer("y", (200,), "float64")
    body = loop("i", 200, lambda i: store(y, (i,), call("exp", cast("float64", x[i]) / 50.0)))
    vectors = loop("i", 200, lambda i: store(y, (i,), call("exp", cast("float64", x[i]) / 50.0)), "vectorized")
    given = np.arange(200, dtype=np.int32) - 100
    one, many = np.zeros(200), np.zeros(200)
    native(PrimFunc("f", (x, y), body), given, one)
    native(PrimFunc("f", (x, y), vectors), given, many)
    np.testing.assert_array_equal(one, many)


ROWS = 5


def sums_of_terms(terms, columns=2 * LANES, most=None, rows_of_tile=ROWS):
    """A tile of sums: ``c[r, j] = sum over k < terms of a[r, k] b[k, j]``. Of ``terms[0]`` of them, where ``most`` says
    how many there are at most."""
    size = terms if most is None else most
    counts = Buffer("terms", (1,), "int64")
    a, b, c = Buffer("a", (rows_of_tile, size)), Buffer("b", (size, columns)), Buffer("c", (rows_of_tile, columns))
    acc = Buffer("acc", (rows_of_tile, columns), "float32", "local")

    def over(value):
        def rows(j):
            return loop("r", rows_of_tile, lambda r: value(r, j), "unrolled")

        return loop("j", columns, rows, "vectorized")

    def add(k):
        return over(lambda r, j: store(acc, (r, j), call("fma", a[r, k], b[k, j], acc[r, j])))

    clear, put = over(lambda r, j: store(acc, (r, j), 0.0)), over(lambda r, j: store(c, (r, j), acc[r, j]))
    extent = terms if most is None else minimum(counts[0], most)
    body = Allocate(acc, seq(clear, loop("k", extent, add), put))
    return PrimFunc("f", (a, b, c) if most is None else (counts, a, b, c), body)


@pytest.mark.parametrize("terms, step", [(15, 1), (16, 2), (17, 2), (63, 2), (64, 4), (65, 4), (67, 4)])
def test_some_terms_of_a_tile_are_one_step(native, terms, step):
    """Fewer instructions of counting; the terms that are left are written out, and each has its own loads."""
    function = sums_of_terms(terms)
    text = emit_module([function], HASWELL)
    copies = step + terms % step
    assert text.count("call <8 x float> @llvm.fma.v8f32(") == 2 * ROWS * copies
    assert text.count("phi i64") == 1 and text.count("fence") == (step - 1) + max(0, terms % step - 1)
    generator = np.random.default_rng(terms)
    a, b = (generator.standard_normal(shape).astype("float32") for shape in ((ROWS, terms), (terms, 2 * LANES)))
    native.check(function, a, b, np.zeros((ROWS, 2 * LANES), "float32"))


@pytest.mark.parametrize("terms", [0, 1, 3, 4, 5, 66, 67, 80])
def test_terms_that_are_counted_at_run_time(native, terms):
    """The rest of a step is a loop too."""
    generator = np.random.default_rng(terms)
    a, b = (generator.standard_normal(shape).astype("float32") for shape in ((ROWS, 67), (67, 2 * LANES)))
    native.check(sums_of_terms(None, most=67), np.array([terms]), a, b, np.zeros((ROWS, 2 * LANES), "float32"))


@pytest.mark.parametrize("columns", [LANES, LANES + 4])
def test_terms_of_rows_without_several_whole_vectors_are_a_step_each(columns):
    """LLVM would move their sums from register to register."""
    assert emit_module([sums_of_terms(64, columns)], HASWELL).count("fence") == 0


def test_fewer_terms_of_small_tiles_are_a_step():
    """They are mostly the ends of large ones, seldom run."""
    half, large = sums_of_terms(64, rows_of_tile=4), Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    assert emit_module([half], HASWELL).count("fence") == 1
    assert emit_module([sums_of_terms(63, rows_of_tile=4)], HASWELL).count("fence") == 0
    assert emit_module([sums_of_terms(64, 2 * large.lanes("float32"))], large).count("fence") == 0
