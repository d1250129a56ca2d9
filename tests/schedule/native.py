"""Kernels of groups, run natively."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pullback import te
from pullback.codegen import compile_object, emit_module, load_object
from pullback.schedule.choose import lower
from pullback.schedule.group import Group
from pullback.target import Target
from pullback.tir.workspace import lift_workspaces
from tests.codegen.conftest import Native


def natively(group: Group, feeds: Mapping[te.Tensor, np.ndarray]) -> list[np.ndarray]:
    """The results of the native kernel, its tasks run last first in pieces of uneven size."""
    kernel, workspaces = lift_workspaces(lower(group, "kernel"))
    results = [np.zeros(t.shape, t.dtype) for t in group.outputs]
    target, native = Target("llvm"), Native()
    library = load_object(compile_object(emit_module([kernel], target), target))
    native.call(library, kernel, [*feeds.values(), *results, *(np.zeros(b.shape, b.dtype) for b in workspaces)])
    return results
