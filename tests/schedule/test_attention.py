"""The schedule of attention: on any machine the loops mean what the tensor expressions mean; what is recognized."""

from __future__ import annotations

import pytest

from pullback import te, tir
from pullback.schedule.attention import AttentionBackward, AttentionForward
from pullback.schedule.attention_loops import ForwardLoops
from pullback.schedule.choose import lower, recognize
from pullback.schedule.group import Group, Machine
from pullback.te.attention import Attention
from pullback.te.concatenation import concatenation
from pullback.tir.visitor import walk
from tests.schedule.test_schedules import SMALL, group_of, run

SIZES = [  # rows, keys, heads, key heads, size, value size
    (1, 1, 1, 1, 1, 1),
    (3, 5, 1, 1, 2, 3),
    (9, 9, 2, 2, 3, 2),
    (17, 4, 2, 1, 5, 6),
]


def attention(
    sizes: tuple[int, ...], offset: int | None = None, bias: bool = False, dtype: str = "float32"
) -> Attention:
    s, t, n, m, h, v = sizes
    query, key = te.placeholder((1, s, n, h), dtype, "query"), te.placeholder((1, t, m, h), dtype, "key")
    value = te.placeholder((1, t, m, v), dtype, "value")
    added = te.placeholder((n, 1, t), name="bias") if bias else None
    return Attention(query, key, value, added, tir.const(0.5, "float32"), offset, "float32")


def backward(a: Attention) -> tuple[te.Tensor, ...]:
    shape = (*a.query.shape[:3], a.value.shape[3])
    dtype = a.query.dtype
    return a.backward(te.placeholder(shape, dtype, "dy"), te.placeholder(shape, dtype, "out"))


@pytest.mark.parametrize("machine", [SMALL, Machine(4, 8), Machine(32, 16)], ids=lambda m: str(m.vector_bytes))
@pytest.mark.parametrize("offset", [None, 0, 2])
@pytest.mark.parametrize("sizes", SIZES)
def test_loops(sizes: tuple[int, ...], offset: int | None, machine: Machine) -> None:
    a = attention(sizes, offset, bias=offset == 2)
    forward = group_of(a.forward(), machine=machine)
    assert isinstance(recognize(forward), AttentionForward)
    run(forward)
    adjoint = group_of(*backward(a), machine=machine)
    assert isinstance(recognize(adjoint), AttentionBackward)
    run(adjoint)


@pytest.mark.parametrize(
    ("keys", "registers", "tile"),
    [(256, 16, 6), (8, 16, 4), (10, 16, 5), (5, 16, 5), (256, 32, 8), (12, 32, 6), (3, 32, 3)],
    ids=str,
)
def test_tiles_of_keys_keep_the_units_busy_and_compute_few_in_vain(keys: int, registers: int, tile: int) -> None:
    a = attention((256, keys, 1, 1, 64, 64))
    group = group_of(a.forward(), machine=Machine(registers * 2, registers))
    assert ForwardLoops(group, a).key_tile == tile


