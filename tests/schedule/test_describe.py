"""What schedules say they chose, held against the loops that they write: tiles, packing, tasks, and the peak."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

import pullback
from pullback import te, tir
from pullback.ir import structural_equal, structural_hash
from pullback.schedule.choose import SCHEDULES, lower, lowered, recognize, scheduled
from pullback.schedule.group import Group, Machine
from pullback.script import relax as R
from pullback.te.random import bits
from pullback.tir import Allocate, Buffer, Call, For, IntImm, PrimFunc
from pullback.tir.description import GFLOPS, SCHEDULE, Description, Nest, description_of
from pullback.tir.in_place import share
from pullback.tir.specialize import specialize
from pullback.tir.visitor import loads, walk
from pullback.tir.workspace import lift_workspaces
from tests.schedule.test_attention import attention, backward
from tests.schedule.test_contraction import product
from tests.schedule.test_reduction import over, softmax_sum
from tests.schedule.test_schedules import group_of, matmul

MACHINES = {"wide": Machine(64, 32), "small": Machine(32, 16), "slow": Machine(16, 32, vector_fma_ns=1.5)}


def scatter(rows: int = 50, terms: int = 4000, columns: int = 96) -> te.Tensor:
    value, index = te.placeholder((terms, columns), name="value"), te.placeholder((terms,), "int64", name="index")
    k = te.reduce_axis(terms)
    return te.compute(
        (rows, columns), lambda i, j: te.sum(tir.select(i.equal(index[k.var]), value[k.var, j], 0.0), k), "total"
    )


def drawn(size: int = 1 << 18) -> te.Tensor:
    words = bits(te.placeholder((2,), "uint64", "state"), (size,))
    return te.compute((size,), lambda i: tir.cast("float32", words[i]), "out")


def elementwise(*shape: int, turned: bool = False) -> te.Tensor:
    x = te.placeholder(shape[::-1] if turned else shape, name="x")
    return te.compute(shape, lambda *i: tir.call("exp", x[i[::-1] if turned else i]), "out")


CASES: dict[str, Callable[[], tuple[te.Tensor, ...]]] = {
    "product": lambda: (matmul(256, 384, 512),),
    "transposed": lambda: (matmul(120, 200, 1000, transposed=True),),
    "long sums": lambda: (matmul(24, 32, 20000),),
    "few rows": lambda: (matmul(4, 2048, 1024),),
    "short": lambda: (matmul(7, 9, 5),),
    "sums in lanes": lambda: (matmul(5, 4, 32, transposed=True),),
    "convolution": lambda: (product("forward", (8, 12, 20, 20, 24, 5, 1, 2), False),),
    "strided gradient": lambda: (product("data", (8, 12, 20, 20, 24, 3, 2, 1), False),),
    "gradient of weights": lambda: (product("weight", (8, 12, 28, 28, 5, 5, 1, 2), False),),
    "depthwise": lambda: (product("forward", (4, 32, 16, 16, 32, 3, 1, 1), True, 32),),
    "filter": lambda: (product("forward", (16, 64, 16, 16, 64, 3, 1, 1), True),),
    "gradient of a filter": lambda: (product("weight", (16, 64, 16, 16, 64, 3, 1, 1), True),),
    "elementwise": lambda: (elementwise(1 << 18),),
    "turned": lambda: (elementwise(512, 256, turned=True),),
    "scalar": lambda: (elementwise(),),
    "rows": lambda: (softmax_sum(512, 384),),
    "columns": lambda: (over("sum", te.placeholder((64, 4096), name="x"), 0),),
    "chunks": lambda: (over("sum", te.placeholder((1 << 15, 16), name="x"), 0),),
    "window": lambda: (over("max", te.placeholder((1 << 15, 3), name="x"), 1),),
    "scatter": lambda: (scatter(),),
    "random": lambda: (drawn(),),
    "attention": lambda: (attention((256, 256, 4, 4, 64, 64)).forward(),),
    "causal": lambda: (attention((256, 256, 4, 4, 64, 64), offset=0).forward(),),
    "attention's gradient": lambda: backward(attention((256, 256, 4, 4, 64, 64))),
}


def loops(kernel: PrimFunc, kind: str) -> list[For]:
    return [n for n in walk(kernel.body) if isinstance(n, For) and n.kind == kind]


def known(kernel: PrimFunc) -> Description:
    found = description_of(kernel)
    assert found is not None
    return found


def accumulators(kernel: PrimFunc) -> set[tuple[object, ...]]:
    """Shapes of the register tiles, edges included."""
    found = [n.buffer for n in walk(kernel.body) if isinstance(n, Allocate) and n.buffer.name.startswith("acc")]
    return {b.shape for b in found}


def workspaces(kernel: PrimFunc) -> dict[str, Buffer]:
    return {b.name: b for b in lift_workspaces(kernel)[1]}


def test_the_cases_are_of_all_schedules():
    kinds = {type(recognize(group_of(*case(), machine=MACHINES["small"]))) for case in CASES.values()}
    assert kinds == set(SCHEDULES)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_tasks_and_vectors_are_those_of_the_loops(case, machine):
    kernel = lower(group_of(*CASES[case](), machine=MACHINES[machine]), "kernel")
    description = known(kernel)
    found = [n.extent.value for n in loops(kernel, "parallel") if isinstance(n.extent, IntImm)]
    described = [nest.tasks for nest in description.nests if nest.tasks > 1]
    if description.unit != GFLOPS:
        assert sum(described) == sum(n for n in found if n > 1)
    elif len(description.nests) == 1:  # loops that pack, and that add up partial sums, are apart
        assert set(described) <= set(found)
    else:
        assert sum(described) <= sum(found)
    assert any(nest.vector_axis for nest in description.nests) == bool(loops(kernel, "vectorized"))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_no_rate_is_above_the_machines_peak(case, machine):
    own = MACHINES[machine]
    description = known(lower(group_of(*CASES[case](), machine=own), "kernel"))
    peak = 2 * (own.vector_bytes / 4) / own.vector_fma_ns if description.unit == GFLOPS else 64 / own.first_line_ns
    assert 0 < description.rate <= peak * 1.0001
    assert description.rate == pytest.approx(description.amount / description.nanoseconds)


@pytest.mark.parametrize(
    ("m", "n", "k", "transposed"),
    [(256, 384, 512, False), (120, 200, 1000, True), (64, 128, 784, False), (960, 16, 70, False), (5, 1000, 64, False)],
)
@pytest.mark.parametrize("machine", ["wide", "small"])
def test_a_products_tile_is_in_its_loops(m, n, k, transposed, machine):
    own = MACHINES[machine]
    kernel = lower(group_of(matmul(m, n, k, transposed), machine=own), "kernel")
    (nest,) = known(kernel).nests
    assert nest.tile is not None and nest.vector_axis in ("i", "i0", "i1", "j")
    shapes = accumulators(kernel)
    assert nest.tile in shapes and all(s[0] <= nest.tile[0] and s[1] <= nest.tile[1] for s in shapes)
    extents = dict(nest.axes)
    assert sorted(extents.values()) == sorted((m, n)) and [size for _, size in nest.terms] == [k]
    rows, columns = nest.tile
    lanes = own.vector_bytes // 4
    assert rows * -(-columns // lanes) + -(-columns // lanes) + 1 <= own.registers
    along = [loop.extent.value for loop in loops(kernel, "vectorized") if isinstance(loop.extent, IntImm)]
    assert columns in along


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", ["product", "transposed", "long sums", "convolution", "few rows", "short"])
def test_packing_is_that_of_the_loops(case, machine):
    """Multiply-adds read in place what no copy is made of, and panels are buffers of the kernel."""
    kernel = lower(group_of(*CASES[case](), machine=MACHINES[machine]), "kernel")
    nests = known(kernel).nests  # of a whole and its tail
    products = [n for n in walk(kernel.body) if isinstance(n, Call) and n.name == "fma"]
    read = {load.buffer for n in products for factor in n.args[:2] for load in loads(factor)}
    packing = [pair for nest in nests for pair in nest.packing]
    assert {name for name, how in packing if how == "in place"} == {b.name for b in read if b in kernel.buffers}
    assert len(packing) == 2 * len(nests) and {name for name, _ in packing} <= {b.name for b in kernel.buffers}
    names = {n.buffer.name.split("_")[0] for n in walk(kernel.body) if isinstance(n, Allocate)}
    assert any(how.startswith("packed in panels") for _, how in packing) == ("panels" in names)


def test_split_k_and_k_blocks():
    kernel = lower(group_of(matmul(24, 32, 20000), machine=MACHINES["wide"]), "kernel")
    (nest,) = known(kernel).nests
    assert workspaces(kernel)["partial"].shape[0] == nest.split_k > 1
    assert nest.k_block is not None and nest.k_block * nest.split_k <= 20000 + nest.split_k * nest.k_block
    assert any(isinstance(n.extent, IntImm) and n.extent.value == nest.k_block for n in loops(kernel, "serial"))
    (whole,) = known(lower(group_of(matmul(24, 32, 200), machine=MACHINES["wide"]), "kernel")).nests
    assert (whole.split_k, whole.k_block) == (1, None)


def test_the_phases_of_a_strided_gradient_are_nests_of_their_own():
    nests = known(lower(group_of(*CASES["strided gradient"](), machine=MACHINES["small"]), "kernel")).nests
    results = 8 * 12 * 20 * 20
    assert len(nests) == 4 and sum(math.prod(n for _, n in nest.axes) for nest in nests) == results


def test_a_filter_counts_what_it_multiplies():
    """16 points for four results of nine terms: fewer multiply-adds than the sums have."""
    group = group_of(*CASES["filter"](), machine=MACHINES["small"])
    description = known(lower(group, "kernel"))
    sums = 2 * 16 * 64 * 16 * 16 * 64 * 9
    assert description.schedule == "winograd" and description.amount == sums * 4 // 9
    assert description.nests[0].loops == "F(2x2, 3x3)"
    gradient = known(lower(group_of(*CASES["gradient of a filter"](), machine=MACHINES["small"]), "kernel"))
    assert gradient.nests[0].loops == "F(3x3, 2x2)" and gradient.nests[0].split_k >= 1


def test_a_causal_mask_leaves_scores_out():
    whole, causal = (
        known(lower(group_of(*CASES[c](), machine=MACHINES["wide"]), "k")) for c in ("attention", "causal")
    )
    assert whole.amount == 2 * 4 * 256 * 256 * 128
    assert whole.amount / 2 < causal.amount < 0.6 * whole.amount  # half of it, and the blocks on the diagonal


def test_bytes_are_those_of_inputs_and_outputs():
    description = known(lower(group_of(elementwise(1 << 16), machine=MACHINES["wide"]), "kernel"))
    assert (description.amount, description.unit) == (2 * 4 << 16, "GB/s")


def test_more_than_a_cache_holds_comes_from_the_next_one():
    machine = Machine(64, 32, first_cache=1 << 15, second_cache=1 << 18, last_cache=1 << 22)
    inputs = [te.placeholder((n,), name="x") for n in (1 << 10, 1 << 14, 1 << 18, 1 << 22)]
    copies = [te.compute(x.shape, lambda i, x=x: x[i] * 2.0, "out") for x in inputs]
    free = dataclasses.replace(
        machine, first_line_ns=100.0, second_line_ns=200.0, last_line_ns=400.0, memory_line_ns=800.0
    )
    rates = [known(lower(group_of(copy, machine=free), "kernel")).rate for copy in copies]
    assert rates == pytest.approx([64 / 100, 64 / 200, 64 / 400, 64 / 800])


def test_an_epilogue_takes_time():
    total = matmul(256, 384, 16)
    out = te.compute(total.shape, lambda i, j: tir.call("tanh", total[i, j]), "out")
    plain, longer = (known(lower(group_of(t, machine=MACHINES["wide"]), "kernel")) for t in (total, out))
    assert longer.amount == plain.amount and longer.nanoseconds > 1.5 * plain.nanoseconds


def test_sums_of_pairs_are_two_multiply_adds():
    a, b = te.placeholder((64, 256), "bfloat16", "a"), te.placeholder((256, 64), "bfloat16", "b")
    k = te.reduce_axis(256)
    element = lambda i, j: te.sum(tir.cast("float32", a[i, k.var]) * tir.cast("float32", b[k.var, j]), k)  # noqa: E731
    for pair_dot in (False, True):
        machine = dataclasses.replace(MACHINES["wide"], pair_dot=pair_dot)
        description = known(lower(group_of(te.compute((64, 64), element, "out"), machine=machine), "kernel"))
        assert description.amount == 2 * 64 * 64 * 256
        assert description.nests[0].terms == (("k", 128 if pair_dot else 256),)


def test_sizes_that_are_not_known_are_not_described():
    n = tir.Var("n")
    x = te.placeholder((n,), name="x")
    kernel = lower(Group((x,), (te.compute((n,), lambda i: x[i] * 2.0, "out"),), Machine()), "kernel")
    assert description_of(kernel) is None and SCHEDULE not in kernel.attrs


# -- what kind of attribute it is


def test_it_is_no_part_of_the_structure_or_the_text():
    group = group_of(matmul(64, 48, 32), machine=MACHINES["wide"])
    schedule = scheduled(group)
    plain, kernel = schedule.lower("kernel"), lowered(schedule, "kernel")
    assert description_of(plain) is None and known(kernel).schedule == "contraction"
    assert structural_equal(plain, kernel) and structural_hash(plain) == structural_hash(kernel)
    assert plain.digest == kernel.digest and plain.script() == kernel.script()


def test_passes_keep_it():
    group = group_of(*CASES["long sums"](), machine=MACHINES["wide"])
    kernel = lower(group, "kernel")
    own = known(kernel)
    assert workspaces(kernel) and known(lift_workspaces(kernel)[0]) is own
    assert known(kernel.renamed("other")) is own
    assert known(specialize(kernel, [b.shape for b in kernel.buffers])) is own
    copied = lower(group_of(elementwise(64), machine=MACHINES["wide"]), "kernel")
    source, target = copied.buffers
    assert known(share(copied, "in_place", {target: source})) is known(copied)


def test_a_users_attribute_of_that_name_is_an_attribute():
    kernel = lower(group_of(elementwise(8), machine=Machine()), "kernel")
    own = PrimFunc(kernel.name, kernel.params, kernel.body, {SCHEDULE: "mine"})
    assert description_of(own) is None
    assert '"schedule": "mine"' in own.script() and not structural_equal(own, kernel)


# -- how it reads


NEST = Nest(
    (("i", 64), ("j", 128)), 1000.0, (("k", 784),), "", "j", (6, 32), (("x", "in place"), ("w", "packed in panels")),
    split_k=8, k_block=98, tasks=24,
)  # fmt: skip


def test_one_line_and_a_few():
    description = Description("contraction", (NEST,), 90_000, GFLOPS)
    assert description.line == (
        "contraction: 64 x 128 x k 784; vectors along j; register tile 6 x 32; x in place, w packed in panels; "
        "split-K 8; k-block 98; 24 tasks; estimate 90.0 GFLOP/s on one core"
    )
    assert str(description).splitlines() == [
        "contraction, estimate 90.0 GFLOP/s on one core",
        "  64 x 128 x k 784",
        "    vectors along  j",
        "    register tile  6 x 32",
        "    packing        x in place, w packed in panels",
        "    split-K        8",
        "    k-block        98",
        "    tasks          24",
    ]


@pytest.mark.parametrize(
    ("threads", "nanoseconds"), [(1, 1000.0), (2, 550.0), (5, 1000 * 5 / 24 + 50), (48, 1000 / 24 + 50)]
)
def test_threads_take_whole_tasks(threads, nanoseconds):
    description = Description("contraction", (NEST,), 90_000, GFLOPS)
    assert description.nanoseconds_of(threads, 50.0) == pytest.approx(nanoseconds)
    alone = Description("contraction", (dataclasses.replace(NEST, tasks=1),), 90_000, GFLOPS)
    assert alone.nanoseconds_of(threads, 50.0) == 1000.0


# -- where it is shown


X, Y = np.random.default_rng(0).random((64, 32), dtype=np.float32), np.arange(64) % 10


def trainer():
    from pullback import nn

    net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 10))
    return pullback.trainer(net, "cross_entropy", "sgd", example=X)


def test_profiles_show_it_beside_the_measured_rate(capsys, tmp_path, monkeypatch):
    """Of a function that was compiled, and of the same one from the cache."""
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PULLBACK_DEBUG", "1")
    shown = []
    for source in ("compiled", "read from the cache"):
        report = trainer().profile_step(X, Y)
        out, err = capsys.readouterr()
        assert f"# __step: {source}" in err
        assert str(report) in out and "__step: schedules" in out and "contraction: 64 x 48 x k 32" in out
        product = max(report.calls, key=lambda call: call.flops or 0)
        assert product.chosen is not None and product.chosen.multiplies and product.chosen.microseconds > 0
        measured, estimated = product.rates
        assert measured.endswith("GFLOP/s") and estimated.endswith("GFLOP/s")
        assert "contraction" in report._repr_html_()
        shown.append([call.chosen for call in report.calls])
    assert shown[0] == shown[1] and all(shown[0])


def test_rung_three_shows_it(capsys, monkeypatch):
    monkeypatch.setenv("PULLBACK_DEBUG", "3")
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    x = R.Tensor((64, 32), "float32")
    module = pullback.nn.Linear(32, 48).export(x)
    pullback.compile(module, "llvm").function("predict" if "predict" in module.functions else "backbone").native()
    lines = capsys.readouterr().err.splitlines()
    (line,) = [text for text in lines if text.startswith("# linear: contraction: 64 x 48 x k 32; ")]
    assert "register tile" in line and line.endswith("GFLOP/s on one core")
    heading = next(k for k, text in enumerate(lines) if "after LowerToTir" in text)
    assert heading < lines.index(line) < next(k for k, text in enumerate(lines) if k > heading and "def " in text)
