"""The parts of the benchmarks that measure nothing: costs, rooflines, suites, tables."""

from __future__ import annotations

import dataclasses
import math

import pytest

from benchmarks import micro, report
from benchmarks.harness import Measurement, Side
from benchmarks.kernels import ops
from benchmarks.kernels.case import Convolution, MatMul
from benchmarks.kernels.elementwise import Elementwise
from benchmarks.kernels.ops import OpCase
from benchmarks.kernels.suites import SUITES, random_cases, sensitivity_cases
from benchmarks.ops import summary_table, worst_table
from benchmarks.page import markdown
from benchmarks.peak import Peak, raised, stream_like
from benchmarks.suite import Suite
from benchmarks.training import step_rows
from pullback.relax.op import catalogue

L2, DRAM = ({"read": rate, "write": rate / 2, "triad": rate / 4, "scale": rate / 8} for rate in (80.0, 8.0))
PEAK = Peak(2, 100.0, 64, {"L2": 1000}, {"L2": L2, "DRAM": DRAM})


def measurement(name: str, times: dict[str, float]) -> Measurement:
    rounds = {case: [seconds] for case, seconds in times.items()}
    return Measurement(Side(name, "worker"), first_seconds=1.0, memory_bytes=2**20, rounds=rounds)


def test_costs():
    product = MatMul(None, 3, 5, 4)
    assert (product.flops, product.read, product.written) == (120, 4 * (12 + 20), 4 * 15)
    of_b = MatMul(1, 3, 5, 4)
    assert (of_b.flops, of_b.read, of_b.written) == (120, 4 * (12 + 15), 4 * 20)
    conv = Convolution(None, 2, 4, 9, 8, 6, 3, 3, stride=2, padding=1, dilation=2, groups=2)
    assert conv.out_shape == (2, 6, 4, 3)
    assert conv.flops == 2 * (2 * 6 * 4 * 3) * 2 * 9
    update = Elementwise(None, "Adam", "L2", 2)
    assert (update.read, update.written) == (4 * 4 * 1024, 4 * 3 * 1024)


@pytest.mark.parametrize(
    ("nbytes", "level"), [((500, 500), "L2"), ((1000, 1000), "L2"), ((1500, 1000), "DRAM")]
)  # fmt: skip
def test_the_level_that_holds_the_data(nbytes, level):
    """An L2 cache for each of two threads."""
    assert stream_like(*nbytes, PEAK.threads, PEAK.cache_bytes)[0] == level


def test_the_share_of_what_c_loops_reached_in_the_same_rounds():
    case = Elementwise(None, "add", "L2", 2)
    ours, limit = measurement("pullback", {case.label: 4.0}), measurement("limit", {case.label: 1.0})
    ours.rounds[case.label] += [2.0, 3.0]
    limit.rounds[case.label] += [1.0, 2.7]
    assert Suite("elementwise", [case], [ours], {2: PEAK}, limit).share_beside(case, ours) == pytest.approx(0.5)
    assert Suite("elementwise", [case], [ours], {2: PEAK}).share_beside(case, ours) is None


def test_roofline_takes_the_nearer_limit_and_the_stream_that_is_most_alike():
    assert PEAK.floor_seconds(1e6, 800, 0) == pytest.approx(1e-9 * 1e6 / 100)
    assert PEAK.floor_seconds(0, 800, 0) == pytest.approx(1e-9 * 800 / 80)
    assert PEAK.floor_seconds(0, 0, 800) == pytest.approx(1e-9 * 800 / 40)
    assert PEAK.floor_seconds(0, 600, 200) == pytest.approx(1e-9 * 800 / 20)
    assert PEAK.floor_seconds(0, 400, 400) == pytest.approx(1e-9 * 800 / 10)


def test_random_contractions_are_always_the_same_and_of_all_kinds():
    cases = random_cases()
    assert cases == random_cases() and len(cases) == 600
    matmuls = [c for c in cases if isinstance(c, MatMul)]
    convs = [c for c in cases if isinstance(c, Convolution)]
    assert any(c.batch for c in matmuls) and any(c.transpose_a and c.transpose_b for c in matmuls)
    assert any(min(c.m, c.n, c.k) < 8 for c in matmuls)
    assert any(c.stride > 1 for c in convs) and any(c.dilation > 1 for c in convs) and any(c.groups > 1 for c in convs)
    assert all(min(c.out_shape) > 0 for c in convs)


