"""Regions: the copies that tasks make of the windows that they read."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import tir
from pullback.schedule.choose import lower
from pullback.schedule.group import Machine
from pullback.te import interpreter as te_interpreter
from pullback.tir.visitor import walk
from tests.schedule.native import natively
from tests.schedule.test_contraction import UNFILTERED, product
from tests.schedule.test_schedules import group_of, run


@pytest.mark.parametrize(
    ("kind", "shape", "channels_last"),
    [("weight", (2, 6, 30, 42, 6, 3, 1, 2), False), ("forward", (1, 2, 5, 47, 9, 7, 1, 3), True)],
)
def test_rows_of_a_region_that_tasks_share_run_from_bound_to_bound(kind, shape, channels_last):
    """Where a row of padded data begins is known to the task only. Compared lane by lane, with an index held inside of
    the data, its elements were loaded one by one: half of the time of a gradient."""
    group = group_of(product(kind, shape, channels_last), machine=Machine(32, 16))
    kernel, bounded = lower(group, "kernel"), 0
    for row in walk(kernel.body):
        if isinstance(row, tir.For) and row.kind == "vectorized":
            bounded += not isinstance(row.extent, tir.IntImm)
            read = [n for n in walk(row.body) if isinstance(n, tir.BufferLoad) and n.buffer in kernel.params]
            limits = [
                n for load in read for i in load.indices for n in walk(i) if getattr(n, "kind", "") in ("min", "max")
            ]
            assert not any(v is row.var for n in limits for v in walk(n))
    assert bounded
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    (result,), (expected,) = natively(group, feeds), te_interpreter.evaluate(group.outputs, feeds)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 2, 3, 0), (3, 1, 0, 2)], ids=str)
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("forward", (17, 5, 7, 9, 6, 3, 1, 1)),
        ("data", (17, 5, 7, 9, 6, 3, 1, 1)),
        ("weight", (3, 4, 8, 21, 3, 3, 2, 1)),
    ],
)
@pytest.mark.parametrize("machine", [UNFILTERED, Machine(64, 32, ("Winograd",))], ids=["small", "wide"])
def test_axes_in_any_order_of_memory(kind, shape, order, machine):
    run(group_of(product(kind, shape, order), machine=machine))


@pytest.mark.parametrize("shape", [(2, 3, 9, 8, 4, 3, 2, 1), (2, 3, 10, 9, 4, 5, 3, 2)], ids=str)
def test_the_phases_of_a_gradient_read_the_data_where_it_lies(shape):
    """Each is one place in s of data with zeros between them: an index that is divided by s again."""
    kernel = lower(group_of(product("data", shape, False), machine=Machine(64, 32)), "kernel")
    read = [n for n in walk(kernel.body) if isinstance(n, tir.BufferLoad) and n.buffer in kernel.params]
    (dy,) = {n.buffer for n in read if n.buffer.shape[0] == shape[0]}
    kinds = {getattr(n, "kind", "") for load in read if load.buffer is dy for i in load.indices[2:] for n in walk(i)}
    assert not kinds & {"max", "floordiv", "floormod"}
