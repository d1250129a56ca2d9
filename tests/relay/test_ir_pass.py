"""The functions of ``relay.ir_pass``: older names of passes and questions."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relay import ir_pass
from pullback.relay import transform as passes
from pullback.relay.expr import Call, Function, GlobalVar, Let, Var, call_op, const, var
from pullback.relay.ty import FuncType, TensorType, TupleType
from tests.relay.differences import run

VECTOR = TensorType((3,))
X = np.array([0.5, -1.0, 2.0], "float32")


def program() -> Function:
    x, y = var("x", VECTOR), var("y", VECTOR)
    product = x * y
    dead = Let(Var("unused"), call_op("exp", x), product + x * y)
    return Function((x, y), dead * (const(2.0) + const(3.0)))


PASSES: dict[str, Any] = {
    "fold_constant": {}, "forward_fold_scale_axis": {}, "backward_fold_scale_axis": {}, "simplify_inference": {},
    "canonicalize_ops": {}, "alter_op_layout": {}, "combine_parallel_conv2d": {"min_num_branches": 2},
    "dead_code_elimination": {"inline_once": True}, "eliminate_common_subexpr": {"fskip": None},
    "fuse_ops": {"opt_level": 2}, "partial_evaluate": {}, "to_a_normal_form": {}, "to_graph_normal_form": {},
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_passes_keep_the_meaning(name: str) -> None:
    function = program()
    after = getattr(ir_pass, name)(function, **PASSES[name])
    assert after.checked_type == FuncType((VECTOR, VECTOR), VECTOR)
    np.testing.assert_allclose(run(after, X, X), 10 * X * X, rtol=1e-6)


def test_passes_take_expressions_that_are_no_functions() -> None:
    x = var("x", VECTOR)
    assert isinstance(ir_pass.to_a_normal_form(x * x + x), Let)
    folded = ir_pass.fold_constant(const(2.0) + const(3.0))
    np.testing.assert_array_equal(folded.data.numpy(), 5.0)


def test_a_pass_finds_functions_of_the_module() -> None:
    x, y = var("x", VECTOR), var("y", VECTOR)
    mod = IRModule({"main": Function((x,), x), "double": Function((y,), y + y, VECTOR)})
    z = var("z", VECTOR)
    after = ir_pass.partial_evaluate(Function((z,), Call(GlobalVar("double"), (z,))), mod)
    np.testing.assert_allclose(run(after, X, mod=mod), 2 * X)
    assert set(mod) == {"main", "double"}


def test_infer_type_and_gradient() -> None:
    x = var("x", VECTOR)
    function = ir_pass.infer_type(ir_pass.gradient(Function((x,), x * x)))
    assert function.checked_type == FuncType((VECTOR,), TupleType((VECTOR, TupleType((VECTOR,)))))
    first = ir_pass.gradient(Function((x,), x * x), mode="first_order")
    np.testing.assert_allclose(run(first, X)[1][0], 2 * X)


def test_equality_and_hashes() -> None:
    x, y = var("x", VECTOR), var("y", VECTOR)
    one, same, other = Function((x,), x * x), Function((y,), y * y), Function((y,), y + y)
    assert ir_pass.alpha_equal(one, same) and ir_pass.graph_equal(one, same)
    assert not ir_pass.alpha_equal(one, other)
    assert ir_pass.structural_hash(one) == ir_pass.structural_hash(same) != ir_pass.structural_hash(other)
    assert ir_pass.alpha_equal(TensorType((3,)), VECTOR)
    with pytest.raises(ArgumentError, match="str is no expression"):
        ir_pass.structural_hash("x")


def test_questions() -> None:
    x, y = var("x", VECTOR), var("y", VECTOR)
    assert ir_pass.free_vars(Function((x,), x * y)) == [y]
    assert ir_pass.bound_vars(Function((x,), x * y)) == [x]
    assert ir_pass.well_formed(Function((x,), x))
    names: list[str] = []
    ir_pass.post_order_visit(x * y, lambda node: names.append(getattr(node, "name_hint", type(node).__name__)))
    assert names[-1] == "Call" and {"x", "y"} <= set(names)


def test_every_public_name_is_there() -> None:
    assert importlib.util.find_spec("pullback.relay.ir_pass") is not None
    assert all(callable(getattr(ir_pass, name)) for name in ir_pass.__all__)
    assert ir_pass.gradient is passes.gradient