def test_labels_tell_the_cases_of_a_suite_apart():
    for name, cases in SUITES.items():
        labels = [case.label for case in cases()]
        assert len(labels) == len(set(labels)), name


def test_neighbours_differ_by_one():
    for base, *others in sensitivity_cases():
        assert all(sum(vars(base)[f] != vars(other)[f] for f in vars(base)) == 1 for other in others)


def test_random_table():
    cases = [MatMul(None, n, n, n) for n in range(20, 40)]
    floors = {case.label: PEAK.floor_seconds(case.flops, case.read, case.written) for case in cases}
    times = {label: 10 * seconds for label, seconds in floors.items()}
    times[cases[3].label] *= 10
    limit = measurement("limit", {label: 2 * seconds for label, seconds in floors.items()})  # a slow phase
    ours = measurement("pullback", times)
    ours.quick = {label: [9 * seconds, 4 * seconds] for label, seconds in floors.items()}
    suite = Suite("random", cases, [ours], {2: PEAK}, limit)
    spread, worst = micro.random_tables(suite)
    assert spread.rows[0] == ["best of the run", "20 of 20", "10%", "10%"]
    assert spread.rows[1] == ["in the same rounds", "20 of 20", "20%", "20%"]
    assert spread.rows[2] == ["best of the run, quickest steps", "20 of 20", "25%", "25%"]
    assert worst.rows[0][0] == cases[3].label and len(worst.rows) == 10


def test_the_peak_is_no_lower_than_what_was_reached_meanwhile():
    one = dataclasses.replace(PEAK, threads=1)
    assert raised({1: one, 2: PEAK}, 2, [90.0, 120.0]) == {1: one, 2: dataclasses.replace(PEAK, gflops=120.0)}
    assert raised({2: PEAK}, 2, [90.0]) == {2: PEAK}
    assert raised({2: PEAK}, 2, []) == {2: PEAK}  # no loops ran


def test_rows_of_a_training_step():
    failed = Measurement(Side("tvm", "worker"), failure="InternalError: " + "x" * 100)
    rows = step_rows(
        [measurement("pullback", {"step": 2e-3}), measurement("jax", {"step": 4e-3}), failed], ["jax", "tvm"], 1e-3
    )
    assert rows[0][:5] == ["pullback", "2 ms", "2 - 2 ms", "0.50", "50%"]
    assert rows[2][0] == "tvm" and rows[2][1].startswith("…xxx") and len(rows[2][1]) == 60


def test_durations():
    texts = {2.5: "2.5 s", 0.1234: "123 ms", 1e-3: "1 ms", 4.2e-6: "4.2 µs", 3e-8: "30 ns"}
    assert {seconds: report.duration(seconds) for seconds in texts} == texts
    assert report.spread([9e-4, 1.2e-3]) == "900 µs - 1.2 ms"


def test_markdown():
    text = markdown("bars", ["what", "value"], [["a|b", "[green]met[/green]"]])
    assert text.splitlines() == ["Bars:", "", "| what | value |", "|---|---:|", "| a\\|b | met |"]


def test_ops_have_a_call_of_every_size():
    chosen = ops.cases([], list(ops.SIZES))
    known = {entry.name for entry in catalogue.entries()}
    assert {case.op for case in chosen} == known - set(ops.NO_CASE) and set(ops.ROWS) <= known
    for case in chosen:
        largest = max(
            (math.prod(spec.shape) for spec in case.specs if hasattr(spec, "shape")), default=ops.SIZES[case.size]
        )
        assert largest <= 1.3 * ops.SIZES[case.size] or case.size == "1e3", case.label
        assert OpCase.of(case.label) == case and case.nbytes < 1 << 30


def test_tables_of_ops():
    chosen = [OpCase("exp", "1e3", kind) for kind in ops.KINDS] + [OpCase("nn.dilate", "1e3", "forward")]
    ours = {case.label: 3e-6 for case in chosen}
    theirs = {chosen[0].label: 1e-6, chosen[1].label: 6e-6}
    sides = {"pullback": measurement("pullback", ours), "torch": measurement("torch", theirs)}
    assert summary_table(chosen, sides).rows == [
        ["1e3, forward", "2", "1", "3.00", "1"],
        ["1e3, gradient", "1", "1", "0.50", "0"],
    ]
    worst = worst_table(chosen, sides)
    assert worst.rows[0] == ["exp", "1e3, forward", "3 µs", "1 µs", "3.00"] and len(worst.rows) == 2