def test_keys_in_blocks() -> None:
    """More keys than one block holds: online softmax."""
    a = attention((5, 270, 1, 1, 2, 2), 265)
    run(group_of(a.forward()))
    run(group_of(*backward(a)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES)
def test_keys_of_half_types_are_copied_where_many_rows_read_them(sizes: tuple[int, ...], dtype: str) -> None:
    a = attention(sizes, 2, dtype=dtype)
    rows, _, heads, key_heads, *_ = sizes
    for group in (group_of(a.forward()), group_of(*backward(a))):
        stores = [n for n in walk(lower(group, "kernel").body) if isinstance(n, tir.BufferStore)]
        assert any(n.buffer.name == "wide" for n in stores) == (rows * heads // key_heads >= 16)
        run(group)


@pytest.mark.parametrize(
    "sizes, axis",
    [((9, 9, 2, 2, 3, 3), 2), ((5, 5, 4, 2, 3, 3), 2), ((7, 7, 2, 2, 3, 5), 3), ((70, 5, 1, 1, 2, 2), 1)],
)
def test_adjoints_may_lie_one_after_the_other(sizes: tuple[int, ...], axis: int) -> None:
    """Along heads, also where fewer are keys' than queries', along the elements of a head, and along rows."""
    a = attention(sizes, 0)
    parts = backward(a)
    joined = concatenation(parts, axis, sum(t.shape[axis] for t in parts))
    group = group_of(joined)
    assert isinstance(recognize(group), AttentionBackward)
    run(group)


def test_adjoints_in_another_order_are_another_computation() -> None:
    dq, dk, dv = backward(attention((9, 9, 2, 2, 3, 3), 0))
    assert not isinstance(recognize(group_of(concatenation([dk, dq, dv], 2, 6))), AttentionBackward)


def test_adjoints_along_an_axis_of_their_own_are_another_computation() -> None:
    dq, dk, dv = backward(attention((9, 9, 2, 2, 3, 3), 0))

    def element(b: tir.PrimExpr, k: tir.PrimExpr, *i: tir.PrimExpr) -> tir.PrimExpr:
        return tir.select(k < 1, dq[(b, *i)], tir.select(k < 2, dk[(b, *i)], dv[(b, *i)]))

    stacked = te.compute((1, 3, *dq.shape[1:]), element, "stack")
    assert not isinstance(recognize(group_of(stacked)), AttentionBackward)


def test_keys_may_be_the_values() -> None:
    a = attention((17, 5, 1, 1, 3, 3), dtype="bfloat16")
    same = Attention(a.query, a.key, a.key, None, a.scale, None, "float32")
    assert isinstance(recognize(group_of(same.forward())), AttentionForward)
    run(group_of(same.forward()))


def test_operands_may_be_moved() -> None:
    a = attention((4, 6, 2, 2, 3, 3))
    stored = te.placeholder((1, 2, 4, 9), name="stored")
    query = te.compute((1, 4, 2, 3), lambda b, i, n, h: stored[b, n, i, h + 3], "turned")
    moved = Attention(query, a.key, a.value, None, a.scale, 0, "float32")
    group = group_of(moved.forward())
    assert isinstance(recognize(group), AttentionForward)
    run(group)


def test_operands_are_not_gathered() -> None:
    """With another axis last, the copy is a kernel of its own."""
    a = attention((4, 6, 2, 2, 3, 3))
    stored = te.placeholder((1, 2, 3, 6), name="stored")
    value = te.compute((1, 6, 2, 3), lambda b, j, n, h: stored[b, n, h, j], "turned")
    moved = Attention(a.query, a.key, value, None, a.scale, 0, "float32")
    assert recognize(group_of(moved.forward())) is None


def test_declines_what_is_another_computation() -> None:
    a = attention((4, 6, 2, 2, 3, 3), 0)
    out = a.forward()
    doubled = te.compute(out.shape, lambda *i: out[i] * 2.0, "doubled")
    assert recognize(group_of(doubled)) is None
    computed = te.compute(a.query.shape, lambda *i: tir.call("exp", a.query[i]), "computed")
    again = Attention(computed, a.key, a.value, None, a.scale, 0, "float32")
    assert recognize(group_of(again.forward())) is None  # each row block would compute it again
    dq, dk, _ = backward(a)
    assert recognize(group_of(dq, dk)) is None


def test_declines_sizes_beyond_local_memory() -> None:
    assert recognize(group_of(attention((64, 64, 1, 1, 4096, 8)).forward())) is None


def test_no_sum_depends_on_the_number_of_threads() -> None:
    """Kernels are made before threads are known: two lowerings are one text."""
    group = group_of(*backward(attention(SIZES[3], 0)))
    assert lower(group, "kernel").script() == lower(Group(group.inputs, group.outputs, SMALL), "kernel").script()
