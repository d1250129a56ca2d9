"""Schedules: the kernels of groups mean what their tensor expressions mean, on sizes around the tile's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.cost import element_cost
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.group import Group, Machine
from pullback.schedule.reduction import Reduction
from pullback.schedule.scatter import Scatter
from pullback.schedule.split import split
from pullback.schedule.tiles import choose_tile
from pullback.te import interpreter as te_interpreter
from pullback.te.graph import placeholders
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.workspace import lift_workspaces
from tests.helpers import round_trip
from tests.schedule.native import natively

SMALL = Machine(vector_bytes=16, registers=16)  # few lanes: odd sizes reach every edge soon


def group_of(*outputs: te.Tensor, machine: Machine = SMALL) -> Group:
    return Group(tuple(placeholders(outputs)), tuple(outputs), machine)


def run(group: Group) -> list[np.ndarray]:
    """The kernel, in the loop-IR interpreter, gives what the te interpreter gives; its text parses to itself."""
    kernel, workspaces = lift_workspaces(lower(group, "kernel"))
    round_trip(kernel)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    expected = te_interpreter.evaluate(group.outputs, feeds)
    results, scratch = (
        [np.full(b.shape, 99 if "int" in b.dtype else np.nan).astype(b.dtype) for b in buffers]
        for buffers in (group.outputs, workspaces)
    )
    arguments = [*feeds.values(), *results, *scratch]
    tir_interpreter.run(kernel, [a.reshape(b.shape) for a, b in zip(arguments, kernel.buffers, strict=True)])
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=2e-5, atol=2e-5)
    return results


def matmul(m: int, n: int, k: int, transposed: bool = False) -> te.Tensor:
    a = te.placeholder((m, k), name="a")
    b = te.placeholder((n, k) if transposed else (k, n), name="b")
    axis = te.reduce_axis(k)
    read = (lambda j: b[j, axis.var]) if transposed else (lambda j: b[axis.var, j])
    return te.compute((m, n), lambda i, j: te.sum(a[i, axis.var] * read(j), axis), "matmul")


@pytest.mark.parametrize("place", range(4))
def test_one_element_of_a_stage_is_not_the_one_at_hand(place):
    """A stage that is computed at each point, and read at one place too."""
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2.0, "y")
    z = te.compute((4,), lambda i: y[i] * y[place], "z")
    run(group_of(y, z))
    run(group_of(te.compute((3, 4), lambda i, j: z[j] + y[place] * y[j], "sum")))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (8, 12, 2), (17, 9, 3), (9, 1, 4), (1, 33, 5), (16, 24, 1), (9, 21, 14)]
)
def test_contraction(m, n, k, transposed):
    group = group_of(matmul(m, n, k, transposed))
    assert isinstance(recognize(group), Contraction) or 1 in (m, n)
    run(group)


@pytest.mark.parametrize("machine", [SMALL, Machine()])
def test_a_factor_may_be_the_same_for_all_terms(machine):
    """Σ_k a[i]·b[k, j]: a matmul of a broadcast tensor; with b's axes in either order, and either way round."""
    rows, columns = (2, 3), 9
    a, k = te.placeholder(rows, name="a"), te.reduce_axis(5)
    b, turned = te.placeholder((5, columns), name="b"), te.placeholder((columns, 5), name="turned")
    for result in (
        te.compute((*rows, columns), lambda i, m, j: te.sum(a[i, m] * b[k.var, j], k)),
        te.compute((*rows, columns), lambda i, m, j: te.sum(a[i, m] * turned[j, k.var], k)),
        te.compute((columns, *rows), lambda j, i, m: te.sum(b[k.var, j] * a[i, m], k)),
        te.compute((columns, *rows), lambda j, i, m: te.sum(turned[j, k.var] * a[i, m], k)),
    ):
        run(group_of(result, machine=machine))


def test_rows_whole_pages_apart_are_few():
    """They share one set of the nearest cache: 8 lines."""
    tiles = [recognize(group_of(matmul(64, 16, k), machine=Machine())).parts[0][1].tile for k in (1000, 1024, 2048)]
    assert [tile.rows for tile in tiles] == [16, 8, 8]


