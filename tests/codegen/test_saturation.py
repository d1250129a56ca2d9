"""Floats that become integers: those out of range become the nearest, and NaN 0, in scalars and in vectors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pullback import te, tir
from pullback.codegen import compile_assembly, emit_module
from pullback.schedule.choose import lower
from pullback.schedule.group import Machine
from pullback.target import Target
from pullback.te import interpreter as te_interpreter
from pullback.tir.workspace import lift_workspaces
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of

SOURCES = ["float16", "bfloat16", "float32", "float64"]
TARGETS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def converted(source: str, target: str, count: int) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((count,), source, "x")
    return x, te.compute((count,), lambda i: tir.cast(target, x[i]), "converted")


def numbers(source: str, target: str) -> np.ndarray:
    """Special ones, and those around zero and the limits of the integers."""
    limits = np.iinfo(target)
    ends = [float(e) for limit in (limits.min, limits.max) for e in (limit - 1, limit, limit + 1)]
    near = [e + d for e in (*ends, 0.0) for d in (-0.75, -0.5, 0.0, 0.5, 0.75)]
    kind = np.dtype(getattr(ml_dtypes, source, source))
    with np.errstate(over="ignore"):
        found = np.array([*near, *ends, np.inf, -np.inf, np.nan, -0.0, 1e30, -1e30, 3e9, -3e9, 1e-40]).astype(kind)
    if source in ("float32", "float64"):
        found = np.concatenate([found, np.nextafter(found, kind.type(0)), np.nextafter(found, kind.type(np.inf))])
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_floats_saturate(source: str, target: str) -> None:
    data = numbers(source, target)
    for part in (data, data[:1], data[-3:]):
        x, result = converted(source, target, len(part))
        group = group_of(result, machine=Machine())
        (expected,) = te_interpreter.evaluate([result], {x: part})
        np.testing.assert_array_equal(natively(group, {x: part})[0], expected)


@pytest.mark.parametrize("target", TARGETS[:5])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_vectors_of_them_are_one_conversion(cpu: str, target: str) -> None:
    machine = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    group = group_of(converted("float32", target, 64)[1], machine=Machine(machine.vector_bytes, machine.registers))
    kernel, _ = lift_workspaces(lower(group, "kernel"))
    text = compile_assembly(emit_module([kernel], machine), machine)
    assert "cvttps2dq" in text and "cvttss2si" not in text
