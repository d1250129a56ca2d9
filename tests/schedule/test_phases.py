"""Strided gradients are summed where their data is not zero, residue by residue."""

from __future__ import annotations

import math

import pytest

from pullback.schedule.choose import recognize
from pullback.schedule.contraction.plan.skips import skips_of
from tests.schedule.test_contraction import data_gradient, turned
from tests.schedule.test_schedules import group_of, run


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilation"),
    [(3, (2, 2), (2, 2)), (3, (2, 3), (3, 2)), (4, (4, 2), (2, 4)), (5, (6, 4), (4, 6)), (2, (3, 1), (2, 2))],
)
def test_the_gradient_of_a_dilated_strided_convolution(kernel, strides, dilation, padding, channels_last):
    """Dilation and stride may have a common divisor: then some results are zero, and others take every tap."""
    y = data_gradient((2, 3, 4, 3), 5, kernel, strides, padding, dilation, channels_last)
    group = group_of(turned(y, channels_last))
    parts = recognize(group).parts
    rows, columns = (len({k * d % s for k in range(kernel)}) for s, d in zip(strides, dilation, strict=True))
    assert sum(problem.terms for problem, _ in parts) == rows * columns  # residues that taps reach
    assert len(parts) == rows * strides[1] + strides[0] - rows
    results = [math.prod(problem.extents[v] for v in problem.outputs) for problem, _ in parts]
    assert sum(results) == math.prod(y.shape)
    run(group)


@pytest.mark.parametrize("channels_last", [False, True])
def test_zeros_are_left_out_of_strided_phases(channels_last):
    """Two rows of ``dy`` take part in a result, of four taps."""
    group = group_of(turned(data_gradient((1, 4, 2, 3), 16, 8, 2, 0, 1, channels_last), channels_last))
    assert all(skips_of(*part) for part in recognize(group).parts)
    run(group)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("shape", "taps", "stride", "parts"),
    [
        ((2, 7, 9, 11), 1, 2, 3),  # rows that nothing is added to; in the others, each second column
        ((2, 7, 9, 11), 1, 3, 5),
        ((2, 5, 8, 8), 2, 3, 7),  # one of three rows
        ((2, 5, 9, 9), 3, 2, 4),
    ],
    ids=str,
)
def test_rows_of_zeros_are_one_part(shape, taps, stride, parts, channels_last):
    group = group_of(turned(data_gradient(shape, 6, taps, stride, 0, 1, channels_last), channels_last))
    problems = [problem for problem, _ in recognize(group).parts]
    assert len(problems) == parts
    width = (shape[3] - 1) * stride + taps
    assert any(width in p.extents.values() for p in problems if not p.terms) == (taps < stride)
    run(group)