def test_contraction_without_fused_multiply_add():
    group = group_of(matmul(17, 9, 300), machine=Machine(16, 15, fma=False))
    assert "fma" not in lower(group, "kernel").script()
    run(group)


def test_contraction_with_epilogue_and_two_outputs():
    product = matmul(9, 13, 6)
    bias = te.placeholder((13,), name="bias")
    total = te.compute((9, 13), lambda i, j: product[i, j] + bias[j], "total")
    relu = te.compute((9, 13), lambda i, j: tir.select(total[i, j] < 0, 0, total[i, j]), "relu")
    mask = te.compute((9, 13), lambda i, j: relu[i, j] > 0, "mask")
    group = group_of(relu, mask)
    assert isinstance(recognize(group), Contraction)
    run(group)


def test_a_result_is_computed_in_the_order_of_its_axes():
    product = matmul(9, 7, 5)
    total = te.compute((9, 7), lambda i, j: product[i, j] + 1.0, "total")
    turned = te.compute((7, 9), lambda j, i: total[i, j], "turned")
    group = group_of(turned)
    assert isinstance(recognize(group), Contraction)
    run(group)


def test_the_beginning_of_a_stage_is_not_the_stage():
    x = te.placeholder((3, 5), name="x")
    doubled = te.compute((3, 5), lambda i, j: x[i, j] * 2.0, "doubled")
    group = group_of(te.compute((3, 4), lambda i, j: doubled[i, j], "beginning"))
    assert group.oriented.outputs[0].shape == (3, 4)
    run(group)


def test_contraction_refuses_what_is_no_epilogue():
    product = matmul(8, 8, 8)
    turned = te.compute((8, 8), lambda i, j: product[j, i], "turned")
    assert recognize(group_of(product, turned)) is None
    twice = te.compute((8, 8), lambda i, j: matmul(8, 8, 8)[i, j] + product[i, j], "twice")
    assert recognize(group_of(twice)) is None  # two matmuls are two kernels


@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (1, 1, 1, 1), (3, 4, 9, 2)])
def test_batched_contraction(shape):
    batch, m, n, k = shape
    for transposed in (False, True):
        a = te.placeholder((batch, m, k), name="a")
        b = te.placeholder((batch, n, k) if transposed else (batch, k, n), name="b")
        axis = te.reduce_axis(k)
        right = (lambda p, j, b=b, x=axis: b[p, j, x.var]) if transposed else (lambda p, j, b=b, x=axis: b[p, x.var, j])
        product = te.compute((batch, m, n), lambda p, i, j: te.sum(a[p, i, axis.var] * right(p, j), axis), "matmul")  # noqa: B023
        run(group_of(product))


def softmax(rows: int, columns: int) -> te.Tensor:
    x = te.placeholder((rows, columns), name="x")
    k, m = te.reduce_axis(columns), te.reduce_axis(columns)
    largest = te.compute((rows,), lambda i: te.max(x[i, k.var], k), "largest")
    e = te.compute((rows, columns), lambda i, j: tir.call("exp", x[i, j] - largest[i]), "e")
    total = te.compute((rows, 1), lambda i, _: te.sum(e[i, m.var], m), "total")
    return te.compute((rows, columns), lambda i, j: e[i, j] / total[i, 0], "softmax")


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (5, 17), (4, 40), (2, 129)])
def test_rows(rows, columns):
    group = group_of(softmax(rows, columns))
    assert isinstance(recognize(group), Reduction)
    run(group)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (5, 1), (3, 17), (0, 4), (7, 40)])
def test_columns(rows, columns):
    y = te.placeholder((rows, columns), name="y")
    k = te.reduce_axis(rows)
    total = te.compute((columns,), lambda j: te.sum(y[k.var, j] * 2.0, k), "total")
    half = te.compute((columns,), lambda j: total[j] * 0.5, "half")
    group = group_of(total, half)
    assert isinstance(recognize(group), Reduction)
    run(group)


