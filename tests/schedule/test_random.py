"""Random bits: the numbers that the state says, whatever shape, order in memory and neighbours the kernel has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pullback import te
from pullback.codegen import emit_module
from pullback.schedule.choose import lower, recognize
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.group import Group
from pullback.schedule.random import Random
from pullback.target import Target
from pullback.te import interpreter as te_interpreter
from pullback.te.random import Shard, bits, bits_array
from pullback.tir import interpreter as tir_interpreter
from pullback.tir import select
from pullback.tir.in_place import may_share
from tests.helpers import round_trip
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of
from tests.tir.test_philox import by_integers

STATE = np.array([0x123456789ABCDEF0, 77 << 40 | 5], np.uint64)
SHAPES = [(), (1,), (3,), (17,), (64,), (65,), (129,), (3, 17), (5, 128), (2, 3, 64), (100, 100), (0, 3), (70, 1)]


def state() -> te.Tensor:
    return te.placeholder((2,), "uint64", "state")


def placed(numbers: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """Words by the definition of ``te/random.py``, element by element."""
    seed, place = (int(s) for s in STATE)
    halves = [f for v in (place, seed) for f in (v % 2**32, v >> 32)]
    blocks = [n // 64 * 16 + n % 16 for n in numbers]
    words = [
        by_integers((b % 2**32, b >> 32, *halves[:2]), tuple(halves[2:]))[n // 16 % 4]
        for n, b in zip(numbers, blocks, strict=True)
    ]
    return np.array(words, np.uint32).reshape(shape)


def check(group: Group, feeds: dict[te.Tensor, np.ndarray]) -> list[np.ndarray]:
    """The kernel natively, by the loop IR's interpreter and by the meaning: the same bits."""
    expected = te_interpreter.evaluate(group.outputs, feeds)
    kernel = lower(group, "kernel")
    round_trip(kernel)
    slow = [np.zeros(t.shape, t.dtype) for t in group.outputs]
    arrays = [*(feeds[t] for t in group.inputs), *slow]
    tir_interpreter.run(kernel, [a.reshape(b.shape) for a, b in zip(arrays, kernel.buffers, strict=True)])
    for results in (natively(group, {t: feeds[t] for t in group.inputs}), slow):
        for got, value in zip(results, expected, strict=True):
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(got, value)
    return expected


def test_which_word_an_element_takes():
    shape = (3, 50)
    np.testing.assert_array_equal(bits_array(STATE, shape), placed(range(150), shape))
    pairs = bits_array(STATE, (70,), "uint64")
    words = bits_array(STATE, (192,))
    for n in (0, 15, 16, 31, 32, 69):  # a uint64 holds two words of its block
        block, word = n // 32 * 64 + n % 16, n // 16 % 2 * 2
        low, high = (int(words[block + 16 * (word + k)]) for k in (0, 1))
        assert int(pairs[n]) == low | high << 32


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bits(shape, dtype):
    s = state()
    group = group_of(bits(s, shape, dtype))
    assert isinstance(recognize(group), Random)
    (found,) = check(group, {s: STATE})
    np.testing.assert_array_equal(found, bits_array(STATE, shape, dtype))


def dropped(
    shape: Sequence[int], order: Sequence[int], bias: bool = False
) -> tuple[Group, dict[te.Tensor, np.ndarray]]:
    """x (+ a bias for each place of the last axis in memory), half of it dropped, and the mask; axes in memory as
    ``order`` says."""
    rng = np.random.default_rng(0)
    s, memory = state(), [shape[k] for k in order]
    x, b = te.placeholder(memory, "float32", "x"), te.placeholder(memory[-1:], "float32", "b")
    drawn = bits(s, shape)
    back = [order.index(k) for k in range(len(shape))]
    keep = te.compute(memory, lambda *i: drawn[tuple(i[k] for k in back)] < 2**31, "keep")
    value = te.compute(memory, lambda *i: select(keep[i], (x[i] + b[i[-1]] if bias else x[i]) * 2.0, 0.0), "y")
    group = group_of(value, keep)
    values = {s: STATE, x: rng.standard_normal(memory, "float32"), b: rng.standard_normal(memory[-1:], "float32")}
    return group, {t: values[t] for t in group.inputs}


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize(
    "shape, axis, ranks, own",
    [
        ((64,), 0, 3, True),
        ((4, 64), 0, 4, True),
        ((1, 2, 128), 1, 2, True),
        ((6, 32), 0, 3, True),  # one axis in memory
        ((5, 3), 0, 2, False),
        ((1,), 0, 7, False),
        ((0, 64), 0, 2, True),
        ((3, 4, 64), 1, 2, True),  # as many runs as the first axis has places
        ((2, 3, 128), 2, 3, True),
        ((3, 2, 4, 16), 2, 2, True),
        ((3, 2, 5), 1, 2, False),
    ],
)
def test_ranks_draw_what_one_draws(shape, axis, ranks, own, dtype):
    """Each its part of the array along the axis."""
    whole = bits_array(STATE, [n * ranks if k == axis else n for k, n in enumerate(shape)], dtype)
    parts = np.split(whole, ranks, axis)
    for rank in {0, 1, ranks - 1}:
        s, r = state(), te.placeholder((), "int64", "rank")
        group = group_of(bits(s, shape, dtype, Shard(r[()], ranks, axis)))
        assert isinstance(recognize(group), Random) is own
        (found,) = check(replace(group, fallback=True), {s: STATE, r: np.array(rank)})
        np.testing.assert_array_equal(found, parts[rank])
        np.testing.assert_array_equal(bits_array(STATE, shape, dtype, Shard(rank, ranks, axis)), parts[rank])


