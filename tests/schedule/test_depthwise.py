"""The contraction schedule on depthwise convolutions: each channel has factors of its own."""

from __future__ import annotations

import dataclasses
import re

import pytest

from pullback.schedule.choose import lower, recognize
from pullback.schedule.group import Machine
from tests.schedule.limits import limit
from tests.schedule.test_contraction import UNFILTERED, product
from tests.schedule.test_schedules import group_of, run


@pytest.mark.parametrize(
    ("shape", "least"), [((4, 96, 112, 112, 96, 3, 2, 1), 64), ((1, 32, 20, 20, 32, 3, 1, 1), 8)], ids=str
)
def test_tasks_of_depthwise_weights_copy_rows_of_neighbours(shape, least):
    """Channels of a vector are half a line of each pixel: where pixels come from afar, a task takes more of them."""
    group = group_of(product("weight", shape, True, shape[1]), machine=Machine(vector_bytes=32, registers=16))
    ((_, blocking),) = recognize(group).parts
    assert blocking.inner[blocking.column] >= least
    assert least > 8 or blocking.inner[blocking.column] <= 16


@pytest.mark.parametrize("shape", [(1, 9, 20, 21, 9, 3, 2, 1), (1, 13, 11, 12, 13, 3, 1, 1)])
def test_depthwise_weights_with_tasks_of_several_tiles(shape, monkeypatch):
    limit(monkeypatch, region=256, most_region=256, run_ns=1e3, NOMINAL_BYTES=64)
    machine = dataclasses.replace(UNFILTERED, second_bytes=64)
    group = group_of(product("weight", shape, True, shape[1]), machine=machine)
    ((_, blocking),) = recognize(group).parts
    assert blocking.inner[blocking.column] > blocking.tile.columns
    run(group)


@pytest.mark.parametrize("kind", ["forward", "data"])
def test_tiles_of_a_depthwise_convolution_follow_the_memory(kind):
    """Those of the other channels of some pixels come before other pixels."""
    group = group_of(product(kind, (1, 32, 9, 96, 32, 3, 2, 1), True, 32), machine=Machine(32, 16))
    loops = re.findall(r"for ([\w, ]+) in ", str(lower(group, "depthwise")))
    axes = [name[:2] for names in loops for name in names.split(", ") if re.fullmatch(r"i[13](_\d+)?", name)]
    assert axes[:2] == ["i3", "i1"] and axes == axes[:2] * (len(axes) // 2)
    run(group)