def test_reduction_refuses_other_rows():
    """A stage that reads another row's total cannot be in the same kernel."""
    x = te.placeholder((4, 4), name="x")
    k = te.reduce_axis(4)
    total = te.compute((4,), lambda i: te.sum(x[i, k.var], k), "total")
    shifted = te.compute((4,), lambda i: total[3 - i], "shifted")
    crossed = te.compute((4, 4), lambda i, j: x[i, j] / total[j], "crossed")
    assert recognize(group_of(shifted)) is None
    assert recognize(group_of(crossed)) is None


def run_pieces(outputs: list[te.Tensor]) -> list[Group]:
    """The kernels that outputs are split into, one after another, give what the te interpreter gives."""
    pieces = split(outputs, SMALL)
    rng = np.random.default_rng(0)
    values = {t: rng.uniform(1, 2, t.shape).astype(t.dtype) for t in placeholders(outputs)}
    for group, original in pieces:
        kernel, workspaces = lift_workspaces(lower(group, "kernel"))
        results = [np.full(t.shape, np.nan, t.dtype) for t in group.outputs]
        scratch = [np.full(w.shape, np.nan, w.dtype) for w in workspaces]
        arguments = [*(values[original[t]] for t in group.inputs), *results, *scratch]
        tir_interpreter.run(kernel, [a.reshape(b.shape) for a, b in zip(arguments, kernel.buffers, strict=True)])
        values |= {original[t]: r for t, r in zip(group.outputs, results, strict=True)}
    expected = te_interpreter.evaluate(outputs, {t: values[t] for t in placeholders(outputs)})
    for output, value in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(values[output], value, rtol=1e-5)
    return [g for g, _ in pieces]


def test_splitting_what_is_no_single_kernel():
    x = te.placeholder((4, 4), name="x")
    k, m = te.reduce_axis(4), te.reduce_axis(4)
    total = te.compute((4,), lambda i: te.sum(x[i, k.var], k), "total")
    crossed = te.compute((4, 4), lambda i, j: x[i, j] / total[j], "crossed")
    final = te.compute((), lambda: te.sum(crossed[m.var, 0], m), "final")
    assert [g.outputs[0].name for g in run_pieces([final])] == ["total", "final"]


def test_pieces_that_a_schedule_takes_together_stay_together():
    """The sums, their halves and the squares of their rows are one kernel; what reads another row's sum is another."""
    x, k = te.placeholder((4, 6), name="x"), te.reduce_axis(6)
    total = te.compute((4,), lambda i: te.sum(x[i, k.var], k), "total")
    half = te.compute((4,), lambda i: total[i] * 0.5, "half")
    scaled = te.compute((4, 6), lambda i, j: x[i, j] * total[i], "scaled")
    shifted = te.compute((4, 6), lambda i, j: scaled[i, j] - total[3 - i], "shifted")
    groups = run_pieces([half, scaled, shifted])
    assert [[o.name for o in g.outputs] for g in groups] == [["total", "half", "scaled"], ["shifted"]]
    (alone,) = (g for g, _ in split([half], SMALL))
    assert [o.name for o in alone.outputs] == ["half"], "what nobody else reads is no output"


def permuted(stage: te.Tensor, order: tuple[int, ...], name: str) -> te.Tensor:
    """The stage with axis ``order[k]`` at place k."""
    shape = [stage.shape[k] for k in order]
    return te.compute(shape, lambda *i: stage[tuple(i[order.index(k)] for k in range(len(order)))], name)


def total_of(stage: te.Tensor, kept: int) -> te.Tensor:
    """The sums of squares along all axes but one."""
    axes = [te.reduce_axis(s) for s in stage.shape]

    def element(i: tir.PrimExpr) -> te.tensor.Reduce:
        value = stage[tuple(i if k == kept else a.var for k, a in enumerate(axes))]
        return te.sum(value * value, [a for k, a in enumerate(axes) if k != kept])

    return te.compute((stage.shape[kept],), element, "total")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("reduced", [False, True], ids=["elementwise", "reduction"])