def test_far_elements_of_a_shard():
    """The number of a block has more than 32 bits."""
    s, r = state(), te.placeholder((), "int64", "rank")
    rank = 2**34 // 24 + 5
    group = replace(group_of(bits(s, (8, 3), "uint32", Shard(r[()], 2**31, 0))), fallback=True)
    (found,) = check(group, {s: STATE, r: np.array(rank)})
    np.testing.assert_array_equal(found, placed(range(24 * rank, 24 * rank + 24), (8, 3)))


def test_groups_of_a_shard_beyond_32_bits():
    """Whole groups far from the first, with the carry into the counter's second word between two of them."""
    s, r = state(), te.placeholder((), "int64", "rank")
    rank = 2**28 // 2 - 1  # of two groups: the last group before 2³² blocks is the second one of the rank
    group = group_of(bits(s, (128,), "uint32", Shard(r[()], 2**40, 0)))
    assert isinstance(recognize(group), Random)
    for k in (rank, rank + 1):
        (found,) = check(group, {s: STATE, r: np.array(k)})
        np.testing.assert_array_equal(found, placed(range(128 * k, 128 * k + 128), (128,)))


@pytest.mark.parametrize(
    "shape, order, bias, own",
    [
        ((5, 128), (0, 1), True, True),
        ((5, 100), (0, 1), False, True),
        ((5, 100), (0, 1), True, False),  # rows are no whole groups
        ((3, 5, 8, 16), (0, 2, 3, 1), False, True),  # channels innermost
        ((3, 5, 8, 16), (0, 2, 3, 1), True, True),
        ((2, 6, 3, 5), (0, 2, 3, 1), False, False),
        ((64, 20), (1, 0), False, False),
        ((20, 64), (1, 0), True, True),
        ((1, 7, 64), (2, 1, 0), False, True),
        ((256, 300), (0, 1), False, True),  # many tasks
        ((40, 32, 64), (1, 0, 2), True, True),
    ],
)
def test_elementwise_work_on_bits(shape, order, bias, own):
    group, feeds = dropped(shape, order, bias)
    assert isinstance(recognize(group), Random) if own else recognize(group) is None
    anyhow = replace(group, fallback=True)
    assert isinstance(recognize(anyhow), Random if own else Elementwise)
    check(anyhow, feeds)


def test_bits_are_read_by_others_from_memory():
    """A sum of random numbers, and numbers that are read in another order, are no one kernel."""
    drawn = bits(state(), (8, 64))
    axis = te.reduce_axis(64)
    assert recognize(group_of(te.compute((8,), lambda i: te.sum(drawn[i, axis.var], axis)))) is None
    assert recognize(group_of(te.compute((8, 64), lambda i, j: drawn[7 - i, j]))) is None
    both = bits(state(), (8, 64)), bits(state(), (8, 64), "uint64")
    assert recognize(group_of(*both)) is None


@pytest.mark.parametrize("cpu", ["znver4", "haswell"])  # a vector of blocks, and a loop over two
def test_a_block_is_computed_once(cpu):
    """Ten products by each multiplier for a vector of blocks, whose words go to four vectors of elements."""
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    text = emit_module([lower(group_of(bits(state(), (64,))), "kernel")], target)
    assert text.count("3528531795") == 10


def test_an_input_may_become_the_output():
    group, _ = dropped((50, 100), (0, 1))
    kernel = lower(group, "kernel")
    place = dict(zip((*group.inputs, *group.outputs), kernel.buffers, strict=True))
    (x,) = (t for t in group.inputs if t.dtype == "float32")
    assert may_share(kernel, place[x], place[group.outputs[0]])


def test_without_the_schedule(monkeypatch):
    group, feeds = dropped((5, 128), (0, 1), True)
    without = replace(group, machine=replace(group.machine, without=("Random",)), fallback=True)
    assert isinstance(recognize(without), Elementwise)
    check(without, feeds)
