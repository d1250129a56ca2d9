"""padding="same" and "valid" of convolutions and pools, against PyTorch and the sizes that Keras gives; strides=None of
pools is the window."""

import numpy as np
import pytest
import torch

import pullback
from pullback import relax
from pullback.ir import ShapeError
from pullback.ir.op import Op
from pullback.relax import op
from pullback.script import relax as R

SPACE = {1: "W", 2: "HW", 3: "DHW"}


def run(make, *arrays):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name)) for k, a in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    return pullback.compile(builder.get(), "debug").function("main")(*arrays).numpy()


def data(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("word", ["same", "valid"])
def test_convolutions(rank, kernel, dilation, word):
    x, w = data(2, 3, *(8, 9, 7)[:rank]), data(4, 3, *(kernel, 3, 2)[:rank])
    found = run(lambda x, w: getattr(op.nn, f"conv{rank}d")(x, w, padding=word, dilation=dilation), x, w)
    function = getattr(torch.nn.functional, f"conv{rank}d")
    wanted = function(torch.tensor(x), torch.tensor(w), padding=word, dilation=dilation).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("stride", [2, 3])
def test_sizes_with_strides(size, stride):
    x, w = R.Tensor((1, size, size, 3)), R.Tensor((3, 3, 3, 4))
    x, w = relax.Var("x", x), relax.Var("w", w)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    y = op.nn.conv2d(x, w, strides=stride, padding="same", **layouts)
    assert y.shape == (1, -(-size // stride), -(-size // stride), 4)
    assert op.nn.max_pool2d(x, 3, stride, padding="same", layout="NHWC").shape == (*y.shape[:3], 3)


def test_pools():
    x = data(2, 3, 5, 5)
    found = run(lambda x: op.nn.avg_pool2d(x, 3, 1, padding="same"), x)
    wanted = torch.nn.functional.avg_pool2d(torch.tensor(x), 3, 1, 1, count_include_pad=False).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_other_words_and_unknown_sizes():
    x, w = relax.Var("x", R.Tensor((2, 3, "n", 8))), relax.Var("w", R.Tensor((4, 3, 3, 3)))
    with pytest.raises(ShapeError, match=r'there is no padding \'full\'(.|\n)*"same", "valid", or numbers'):
        op.nn.conv2d(x, w, padding="full")
    with pytest.raises(ShapeError, match='padding="same" with strides needs sizes that are known'):
        op.nn.conv2d(x, w, strides=2, padding="same")


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_no_strides_are_the_window(rank, kind):
    pool = getattr(op.nn, f"{kind}_pool{rank}d")
    x = data(2, 3, *(8, 9, 7)[:rank])
    found = run(lambda x: pool(x, pool_size=2, strides=None), x)
    wanted = getattr(torch.nn.functional, f"{kind}_pool{rank}d")(torch.tensor(x), 2).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert pool.signature.attrs["strides"] == 1  # TVM's default
    assert run(lambda x: pool(x, pool_size=2), x).shape == tuple(n - 1 if a > 1 else n for a, n in enumerate(x.shape))


def test_all_pools_say_the_same_of_strides():
    pools = [o for n, o in Op.registry.items() if "pool" in n and "strides" in o.signature.attrs]
    assert {o.short: o.signature.attrs["strides"] for o in pools if o.signature.attrs["strides"] not in (1, None)} == {}