def test_what_an_output_holds_in_another_order_is_read_there(order: tuple[int, ...], reduced: bool) -> None:
    """Each element of the stage is computed once: only the kernel whose output it is, in its order, reads ``x``."""
    x, k = te.placeholder((3, 4, 5, 2), name="x"), te.reduce_axis(2)
    value = (lambda *i: te.max(x[(*i, k.var)], k)) if reduced else (lambda *i: x[(*i, 0)] * x[(*i, 1)])
    stage = te.compute((3, 4, 5), value, "stage")
    shifted = te.compute((3, 4, 5), lambda a, b, c: stage[2 - a, b, c] + 1.0, "shifted")
    held = permuted(stage, order, "held")
    outputs = [total_of(stage, 1), shifted, held, permuted(stage, (2, 1, 0), "again"), total_of(shifted, 0)]
    groups = run_pieces(outputs)
    assert sorted(o.name for g in groups for o in g.outputs) == ["again", "shifted", "stage", "total", "total"]
    (first,) = (g for g in groups if any(t is x for t in g.inputs))
    assert [o.shape for o in first.outputs if o.name == "stage"] == [held.shape]


def test_what_pieces_hand_on_lies_in_the_order_of_the_results():
    """Vectors of both pieces lie along ``c``, though the tensor expression has it in the middle."""
    x = te.placeholder((2, 7, 5, 16), name="x")
    slow = te.compute((2, 16, 7, 5), lambda n, c, h, w: tir.call("exp", x[n, h, w, c]), "slow")
    total = total_of(slow, 1)
    scaled = te.compute((2, 16, 7, 5), lambda n, c, h, w: slow[n, c, h, w] * total[15 - c], "scaled")
    groups = run_pieces([permuted(scaled, (0, 2, 3, 1), "out")])
    shapes = {t.name: t.shape for g in groups for t in (*g.inputs, *g.outputs)}
    assert shapes == {"x": x.shape, "slow": x.shape, "total": (16,), "scaled": x.shape}


def test_what_an_output_holds_in_part_or_costs_nothing_is_computed_by_all() -> None:
    x, y = te.placeholder((6, 5), name="x"), te.placeholder((5,), name="y")
    stage = te.compute((6, 5), lambda i, j: x[i, j] + y[j], "stage")
    beginning = te.compute((5, 4), lambda j, i: stage[i, j], "beginning")
    repeated = te.compute((6, 5), lambda i, j: y[j], "repeated")
    for holder, held in ((beginning, stage), (permuted(repeated, (1, 0), "columns"), repeated)):
        groups = run_pieces([holder, total_of(held, 0)])
        assert all(any(t is y for t in g.inputs) for g in groups)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 3), (4, 1, 6), (100_003,), (98_304,)])
def test_elementwise(shape):
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    z = te.compute(shape, lambda *i: x[i] * 2.0 + y[i[-1:]], "z")
    group = group_of(z)
    assert isinstance(recognize(group), Elementwise)
    run(group)


def test_axes_merge_where_all_accesses_allow():
    x, y = te.placeholder((6, 10), name="x"), te.placeholder((6, 10), name="y")
    same = lower(group_of(te.compute((6, 10), lambda i, j: x[i, j] + y[i, j], "z")), "same")
    assert [b.shape for b in same.buffers] == [(60,)] * 3
    square = te.placeholder((6, 6), name="s")
    turned = lower(group_of(te.compute((6, 6), lambda i, j: square[i, j] + square[j, i], "z")), "turned")
    assert [b.shape for b in turned.buffers] == [(6, 6)] * 2


@pytest.mark.parametrize("shape", [(32, 32), (40, 33), (3, 48, 65), (2, 16, 20)])
def test_transposes_are_tiled(shape):
    x = te.placeholder((*shape[:-2], shape[-1], shape[-2]), name="x")
    turned = te.compute(shape, lambda *i: x[(*i[:-2], i[-1], i[-2])] + 1.0, "turned")
    text = lower(group_of(turned), "kernel").script()
    assert "block * " in text
    assert ("tile = " in text) == (shape[-1] % 4 == 0)  # tiles of whole vectors are turned in registers
    run(group_of(turned))


def test_transposes_of_several_inputs_and_dtypes():
    shape = (24, 32)
    x, y, z = (te.placeholder(shape[::-1], d, n) for d, n in (("float32", "x"), ("float32", "y"), ("int32", "z")))
    w = te.placeholder(shape, name="w")

    def element(i, j):
        return x[j, i] * y[j, i] + tir.cast("float32", z[j, i]) * x[j, i] + w[i, j]

    run(group_of(te.compute(shape, element, "mixed")))
    d = te.placeholder(shape[::-1], "float64", "d")
    run(group_of(te.compute(shape, lambda i, j: d[j, i] + tir.cast("float64", x[j, i]), "two_widths")))


