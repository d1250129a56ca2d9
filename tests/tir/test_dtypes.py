"""Every operation on every dtype: it is refused when the expression is made, or both backends compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, tir
from pullback.ir import GlobalVar, IRModule
from pullback.ir.errors import DTypeError
from pullback.relax.op.call.call_tir import call_tir
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import DTYPES, INTRINSICS, KINDS, Binary, binary, call, cast, is_float

N = 4
PARTICULAR = ("philox4x32", "pair", "pair_dot", "reinterpret")  # tests of their own


def expressions(loads: list[tir.PrimExpr]) -> list[tir.PrimExpr]:
    """All that can be made of three loads of one dtype."""
    makers = [
        lambda n=name, k=count: call(n, *loads[:k]) for name, count in INTRINSICS.items() if name not in PARTICULAR
    ]
    makers += [lambda k=kind, f=function: f(k, *loads[:2]) for kind in KINDS for function in (binary, Binary)]
    makers += [lambda d=dtype: cast(d, loads[0]) for dtype in DTYPES]
    found = []
    for make in makers:
        try:
            found.append(make())
        except DTypeError as error:
            assert error.hint, error
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_can_be_made_can_be_computed(dtype: str) -> None:
    inputs, index = [tir.Buffer(f"a{k}", (N,), dtype) for k in range(3)], tir.Var("i")
    made = expressions([b[index] for b in inputs])
    assert len(made) > 30
    outputs = [tir.Buffer(f"o{k}", (N,), e.dtype) for k, e in enumerate(made)]
    stores = [tir.store(o, index, e) for o, e in zip(outputs, made, strict=True)]
    kernel = tir.PrimFunc("k", (*inputs, *outputs), tir.For(index, N, tir.seq(*stores)))
    builder = relax.BlockBuilder(IRModule({"k": kernel}))
    params = [relax.Var(f"x{k}", relax.TensorStructInfo((N,), dtype)) for k in range(3)]
    infos = [relax.TensorStructInfo((N,), e.dtype) for e in made]
    with builder.function("main", params), builder.dataflow():
        builder.emit_func_output(builder.emit_output(call_tir(GlobalVar("k"), params, infos)))
    values = [np.array(v).astype(numpy_dtype(dtype)) for v in ([1, 2, 3, 1], [1, 1, 2, 3], [3, 2, 1, 1])]
    first, second = (pullback.compile(builder.get(), t).function("main")(*values) for t in ("debug", "llvm"))
    for expr, a, b in zip(made, first, second, strict=True):
        a, b = (v.numpy().astype(np.float64) for v in (a, b))
        close = {"float64": 1e-9, "float32": 1e-5}.get(expr.dtype, 1e-2) if is_float(expr.dtype) else 0.0
        np.testing.assert_allclose(a, b, rtol=close, atol=close, err_msg=f"{expr}")


@pytest.mark.parametrize("name", ["pow", "atan2", "fma", "multiply_no_nan", "xdivy"])
def test_arguments_are_of_one_dtype(name: str) -> None:
    others = [tir.Var(n, d) for n, d in (("x", "float32"), ("y", "float64"), ("z", "float32"))]
    with pytest.raises(DTypeError, match=f"{name} takes arguments of one dtype, got float32, float64"):
        call(name, *others[: INTRINSICS[name]])


@pytest.mark.parametrize(
    "dtype, value",
    [("uint8", 300), ("uint8", -1), ("int8", 128), ("int32", 2**40), ("int64", 2**63), ("int64", -(2**63) - 1)],
)
def test_constants_fit(dtype: str, value: int) -> None:
    with pytest.raises(DTypeError, match=f"{value} does not fit in {dtype}"):
        tir.const(value, dtype)
    with pytest.raises(DTypeError, match=f"{value} does not fit in {dtype}"):
        tir.Var("x", dtype) + value
