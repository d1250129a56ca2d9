"""The contraction schedule on depthwise convolutions: each channel has factors of its own."""

from __future__ import annotations

import re

import pytest

from pullback.schedule.choose import lower
from pullback.schedule.group import Machine
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import group_of, run


@pytest.mark.parametrize("kind", ["forward", "data"])
def test_tiles_of_a_depthwise_convolution_follow_the_memory(kind):
    """Those of the other channels of some pixels come before other pixels."""
    group = group_of(product(kind, (1, 32, 9, 96, 32, 3, 2, 1), True, 32), machine=Machine(32, 16))
    loops = re.findall(r"for ([\w, ]+) in ", str(lower(group, "depthwise")))
    axes = [name[:2] for names in loops for name in names.split(", ") if re.fullmatch(r"i[13](_\d+)?", name)]
    assert axes[:2] == ["i3", "i1"] and axes == axes[:2] * (len(axes) // 2)
    run(group)