def test_matrix_times_vector_is_no_contraction():
    a, v, k = te.placeholder((9, 21), name="a"), te.placeholder((21,), name="v"), te.reduce_axis(21)
    group = group_of(te.compute((9,), lambda i: te.sum(a[i, k.var] * v[k.var], k), "matvec"))
    assert isinstance(recognize(group), Reduction)
    run(group)


def test_tiles_fit_the_registers():
    for registers, lanes in ((32, 16), (16, 8), (32, 8), (16, 4)):
        for rows in (1, 3, 8, 64, 509, 784):
            for columns in (1, 10, 16, 128, 383):
                tile = choose_tile(rows, columns, lanes, registers)
                vectors = -(-tile.columns // lanes)
                assert tile.rows * vectors + vectors + 1 <= registers
                assert 1 <= tile.rows <= rows
                assert tile.columns % lanes == 0 or tile.columns == columns


@pytest.mark.parametrize("columns", [127, 128, 129, 240, 250])
def test_panels_that_threads_share_are_of_as_many_vectors(columns):
    """Where that takes no more of them: one column less than whole vectors is a mask, and no edge."""
    tile = choose_tile(64, columns, 16, 32)
    assert -(-columns // 16) % (tile.columns // 16) == 0


@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(7, 20, (33,)), (300, 5, (3, 17)), (4, 6, ()), (1, 3, (8,)), (5, 0, (4,))], ids=str
)
def test_scattered_terms(rows: int, terms: int, columns: tuple[int, ...]) -> None:
    """Each term goes to its own row, indices outside the rows to none: rows and columns side by side."""
    value, index = te.placeholder((terms, *columns), name="value"), te.placeholder((terms,), "int64", name="index")
    squared = te.compute(value.shape, lambda *i: value[i] * value[i], "squared")
    for first in (True, False):
        k = te.reduce_axis(terms)

        def element(*i: tir.Var, first: bool = first, k: te.ReduceAxis = k) -> te.Reduce:
            row, place = (i[0], i[1:]) if first else (i[-1], i[:-1])
            return te.sum(tir.select(row.equal(index[k.var]), squared[(k.var, *place)], 0.0), k)

        total = te.compute((rows, *columns) if first else (*columns, rows), element, "total")
        group = group_of(total)
        assert isinstance(recognize(group), Scatter)
        kernel, workspaces = lift_workspaces(lower(group, "kernel"))
        assert not workspaces
        round_trip(kernel)
        rng = np.random.default_rng(0)
        feeds = {
            value: rng.standard_normal(value.shape).astype("float32"),
            index: rng.integers(-2, rows + 2, terms),
        }
        (expected,) = te_interpreter.evaluate([total], feeds)
        result = np.full(total.shape, np.nan, "float32")
        arguments = [*(feeds[t] for t in group.inputs), result]
        tir_interpreter.run(kernel, [a.reshape(b.shape) for a, b in zip(arguments, kernel.buffers, strict=True)])
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("own", [(0, 2), (1,), (2,)], ids=str)
def test_scattered_terms_with_rows_of_their_own(at: int, own: tuple[int, ...]) -> None:
    """The index depends on axes of the result (``own``, all but the row's) as well as on the reduced one."""
    shape, rows = (5, 6, 133), (4, 5, 7)[at]
    kept = sorted({at, *own})
    value = te.placeholder(shape, name="value")
    index = te.placeholder([shape[k] for k in kept], "int64", name="index")
    k = te.reduce_axis(shape[at])

    def element(*i: tir.Var) -> te.Reduce:
        place = (*i[:at], k.var, *i[at + 1 :])
        return te.sum(tir.select(index[tuple(place[n] for n in kept)].equal(i[at]), value[place], 0.0), k)

    total = te.compute((*shape[:at], rows, *shape[at + 1 :]), element, "total")
    group = group_of(total)
    assert isinstance(recognize(group), Scatter)
    rng = np.random.default_rng(0)
    feeds = {
        value: rng.standard_normal(shape).astype("float32"),
        index: rng.integers(-2, rows + 2, index.shape),
    }
    (expected,) = te_interpreter.evaluate([total], feeds)
    (result,) = natively(group, {t: feeds[t] for t in group.inputs})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("first", [True, False])
