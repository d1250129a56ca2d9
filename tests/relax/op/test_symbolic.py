"""Ops on symbolic sizes: the type is the static call's once the sizes are known, and so are value and adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.matching import bind_sizes
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, same_info
from pullback.relax.transform.gradient import Gradient
from pullback.relax.transform.legalize_ops import LegalizeOps
from pullback.te.interpreter import evaluate as evaluate_te
from tests.relax.op.backends import as_list, call_of
from tests.samples import Case, all_ops, cases

# Their attributes hold sizes, so that they are tested below, with symbolic attributes; or they halve an axis.
WITH_SIZES = {"reshape", "broadcast_to", "collapse_sum_to", "take_gradient", "nn.dilate", "nn.group_norm", "nn.glu"}
WITH_SIZES |= {"grad.diagonal", "expand", "ravel_multi_index", "segment_reduce", "slice_scatter", "nn.ctc_states"}
COUNTED = {"chunk", "unbind", "grad.banded_recurrence"}  # a size says how many results, or terms, there are
COORDINATES = {"gather_nd", "scatter_nd", "image.crop"}  # the last size of their indices says how many axes these name
IMAGES = ("convolution", "pooling", "image")  # channels, and all sizes of weights, are numbers
BATCH_ONLY = ("rotary", "detection", "pixel", "image.affine_grid", "image.grid_sample")  # may be symbolic
BATCH_ONLY += ("image.random_crop",)


def symbolic(case: Case) -> tuple[list[TensorStructInfo], dict[tir.Var, int]]:
    """The arguments' types with every size above 1 that may be symbolic replaced by a variable, equal sizes by the
    same."""
    names: dict[int, tir.Var] = {}

    def size(argument: int, axis: int, n: int) -> Any:
        name = _names(case)[argument]
        free = n > 1 and name != "state" and (axis == 0 or not {case.op.family, case.op.short} & {*BATCH_ONLY})
        if case.op.family in IMAGES:  # a gradient's sizes follow from those of its attributes
            free = free and name != "weight" and axis != channels(case) and (axis == 0 or "grad." not in case.op.short)
        if case.op.short in COORDINATES and name in ("indices", "offsets") and axis == case.args[argument].ndim - 1:
            return n
        return names.setdefault(n, tir.Var(f"n{n}")) if free else n

    infos = [
        TensorStructInfo([size(k, a, n) for a, n in enumerate(array.shape)], array.dtype.name)
        for k, array in enumerate(case.args)
    ]
    return infos, {v: n for n, v in names.items()}


def channels(case: Case) -> int:
    """Which axis of the images the channels are."""
    attrs = case.attrs
    return str(attrs.get("data_layout", attrs.get("layout", "NC"))).index("C")


def _names(case: Case) -> tuple[str, ...]:
    return case.op.signature.tensors * max(1, len(case.args))


def float_sum(call: Expr) -> Expr | None:
    """The sum of all floating-point results."""
    fields = list(call) if isinstance(call.struct_info, TupleStructInfo) else [call]
    sums = [ops.sum(f) for f in fields if f.dtype == "float32"]
    return None if not sums else sums[0] if len(sums) == 1 else ops.add(sums[0], sums[1])


def adjoints(call: Call, params: list[Var], values: Any) -> list[np.ndarray]:
    """The adjoints of the sum of the call's results, by the interpreter."""
    builder = BlockBuilder()
    with builder.function("main", params):
        total = float_sum(builder.emit(call))
        assert total is not None
        builder.emit_func_output(total)
    floats = [p for p in params if p.dtype == "float32"]
    return list(evaluate(Gradient("main", floats)(builder.get()), "main_adjoint", values)[1])


@pytest.mark.parametrize("op", [o for o in all_ops() if o.short not in WITH_SIZES | COUNTED], ids=lambda op: op.short)
def test_symbolic_call_is_the_static_call(op: Op) -> None:
    for case in cases(op, _dtype(op)):
        infos, sizes = symbolic(case)
        if not sizes:
            continue
        params = [Var(f"x{k}", i) for k, i in enumerate(infos)]
        call = Call(op, tuple(params), case.attrs)
        static_params, static_call = call_of(case)
        assert same_info(bind_sizes(call.struct_info, sizes), static_call.struct_info), case.id
        if op.te is not None:
            check_te(case, infos, sizes)
        elif op.kernel is not None:
            check_kernel(case, params, call)
        if any(p.dtype == "float32" for p in params) and float_sum(call) is not None:
            for got, expected in zip(
                adjoints(call, params, case.args), adjoints(static_call, static_params, case.args), strict=True
            ):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=case.id)


