"""Small ops of the reference system: constants for gradients, shapes as tensors, joined sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.gradient import Gradient
from pullback.script import relax as R
from tests.helpers import round_trip


def var(shape: Any, dtype: str = "float64") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def module_of(params: list[Var], value: Expr) -> Any:
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(value))
    return builder.get()


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_no_grad(target: str) -> None:
    """The derivative of x · c for the constant c = x is x."""
    x, value = var((4,)), np.arange(4.0)
    module = module_of([x], ops.sum(x * R.stop_gradient(x)))
    round_trip(module)
    total, (adjoint,) = pullback.compile(Gradient("main")(module), target).function("main_adjoint")(value)
    assert total.numpy() == 14
    np.testing.assert_array_equal(adjoint.numpy(), value)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_a_symbolic_shape_as_a_tensor(target: str) -> None:
    n = tir.Var("n")
    x = var((n, 3))
    module = module_of([x], ops.shape_to_tensor((n, n * 3, 5)) * ops.astype(ops.sum(x), "int64"))
    assert pullback.compile(module, target).function("main")(np.ones((2, 3))).numpy().tolist() == [12, 36, 30]


Q, K, V, S = var((1, 9, 4, 3)), var((1, 9, 2, 3)), var((1, 9, 2, 5)), var((3,), "int32")
ERRORS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[UserError], str]] = {
    "batch": ((*[var((2, 9, 2, 3))] * 3, S), {}, ShapeError, "must be joined along axis 1, the batch is 2"),
    "shapes": ((Q, K, var((1, 8, 2, 5)), S), {}, ShapeError, "the length of key and value differs"),
    "starts": ((Q, K, V, var((3, 1), "int32")), {}, ShapeError, r"seqstart_q must have one axis, got \(3, 1\)"),
    "floats": ((Q, K, V, var((3,))), {}, DTypeError, "seqstart_q must have an integer dtype, got float64"),
    "count": (
        (Q, K, V, S),
        {"seqstart_k": var((4,), "int64")},
        ShapeError,
        r"as many sequences, their starts are \(3,\) and \(4,\)",
    ),
    "mask": ((Q, K, V, S), {"causal_mask": "Left"}, UserError, "causal_mask must be None, 'TopLeft' or 'BottomRight'"),
    "window": ((Q, K, V, S), {"window_size": 3}, UserError, "window_size is not supported"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_joined_sequences_that_do_not_fit(name: str) -> None:
    args, attrs, kind, message = ERRORS[name]
    with pytest.raises(kind, match="nn.attention_var_len: .*" + message):
        ops.nn.attention_var_len(*args, **attrs)


def test_joined_sequences_as_users_call_them() -> None:
    call = ops.nn.attention_var_len(Q, K, V, S, 5, causal_mask="TopLeft")
    assert call.args == (Q, K, V, S, S) and call.struct_info.shape == (1, 9, 4, 5)
