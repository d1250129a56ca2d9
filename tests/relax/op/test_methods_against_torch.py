"""Methods and indices of tensors give what NumPy's and PyTorch's do, natively and interpreted, in text too."""

import textwrap

import numpy as np
import pytest
import torch

import pullback
from pullback import relax
from pullback.ir import ShapeError, UserError
from pullback.relax import op
from pullback.relax.op.methods import METHODS, OPS_AS_METHODS, PROPERTIES
from pullback.script import from_source

X = np.random.default_rng(0).uniform(0.1, 1, (4, 3, 5)).astype("float32")
INDICES = [
    np.s_[:, 0], np.s_[0], np.s_[-1], np.s_[..., -1], np.s_[None], np.s_[::-1], np.s_[1:3, ::2, None], np.s_[...],
    np.s_[-1, ..., 1:], np.s_[:, None, :, 0], np.s_[3:0:-2], np.s_[1:1], np.s_[:-1, 1, 2:100], np.s_[np.int64(2)],
    np.s_[None, 0, None], np.s_[0, 1, 2], np.s_[()], np.s_[:, -3:-1],
]  # fmt: skip


def computed(make, target="debug", x=X):
    builder = relax.BlockBuilder()
    v = relax.Var("x", relax.TensorStructInfo(x.shape, x.dtype.name))
    with builder.function("main", [v]):
        with builder.dataflow():
            out = builder.emit_output(make(v))
        builder.emit_func_output(out)
    return pullback.compile(builder.get(), target).function("main")(x).numpy()


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices(index):
    np.testing.assert_array_equal(computed(lambda x: x[index]), X[index])


def test_indices_of_native_code_and_their_gradient():
    def make(x):
        return x[:, 0, ::2] * x[-1, 1, 0]

    np.testing.assert_allclose(computed(make, "llvm"), X[:, 0, ::2] * X[-1, 1, 0], rtol=1e-6)
    x = torch.tensor(X, requires_grad=True)
    (x[:, 0, ::2] * x[-1, 1, 0]).sum().backward()
    builder = relax.BlockBuilder()
    v = relax.Var("x", relax.TensorStructInfo(X.shape, "float32"))
    with builder.function("main", [v]):
        with builder.dataflow():
            out = builder.emit_output(op.sum(make(v)))
        builder.emit_func_output(out)
    module = relax.transform.Gradient("main")(builder.get())
    found = pullback.compile(module).function("main_adjoint")(X)[1][0].numpy()
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5)


def test_an_index_that_is_a_tensor_takes_rows():
    rows = relax.const(np.array([2, 0, 2]))
    np.testing.assert_array_equal(computed(lambda x: x[rows]), X[[2, 0, 2]])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (4, "index 4 is outside axis 0, whose size is 4"), ((0, -4), "index -4 is outside axis 1"),
        ((0, 0, 0, 0), "4 indices are too many for a tensor of rank 3"), ((..., ...), "one Ellipsis"),
        ("a", "the index 'a' cannot be used"), (1.5, "the index 1.5 cannot be used"), (True, "the index True"),
        (slice("a"), "the index 'a'"), (slice(None, None, 0), "a stride cannot be 0"), ([0, 1], "the index"),
    ],
)  # fmt: skip
def test_indices_that_do_not_fit(index, message):
    x = relax.Var("x", relax.TensorStructInfo(X.shape, "float32"))
    with pytest.raises(UserError, match=message) as caught:
        x[index]
    assert caught.value.hint


def test_masks_and_items_of_tuples():
    x = relax.Var("x", relax.TensorStructInfo(X.shape, "float32"))
    with pytest.raises(UserError, match=r"indexed by a mask(.|\n)*R\.where"):
        x[x > 0.5]
    pair = relax.Tuple((x, x))
    assert pair[-1] is x
    with pytest.raises(UserError, match=r"2 is no item(.|\n)*0 to 1"):
        pair[2]
    with pytest.raises(UserError, match=r"it is no tuple(.|\n)*R\.unbind"):
        _a, _b = x


def test_symbolic_sizes_stay():
    n = pullback.tir.Var("n")
    x = relax.Var("x", relax.TensorStructInfo((n, 3, 5), "float32"))
    assert x[:, 0].shape == (n, 5)
    assert x[:, :, 1:].shape[0] is n
    assert x.reshape(-1, 15).shape[1] == 15
    assert x.T.shape == (5, 3, n)


