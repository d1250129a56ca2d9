"""Kernels of schedules at this machine's vector width: transposes, and the same bits with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import te
from pullback.runtime import get_num_threads, set_num_threads
from pullback.schedule.group import Machine
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of


def machine() -> Machine:
    target = Target("llvm")
    return Machine(target.vector_bytes, target.registers)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("shape", [(64, 48), (16, 16), (33, 64), (3, 32, 80), (5, 17, 100)])
def test_transposes(shape, dtype):
    x = te.placeholder((*shape[:-2], shape[-1], shape[-2]), dtype, "x")
    turned = te.compute(shape, lambda *i: x[(*i[:-2], i[-1], i[-2])], "turned")
    data = np.random.default_rng(0).integers(-100, 100, x.shape).astype(dtype)
    (result,) = natively(group_of(turned, machine=machine()), {x: data})
    np.testing.assert_array_equal(result, np.swapaxes(data, -1, -2))


@I.ir_module
class Sums:
    @R.function
    def main(x: R.Tensor((3001, 20), "float32"), y: R.Tensor((8, 6, 40, 33), "float32")):
        with R.dataflow():
            columns = R.sum(x, axis=0)
            deviation = R.variance(x, axis=0)
            everything = R.sum(x * x)
            channels = R.sum(y, axis=(0, 2, 3))
            largest = R.max(y, axis=(0, 2, 3))
            rows = R.nn.softmax(x)
            R.output(columns, deviation, everything, channels, largest, rows)
        return (columns, deviation, everything, channels, largest, rows)


def test_same_bits_with_any_number_of_threads():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3001, 20), "float32"), rng.standard_normal((8, 6, 40, 33), "float32")
    function, before = pullback.compile(Sums, "llvm").function("main"), get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            results.append([r.numpy().tobytes() for r in function(x, y)])
    finally:
        set_num_threads(before)
    assert results[0] == results[1] == results[2]
    np.testing.assert_allclose(np.frombuffer(results[0][1], "float32"), x.var(0), rtol=1e-5)