def _dtype(op: Op) -> str:
    kinds = getattr(op.samples, "dtypes", "float")
    return {"bool": "bool", "integer": "int32", "integer or bool": "int32"}.get(kinds, "float32")


def check_te(case: Case, infos: list[TensorStructInfo], sizes: dict[tir.Var, int]) -> None:
    """The tensor expression on symbolic shapes gives the op's NumPy meaning."""
    inputs = [te.placeholder(i.shape, i.dtype) for i in infos]  # type: ignore[arg-type]
    result = case.op.te(*inputs, **case.attrs)  # type: ignore[misc]
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    got = evaluate_te(outputs, dict(zip(inputs, case.args, strict=True)), sizes)
    with np.errstate(all="ignore"):
        expected = as_list(case.op.numpy(*case.args, **case.attrs))  # type: ignore[misc]
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-4, err_msg=case.id)


def check_kernel(case: Case, params: list[Var], call: Call) -> None:
    """The loops on symbolic shapes give the op's NumPy meaning."""
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call))
    got = evaluate(LegalizeOps()(builder.get()), "main", case.args)
    expected = as_list(case.op.numpy(*case.args, **case.attrs))  # type: ignore[misc]
    for g, e in zip(as_list(got), expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-4, err_msg=case.id)


N, M = tir.Var("n"), tir.Var("m")
X = Var("x", TensorStructInfo((N, M, 4), "float32"))
VALUE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CALLS: dict[str, tuple[Expr, np.ndarray]] = {
    "reshape to a product": (ops.reshape(X, (N * M, 4)), VALUE.reshape(6, 4)),
    "reshape with -1": (ops.reshape(X, (N, -1)), VALUE.reshape(2, 12)),
    "reshape with -1 alone": (ops.reshape(X, -1), VALUE.reshape(-1)),
    "reshape splits a known size": (ops.reshape(X, (N, M, 2, 2)), VALUE.reshape(2, 3, 2, 2)),
    "broadcast": (ops.broadcast_to(X, (M, N, M, 4)), np.broadcast_to(VALUE, (3, 2, 3, 4))),
    "collapse": (ops.collapse_sum_to(X, (M, 1)), VALUE.sum((0, 2))[:, None]),
    "slice from n": (ops.strided_slice(ops.concat([X, X]), [0], [N], [N * 2]), VALUE),
    "negative begin": (ops.strided_slice(X, [1], [-2], [2**31 - 1]), VALUE[:, -2:]),
    "clamped end": (ops.strided_slice(X, [1], [0], [100]), VALUE),
    "backwards": (ops.strided_slice(X, [0, 2], [2**31 - 1, -1], [-(2**31), 0], [-1, -2]), VALUE[::-1, :, 3:0:-2]),
    "tile": (ops.tile(X, (N, 1, 1)), np.tile(VALUE, (2, 1, 1))),
    "arange": (ops.arange(N * M), np.arange(6)),
    "full": (ops.full((N, M), 2.5, "float32"), np.full((2, 3), 2.5, np.float32)),
    "full of a size": (ops.full((2,), N, "float32"), np.full(2, 2, np.float32)),
    "dilate": (ops.nn.dilate(X, (2, 1, 1)), np.insert(VALUE, 1, 0, axis=0)),
    "eye": (ops.eye(N, M), np.eye(2, 3)),
    "one_hot": (ops.one_hot(ops.arange(N), 1.0, 0.0, M), np.eye(2, 3)),
    "split": (ops.split(X, 2, 1)[0], VALUE[:, :2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_symbolic_attributes(name: str) -> None:
    call, expected = CALLS[name]
    builder = BlockBuilder()
    with builder.function("main", [X]):
        builder.emit_func_output(builder.emit(call))
    module = builder.get()
    np.testing.assert_array_equal(evaluate(module, "main", [VALUE]), expected)
    if call.dtype == "float32":
        numbers = np.full(VALUE.shape, expected.size / VALUE.size, np.float32)
        (adjoint,) = adjoints(call, [X], [VALUE])
        assert adjoint.shape == VALUE.shape
        if name in ("reshape to a product", "reshape with -1", "broadcast", "collapse", "tile", "clamped end"):
            np.testing.assert_allclose(adjoint, numbers if name != "collapse" else 1)


def test_sizes_that_differ_do_not_broadcast() -> None:
    y = Var("y", TensorStructInfo((M, N, 4), "float32"))
    with pytest.raises(ShapeError, match=r"add: the shapes \(n, m, 4\) and \(m, n, 4\) do not broadcast"):
        ops.add(X, y)