SAME_AS_TORCH = {
    "mean": lambda x: x.mean(dim=1), "sum": lambda x: x.sum(0, keepdim=True), "max": lambda x: x.max(), "T": None,
    "reshape": lambda x: x.reshape(4, -1), "reshape of a tuple": lambda x: x.reshape((2, 30)),
    "view": lambda x: x.view(12, 5), "transpose": lambda x: x.transpose(0, 2), "permute": lambda x: x.permute(2, 0, 1),
    "flatten": lambda x: x.flatten(), "flatten some": lambda x: x.flatten(1), "mT": lambda x: x.mT,
    "unsqueeze": lambda x: x.unsqueeze(1), "squeeze": lambda x: x[:1].squeeze(0),
    "expand": lambda x: x.expand(2, -1, 3, 5),
    "exp": lambda x: x.exp(), "log": lambda x: x.log(), "sqrt": lambda x: x.sqrt(), "abs": lambda x: x.abs(),
    "pow": lambda x: x.pow(2.0), "clamp": lambda x: x.clamp(0.3, 0.6), "clamp one side": lambda x: x.clamp(min=0.5),
    "softmax": lambda x: x.softmax(-1), "softmax dim": lambda x: x.softmax(dim=1), "relu": lambda x: (x - 0.5).relu(),
    "argmax": lambda x: x.argmax(dim=1), "min": lambda x: x.min(), "matmul": lambda x: x.matmul(x.mT),
    "repeat": lambda x: x.repeat(2, 1, 1), "tanh": lambda x: x.tanh(), "sigmoid": lambda x: x.sigmoid(),
    "half": lambda x: x.half(), "long": lambda x: (x * 9).long(), "neg": lambda x: x.neg(),
    "detach": lambda x: x.detach(),
    "operators": lambda x: abs(-x) + (+x) @ x.mT[:, :, :1],
    "numel": lambda x: x * float(x.numel() + x.dim() + x.size(1)),
    "split": lambda x: x.split(2, 1)[1] + x.split(5, dim=-1)[0][:, :1], "chunk": lambda x: x.chunk(2, dim=0)[1],
    "split by sizes": lambda x: x.split([2, 1], 1)[0] * x.split((2, 1), 1)[1],
    "cumsum": lambda x: x.cumsum(1), "roll": lambda x: x.roll(1, 0), "contiguous": lambda x: x.contiguous(),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n, f in SAME_AS_TORCH.items() if f is not None])
def test_methods_against_torch(name):
    make = SAME_AS_TORCH[name]
    wanted = make(torch.tensor(X)).numpy()
    found = computed(make)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if name == "half" else 1e-5)


def test_numpys_forms():
    np.testing.assert_array_equal(computed(lambda x: x.T), X.T)
    np.testing.assert_array_equal(computed(lambda x: x.transpose()), X.transpose())
    np.testing.assert_array_equal(computed(lambda x: x.transpose(1, 0, 2)), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(computed(lambda x: x.astype("int32")), X.astype("int32"))
    np.testing.assert_allclose(computed(lambda x: x.mean(axis=(0, 2))), X.mean((0, 2)), rtol=1e-6)
    np.testing.assert_array_equal(computed(lambda x: ~(x > 0.5)), ~(X > 0.5))
    np.testing.assert_array_equal(computed(lambda x: (x << 1) >> 2, x=np.arange(5)), (np.arange(5) << 1) >> 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x.cuda(), "everything runs on the CPU"), (lambda x: x.to("cuda"), "the CPU is the only device"),
        (lambda x: x.split(0), "the size of a part must be an int"), (lambda x: x.split(2, 3), "axis 3 is outside"),
        (lambda x: x.split([1, 2]), r"the sizes \[1, 2\] add up to 3, the axis has 4"),
        (lambda x: x.backward(), "a step of the trainer"),
        (lambda x: x.unsqueeze(), "missing a required argument"), (lambda x: x.mean(7), "axis 7 is outside"),
        (lambda x: x.masked_fill(x, 0), r"write R\.where"), (lambda x: x.meen(), r"did you mean mean\?"),
        (lambda x: x.transpose(5, 0), "axis 5 is outside"), (lambda x: x.relu_(), "values never change"),
    ],
)  # fmt: skip
def test_what_methods_say(make, message):
    with pytest.raises(UserError, match=message):
        make(relax.Var("x", relax.TensorStructInfo(X.shape, "float32")))


def test_all_methods_are_methods_and_only_of_tensors():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    for name in [*METHODS, *OPS_AS_METHODS, *PROPERTIES]:
        assert hasattr(x, name), name
    pair = relax.Tuple((x, x))
    assert not hasattr(pair, "mean") and not hasattr(pair, "T")
    assert not hasattr(x, "numpy") and not hasattr(x, "values") and not hasattr(x, "fields")


def test_in_text():
    text = """
    @R.function
    def main(x: R.Tensor((4, 3, 5), "float32")):
        y = x[:, 0].mean(dim=1).reshape(2, -1) @ x.T[:2, 0, :2]
        return y
    """
    function = from_source(textwrap.dedent(text))
    found = pullback.compile(function).function("main")(X).numpy()
    np.testing.assert_allclose(found, X[:, 0].mean(1).reshape(2, -1) @ X.T[:2, 0, :2], rtol=1e-5)
    with pytest.raises(ShapeError, match=r"outside axis 0(.|\n)*--> <script"):
        from_source(textwrap.dedent(text).replace("x[:, 0]", "x[4]"))