def test_scattered_terms_on_top_of_a_tensor(kind: str, first: bool) -> None:
    """The rows begin with what the tensor holds, also where the result takes over its memory."""
    begin, value = te.placeholder((6, 21), name="begin"), te.placeholder((9, 21), name="value")
    index, k = te.placeholder((9,), "int64", name="index"), te.reduce_axis(9)
    neutral = te.graph.identity(kind, "float32")
    total = te.compute(
        (6, 21),
        lambda i, j: getattr(te, kind)(tir.select(index[k.var].equal(i), value[k.var, j], neutral), k),
        "total",
    )
    combine = {"sum": "add", "prod": "mul"}.get(kind, kind)

    def element(i: tir.Var, j: tir.Var) -> tir.PrimExpr:
        sides = (begin[i, j] * 2.0, total[i, j]) if first else (total[i, j], begin[i, j] * 2.0)
        return tir.expr.binary(combine, *sides)

    output = te.compute((6, 21), element, "output")
    group = group_of(output)
    assert isinstance(recognize(group), Scatter)
    rng = np.random.default_rng(0)
    feeds = {
        begin: rng.standard_normal((6, 21)).astype("float32"),
        value: rng.standard_normal((9, 21)).astype("float32"),
        index: np.array([3, 0, 3, 5, -1, 3, 6, 0, 2]),
    }
    (expected,) = te_interpreter.evaluate([output], feeds)
    (result,) = natively(group, {t: feeds[t] for t in group.inputs})
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_what_follows_scattered_terms_is_another_kernel() -> None:
    value, index, k = te.placeholder((9, 4), name="v"), te.placeholder((9,), "int64", name="i"), te.reduce_axis(9)
    total = te.compute((6, 4), lambda i, j: te.sum(tir.select(index[k.var].equal(i), value[k.var, j], 0.0), k), "total")
    halved = te.compute((6, 4), lambda i, j: total[i, j] * 0.5, "halved")
    assert recognize(group_of(halved)) is None
    assert [g.outputs[0].name for g, _ in split([halved], SMALL)] == ["total", "halved"]


def test_what_is_worth_threads() -> None:
    """All that an element reads counts, each once."""
    a, b = (te.placeholder((16,), name=n) for n in "ab")
    costs = [
        element_cost([te.compute((16,), lambda i, f=f: f(a[i], b[i]), "c")])
        for f in (lambda x, y: x + x, lambda x, y: x + y, lambda x, y: tir.call("exp", x))
    ]
    assert costs[0] < costs[1] < costs[2]
    assert costs[1] - costs[0] == pytest.approx(costs[0] / 3)  # of a load, an addition and a store


ROWS = 1 << 13  # of 256 numbers: 8 MB


def test_large_outputs_are_written_past_the_caches() -> None:
    """Not small ones, and none whose elements are not written as they lie: those of a transposition."""
    x, v = te.placeholder((ROWS, 256), name="x"), te.placeholder((256,), name="v")
    scaled = te.compute(x.shape, lambda i, j: x[i, j] * v[j], "scaled")
    axis = te.reduce_axis(256)
    total = te.compute((ROWS,), lambda i: te.sum(scaled[i, axis.var], axis), "total")
    turned = te.compute((256, ROWS), lambda i, j: x[j, i], "turned")
    half = te.compute((ROWS // 2, 256), lambda i, j: x[i, j] * v[j], "half")
    assert lower(group_of(scaled, total), "kernel").attrs["streamed"] == (2,)
    for outputs in ((turned,), (half,), (total,)):
        assert "streamed" not in lower(group_of(*outputs), "kernel").attrs
    other = te.compute(half.shape, lambda i, j: x[i, j] + v[j], "other")
    assert lower(group_of(half, other), "kernel").attrs["streamed"] == (2, 3)  # both together are as large
