"""Arguments of compiled functions: looked at before any memory is touched, interpreted or native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import ArgumentError, DTypeError, IRModule, ShapeError, TargetError, UserError
from pullback.relax import BlockBuilder, ShapeStructInfo, TensorStructInfo, Tuple, TupleStructInfo, Var, op
from pullback.script import from_source
from pullback.target import Target

MODULE = """
from pullback.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), pair: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((), "int64"))):
        with R.dataflow():
            y = R.sum(x, axis=[1])
            z = R.add(y, pair[0])
            k = pair[1]
            R.output(z, k)
        return (z, (k, z))
"""
X, ROW, ONE = np.ones((2, 3), "float32"), np.ones(2, "float32"), np.array(1)


@pytest.fixture(params=["debug", "llvm"])
def main(request) -> Any:
    return pullback.compile(from_source(MODULE), request.param).function("main")


def test_results_are_nested_as_they_are_declared(main):
    z, (k, again) = main(X, (ROW, ONE))
    assert z.numpy().tolist() == again.numpy().tolist() == [4.0, 4.0] and k.item() == 1
    assert main(X, [ROW, ONE])[0].shape == (2,)


@pytest.mark.parametrize("arguments, kind, message", [
    ((X,), ArgumentError, "main takes 2 arguments, got 1"),
    ((X, (ROW, ONE), X), ArgumentError, "main takes 2 arguments, got 3"),
    ((X, ROW), ArgumentError, "pair must be a tuple of 2 values, got ndarray"),
    ((X, (ROW,)), ArgumentError, "pair must be a tuple of 2 values, got 1 values"),
    ((X, (ROW, ONE, ONE)), ArgumentError, "pair must be a tuple of 2 values, got 3 values"),
    ((X.astype("float64"), (ROW, ONE)), DTypeError, "x must have dtype float32, got float64"),
    ((X, (ROW, np.float32(1))), DTypeError, r"pair\[1\] must have dtype int64, got float32"),
    ((X[:, :2], (ROW, ONE)), ShapeError, r"x must have shape \(n, 3\), got \(2, 2\)"),
    ((X[0], (ROW, ONE)), ShapeError, r"x must have shape \(n, 3\), got \(3,\)"),
    ((X, (np.ones(3, "float32"), ONE)), ShapeError, r"pair\[0\] must have shape \(n,\) with n = 2, got \(3,\)"),
    ((X, (ROW, np.array([1]))), ShapeError, r"pair\[1\] must have shape \(\), got \(1,\)"),
    ((object(), (ROW, ONE)), UserError, "main: x: "),
])  # fmt: skip
def test_what_does_not_fit(main, arguments, kind, message):
    with pytest.raises(kind, match=message):
        main(*arguments)


def test_flat_tensors_of_a_prepared_call(main):
    flat = [pullback.tensor(v) for v in (X, ROW, ONE)]
    assert main.bind(flat)()[0].numpy().tolist() == [4.0, 4.0]
    with pytest.raises(ArgumentError, match="main: too few tensors: 2"):
        main.bind(flat[:2])
    with pytest.raises(ArgumentError, match="main: too many tensors: 4"):
        main.bind([*flat, flat[0]])


def test_shapes_cannot_be_passed():
    x, s = Var("x", TensorStructInfo((2,), "float32")), Var("s", TupleStructInfo((ShapeStructInfo((2,)),)))
    builder = BlockBuilder()
    with builder.function("main", [x, s]):
        builder.emit_func_output(builder.emit(op.exp(x)))
    with pytest.raises(UserError, match=r"s\[0\] is .* which cannot be passed from Python|s"):
        pullback.compile(builder.get(), "debug")["main"](ROW, ((2,),))


@pytest.mark.parametrize("spec, message", [
    ({"kind": "llvm", "mattr": 3}, "mattr of the target must be a string or a list of them, got 3"),
    ({"kind": "llvm", "mattr": ["avx"]}, r"feature 'avx' of the target needs a \+ or - before its name"),
    ({"kind": "llvm", "mcpu": 3}, "mcpu of the target must be a string, got 3"),
    ({"kind": "cuda"}, "unknown target kind 'cuda'"),
    ({}, "unknown target kind None"),
    ({"kind": "llvm", "keys": "cpu"}, "unknown target option -keys"),
    ("llvm mcpu=x", "target option 'mcpu=x' is not of the form -name=value"),
    ("llvm -mcpu", "target option '-mcpu' is not of the form -name=value"),
    ("llvm -mcpu=a:b", "can't be the name of a CPU of"),
    (3, "a target is a string or a mapping, not int"),
])  # fmt: skip
def test_targets(spec, message):
    with pytest.raises(TargetError, match=message):
        Target(spec)


# -- passes that ask something of a module


def module_of(*infos: Any) -> IRModule:
    params = [Var(f"p{k}", info) for k, info in enumerate(infos)]
    builder = BlockBuilder()
    with builder.function("backbone", params):
        builder.emit_func_output(builder.emit(Tuple(tuple(params))))
    return builder.get()


@pytest.mark.parametrize("infos", [
    (TensorStructInfo((), "float32"),), (TensorStructInfo(ndim=2),), (TupleStructInfo((TensorStructInfo((2,)),)),),
])  # fmt: skip
def test_batches_need_a_batch_dimension(infos):
    with pytest.raises(ShapeError, match=r"input p0 is .*: it has no batch dimension"):
        relax.transform.RebatchInputs(4)(module_of(*infos))


def test_batches_of_the_inputs_that_are_named():
    rows = [TensorStructInfo((2, 3), "float32")] * 3
    found = relax.transform.RebatchInputs(4, also=("p2",))(module_of(*rows))
    assert [p.struct_info.shape for p in found["backbone"].params] == [(4, 3), (2, 3), (4, 3)]


def test_what_another_system_says_of_mixed_precision():
    with pytest.raises(ArgumentError, match="fp16_input_names is not supported"):
        relax.transform.ToMixedPrecision("float32", ["x"])
    with pytest.raises(ArgumentError, match=r"products are summed in float32, out_dtype='float16' is not supported"):
        relax.transform.ToMixedPrecision("float16")
