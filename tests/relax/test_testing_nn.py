"""``relax.testing.nn``: modules over a builder, and the functions that mark checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, te
from pullback.ir import ArgumentError, UserError, assert_structural_equal
from pullback.relax.testing import nn
from pullback.script import ir as I
from pullback.script import relax as R


def test_a_model():
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.LogSoftmax())
        data = nn.Placeholder((5, 4))
        output = model(data)
        params = model.parameters()
        builder.emit_func_output(output, params=[data, *params])
    module = builder.get()

    @I.ir_module
    class Expected:
        @R.function
        def main(
            data: R.Tensor((5, 4), "float32"),
            linear_weight: R.Tensor((4, 3), "float32"),
            linear_bias: R.Tensor((3,), "float32"),
            linear_weight_1: R.Tensor((3, 2), "float32"),
        ) -> R.Tensor((5, 2), "float32"):
            a = R.matmul(data, linear_weight)
            b = R.add(a, linear_bias)
            c = R.nn.relu(b)
            d = R.matmul(c, linear_weight_1)
            e = R.nn.log_softmax(d)
            return e

    assert_structural_equal(module, Expected)
    assert [p.name for p in module["main"].params] == [p.name for p in Expected["main"].params]
    assert len(model) == 4 and isinstance(model[1], nn.ReLU) and len(list(model)) == 4

    values = nn.init_params(module)
    assert [v.shape for v in values] == [(4, 3), (3,), (3, 2)] and all(v.dtype == "float32" for v in values)
    x = np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4)
    w0, b0, w1 = (v.numpy().astype("float64") for v in values)
    assert (w0 >= 0).all() and (w0 < 1).all()
    logits = np.maximum(x @ w0 + b0, 0) @ w1
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    result = pullback.compile(module).function("main")(x, *values).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_parameters_in_lists_dicts_and_shared_modules():
    with relax.BlockBuilder().opened():

        class Model(nn.Module):
            def __init__(self):
                self.own = nn.Parameter((2,), "float64", name="own")
                self.layers = [nn.Linear(2, 2), nn.Linear(2, 2, bias=False)]
                self.named = {"again": self.layers[0]}
                self.placeholder = nn.Placeholder((2,))

        names = [p.name for p in Model().parameters()]
    assert names == ["own", "linear_weight", "linear_bias", "linear_weight_1"]


def test_emit_te():
    builder = relax.BlockBuilder()
    with builder.function("main"):
        assert relax.BlockBuilder.current() is builder
        data = nn.Placeholder((4,))
        out = nn.emit_te(lambda a: te.compute(a.shape, lambda i: a[i] + 1.0), data)
        builder.emit_func_output(nn.emit(R.exp(out), "result"), params=[data])
    assert relax.BlockBuilder.current() is None
    assert [b.var.name for b in builder.get()["main"].bindings][-1] == "result"


def lines(module) -> list[str]:
    return [f"{b.var.name} = {b.value}" for b in module["main"].bindings]


def built(body) -> list[str]:
    builder = relax.BlockBuilder()
    with builder.function("main"):
        x, y = nn.Placeholder((3,), name="x"), nn.Placeholder((3,), name="y")
        with builder.dataflow():
            out = builder.emit_output(body(x, y))
        builder.emit_func_output(out, params=[x, y])
    return lines(builder.get())


def test_emit_checkpoint():
    assert built(lambda x, y: nn.emit_checkpoint(lambda a, b, scale: R.add(a, b) * scale, x, b=y, scale=2.0)) == [
        "lv = R.grad.start_checkpoint(x)",
        "lv_1 = R.grad.start_checkpoint(y)",
        "lv_2 = R.add(lv, lv_1)",
        'lv_3 = R.multiply(lv_2, R.const(2.0, "float32"))',
        "lv_4 = R.grad.end_checkpoint(lv_3)",
        "gv = lv_4",
    ]


def test_checkpoint_of_several_results():
    def body(x, y):
        first, number, second = nn.checkpoint(lambda a: (R.exp(a), 3, R.sin(a)), x)
        assert number == 3
        return R.add(first, second)

    text = built(body)
    assert sum("start_checkpoint" in line for line in text) == 1
    assert sum("end_checkpoint" in line for line in text) == 2


@pytest.mark.parametrize(
    ("segments", "last", "ends"),
    [(2, False, [2]), (2, True, [2, 4]), (4, False, [1, 2, 3]), ([0, 3], False, [3]), ([0, 1, 4], True, [1, 4]),
     (1, False, []), (3, False, [1, 2, 3])],
)  # fmt: skip
def test_emit_checkpoint_sequential(segments, last, ends):
    functions = [lambda v, f=f: nn.emit(f(v)) for f in (R.exp, R.sin, R.tanh, R.cos)]
    text = built(lambda x, y: nn.emit_checkpoint_sequential(functions, segments, x, last))
    found, calls = [], 0
    for line in text:
        if "end_checkpoint" in line:
            found.append(calls)
        calls += any(f" = R.{name}(" in line for name in ("exp", "sin", "tanh", "cos"))
    assert calls == 4 and found == ends


@pytest.mark.parametrize("segments", [0, 5, [1, 2], [0, 2, 1], [0, 9]])
def test_segments_that_do_not_fit(segments):
    functions = [lambda v: nn.emit(R.exp(v))] * 4
    with pytest.raises(ArgumentError) as error:
        built(lambda x, y: nn.emit_checkpoint_sequential(functions, segments, x))
    assert error.value.hint


def test_mistakes():
    with pytest.raises(UserError, match="where no function is built") as error:
        nn.Placeholder((3,))
    assert error.value.hint
    with pytest.raises(UserError, match="Module has no forward"):
        nn.Module()(1)
    with pytest.raises(ArgumentError, match="returned None"):
        built(lambda x, y: nn.emit_checkpoint(lambda a: None, x))
    builder = relax.BlockBuilder()
    with builder.function("main", [relax.Var("w", R.Tensor(("n",)))]):
        builder.emit_func_output(R.tuple())
    with pytest.raises(ArgumentError, match="the sizes of w are not known"):
        nn.init_params(builder.get())
