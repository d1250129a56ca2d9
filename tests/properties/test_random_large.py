"""Random graphs of larger tensors, natively for several widths of vectors, beside the interpreter and, where it is
installed, PyTorch. Many more: ``python -m tests.properties large``."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, TupleGetItem, Var, const, op
from pullback.relax.transform import Gradient
from tests.properties.checks import TARGETS, check_large_graph, close, flat, installed_torch, planned_functions

PER_TEST = 10


@pytest.mark.parametrize("first", range(0, 80, PER_TEST))
def test_random_large_graphs(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        check_large_graph(seed, installed_torch())


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_parts_of_what_is_written_and_of_which_others_are_summed(target: pullback.target.Target) -> None:
    """What three sums read in parts is written by the kernel of one of them, along axes that no sum has."""
    a, b = Var("a", TensorStructInfo((8, 16, 16, 4), "float32")), Var("b", TensorStructInfo((1,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [a, b]):
        with builder.dataflow():
            whole = builder.emit(op.concat([a, a, a], axis=2))
            scaled = builder.emit(op.divide(whole, op.add(op.abs(b), const(np.float32(1)))))
            split = builder.emit(op.split(scaled, (2, 13), axis=1))
            first, second, third = (builder.emit(TupleGetItem(split, k)) for k in range(3))
            rest = op.add(op.sum(op.cos(second)), op.sum(op.multiply(third, third)))
            out = builder.emit_output(op.add(op.sum(op.sin(first)), rest))
        builder.emit_func_output(out)
    module = Gradient("main")(builder.get())
    rng = np.random.default_rng(0)
    tensors = [pullback.tensor(rng.standard_normal(v.shape, dtype="float32")) for v in (a, b)]
    for name in ("main", "main_adjoint"):
        found = planned_functions(module, name, target)["apart"].call(tensors)()
        expected = flat(pullback.compile(module, "debug")[name](*tensors))
        close([v.numpy() for v in found], [v.numpy() for v in expected], name, 1e-5)
