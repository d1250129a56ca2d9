"""What an imported model is: inputs, parameters, sizes, control flow, training."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pullback
from pullback import optim
from pullback.ir.errors import ArgumentError, DTypeError, InternalError, NameNotFound, ShapeError, UserError
from pullback.relax import interpreter
from pullback.relax.frontend import UnsupportedOps, register_converter

onnx = pytest.importorskip("onnx")

from pullback.relax.frontend.onnx import NeedsValue, from_onnx  # noqa: E402

HEAD = '<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>\n'
GENERATOR = np.random.default_rng(0)


def parsed(text: str, **arrays: np.ndarray) -> object:
    """A model in ONNX's text form, with these initialisers."""
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n.replace("__", ".")) for n, a in arrays.items())
    return model


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype("float32")


def test_parameters_are_the_initialisers_that_are_trained():
    """Floats with axes are parameters; scalars, integers and what decides a shape are constants."""
    w, b, scale = floats(3, 4), floats(4), np.float32(2.0)
    model = parsed(
        """g (float[n, 3] x) => (float[n, 2, 2] y) {
             h = MatMul(x, "fc.weight")
             i = Add(h, "fc.bias")
             j = Mul(i, scale)
             k = Clip(j, low)
             y = Reshape(k, shape)
        }""",
        fc__weight=w, fc__bias=b, scale=np.asarray(scale), low=np.asarray(-1.0, "float32"),
        shape=np.asarray([0, 2, 2]),
    )  # fmt: skip
    net = pullback.from_onnx(model)
    assert [name for name, _ in net.named_parameters()] == ["fc.weight", "fc.bias"]
    assert list(net.state_dict()) == ["fc.weight", "fc.bias"]
    x = floats(5, 3)
    np.testing.assert_allclose(net(x).numpy(), np.maximum((x @ w + b) * 2, -1).reshape(5, 2, 2), rtol=1e-5)


def test_trainable_patterns():
    model = parsed("g (float[2] x) => (float[2] y) { h = Mul(x, a) y = Add(h, b) }", a=floats(2), b=floats(2))
    net = pullback.from_onnx(model, trainable=["b*"])
    assert {name: p.requires_grad for name, p in net.named_parameters()} == {"a": False, "b": True}
    scalar = parsed("g (float[2] x) => (float[2] y) { y = Mul(x, s) }", s=np.asarray(1.0, "float32"))
    assert [n for n, _ in pullback.from_onnx(scalar, trainable=["s"]).named_parameters()] == ["s"]
    with pytest.raises(NameNotFound, match="no initialiser is called 'c'"):
        pullback.from_onnx(model, trainable=["c"])
    fixed = parsed("g (float[2] x) => (float[1, 2] y) { y = Reshape(x, s) }", s=np.asarray([1, 2]))
    with pytest.raises(ArgumentError, match="s cannot be trained"):
        pullback.from_onnx(fixed, trainable=["s"])


def test_names_that_modules_cannot_have():
    """Initialisers whose names are parts of others' names, or hold other characters, are parameters all the same."""
    names = ["a", "a.b", "held", "/c::0"]
    nodes = 'h = Mul(x, "a") i = Add(h, "a.b") j = Mul(i, "held") y = Add(j, "/c::0")'
    model = parsed(f"g (float[2] x) => (float[2] y) {{ {nodes} }}")
    arrays = {name: floats(2) for name in names}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(arrays[n], n) for n in names)
    net = pullback.from_onnx(model)
    assert len(list(net.parameters())) == 4 and all("." not in n or n == "a.b" for n in net.state_dict())
    x = floats(2)
    wanted = (x * arrays["a"] + arrays["a.b"]) * arrays["held"] + arrays["/c::0"]
    np.testing.assert_allclose(net(x).numpy(), wanted, rtol=1e-5)


def test_sizes_stay_symbols_through_shape_arithmetic():
    """Flattening written by Shape, Gather, Concat and Reshape, for any batch, with two inputs of one size."""
    model = parsed(
        """g (float[batch, 2, 3] x, float[batch, 6] z) => (float[batch, 6] y) {
             s = Shape(x)
             zero = Constant<value_int = 0>()
             n = Gather<axis = 0>(s, zero)
             axes = Constant<value_ints = [0]>()
             u = Unsqueeze(n, axes)
             rest = Constant<value_ints = [-1]>()
             t = Concat<axis = 0>(u, rest)
             f = Reshape(x, t)
             y = Add(f, z)
        }"""
    )
    net = pullback.from_onnx(model)
    assert net.example[0].shape[0] is net.example[1].shape[0]
    for rows in (1, 4):
        x, z = floats(rows, 2, 3), floats(rows, 6)
        np.testing.assert_allclose(net(x, z).numpy(), x.reshape(rows, 6) + z, rtol=1e-6)
    fixed = pullback.from_onnx(model, {"x": (4, None, None)})
    assert [t.shape for t in fixed.example] == [(4, 2, 3), (4, 6)]
    with pytest.raises(ShapeError, match="axis 1 of input x has the size 2 in the file, not 3"):
        pullback.from_onnx(model, {"x": (4, 3, 3)})
    with pytest.raises(ShapeError, match=r"input z is .* in the file, got .*\(2, 6\)"):
        net(floats(3, 2, 3), floats(2, 6))
    with pytest.raises(DTypeError, match=r"input x is .* in the file, got"):
        net(floats(3, 2, 3).astype("float64"), floats(3, 6))
    with pytest.raises(NameNotFound, match="no input 'w'"):
        pullback.from_onnx(model, {"w": (4,)})


def test_copies_are_models_of_their_own():
    net = pullback.from_onnx(parsed("g (float[n, 2] x) => (float[n, 2] y) { y = Mul(x, a) }", a=floats(2)))
    other, x = copy.deepcopy(net), floats(3, 2)
    before = net(x).numpy()
    trainer = pullback.trainer(other, "mse", optim.SGD(lr=0.5))
    trainer.update(x, np.zeros_like(x))
    np.testing.assert_array_equal(net(x).numpy(), before)
    assert not np.array_equal(other(x).numpy(), before)


def test_open_ranks_need_a_shape():
    model = parsed("g (float x) => (float y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UserError, match="nothing says how many axes the input x has"):
        pullback.from_onnx(model)
    assert pullback.from_onnx(model, {"x": ("n", 3)}).example[0].shape[1] == 3


def test_values_that_decide_shapes():
    model = parsed("g (float[6] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }")
    net = pullback.from_onnx(model)
    with pytest.raises(NeedsValue, match="depends on the data of the input shape") as error:
        net.export(*net.example)
    assert error.value.inputs == ("shape",)
    fixed = pullback.from_onnx(model, values={"shape": np.asarray([2, 3])})
    x = floats(6)
    np.testing.assert_array_equal(fixed(x).numpy(), x.reshape(2, 3))
    with pytest.raises(ShapeError, match="must have the shape"):
        pullback.from_onnx(model, values={"shape": np.asarray([2, 3, 1])})
    with pytest.raises(ArgumentError, match="must be int64"):
        pullback.from_onnx(model, values={"shape": np.asarray([2.5, 3.0])})


def test_all_missing_operators_are_listed():
    model = parsed(
        """g (float[2] x) => (float[2] y) {
             a = mine.First(x)
             b = mine.Second(a)
             c = mine.First(b)
             y = Relu(c)
        }"""
    )
    with pytest.raises(UnsupportedOps, match="2 operators of the onnx model cannot be converted") as error:
        pullback.from_onnx(model)
    assert error.value.names == ("mine.First", "mine.Second")


def test_own_converters_and_functions():
    """A function of the model is called with its attributes; a converter of the user's replaces it."""
    text = (
        HEAD
        + """g (float[2] x) => (float[2] y) { y = mine.Scaled<by: float = 3.0>(x) }
        <domain: "mine", opset_import: ["" : 20]>
        Scaled<by>(a) => (b) { c = Constant<value_float: float = @by>() b = Mul(a, c) }"""
    )
    model = onnx.parser.parse_model(text)
    x = floats(2)
    np.testing.assert_allclose(pullback.from_onnx(model)(x).numpy(), 3 * x, rtol=1e-6)
    from pullback.relax.frontend.onnx import ONNX

    register_converter("onnx", "mine.Scaled")(lambda x, *, by: x * by + 1.0)
    try:
        np.testing.assert_allclose(pullback.from_onnx(model)(x).numpy(), 3 * x + 1, rtol=1e-6)
    finally:
        del ONNX._table["mine.Scaled"]


BRANCHES = """g (float[3] x) => (float[3] y) {{
      {condition}
      y = If(c) <
        then_branch = t () => (float[3] a) {{ a = Mul(x, w) }},
        else_branch = e () => (float[3] b) {{ b = Neg(x) }}
      >
}}"""


def test_branches():
    """A condition that is known is decided at import; one that depends on data when it runs."""
    w = floats(3)
    known = parsed(BRANCHES.format(condition="s = Shape(x) k = ReduceMax<keepdims=0>(s) z = Constant<value_int = 3>() "
                                             "c = Equal(k, z)"), w=w)  # fmt: skip
    net = pullback.from_onnx(known)
    assert "if" not in str(net.export(*net.example)).split()
    x = floats(3)
    np.testing.assert_allclose(net(x).numpy(), x * w, rtol=1e-6)
    open_ = parsed(BRANCHES.format(condition="k = ReduceSum<keepdims=0>(x) z = Constant<value_float = 0.0>() "
                                             "c = Greater(k, z)"), w=w)  # fmt: skip
    net = pullback.from_onnx(open_)
    for sign in (1, -1):
        x = sign * np.abs(floats(3))
        np.testing.assert_allclose(net(x).numpy(), x * w if sign > 0 else -x, rtol=1e-6)


LOOP = """g (float[3] x{more}) => (float[3] y) {{
      {count}
      t = Constant<value = bool {{1}}>()
      y = Loop(n, t, x) <body = b (int64 i, bool go, float[3] h) => (bool on, float[3] k) {{
          {condition}
          m = Mul(h, w)
          k = Tanh(m)
      }}>
}}"""


@pytest.mark.parametrize("condition", ["on = Identity(go)", "s = ReduceSum<keepdims=0>(h) l = Constant<value_float="
                                       "1e6>() on = Less(s, l)"], ids=["counted", "while"])  # fmt: skip
def test_loops_are_trained(condition):
    """The gradient through a loop, against the same steps in float64."""
    w = (1 + 0.1 * floats(3)).astype("float32")
    net = pullback.from_onnx(
        parsed(LOOP.format(more="", count="n = Constant<value_int=4>()", condition=condition), w=w)
    )
    x, target = floats(3), floats(3)
    trainer = pullback.trainer(net, "mse", optim.SGD(lr=1.0), targets=net.example[0])
    loss = float(trainer.update(x, target))

    def of(weight: np.ndarray) -> float:
        h = x.astype("float64")
        for _ in range(4):
            h = np.tanh(h * weight)
        return float(((h - target) ** 2).mean())

    step = 1e-6
    slopes = [(of(w + step * e) - of(w - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(loss, of(w.astype("float64")), rtol=1e-5)
    np.testing.assert_allclose(w - trainer.state_dict()["w"].numpy(), slopes, rtol=1e-3, atol=1e-5)


def test_training_form_of_batch_norm_and_dropout():
    """Steps move the running statistics, which predictions take; dropout drops in steps alone."""
    mean, variance = floats(2), np.abs(floats(2)) + 0.5
    model = parsed(
        """g (float[n, 2] x) => (float[n, 2] y) {
             a, m, v = BatchNormalization<momentum = 0.75, training_mode = 1>(x, scale, bias, mean, var)
             ratio = Constant<value_float = 0.5>()
             y = Dropout(a, ratio)
        }""",
        scale=np.ones(2, "float32"), bias=np.zeros(2, "float32"), mean=mean, var=variance,
    )  # fmt: skip
    net = pullback.from_onnx(model)
    assert [n for n, _ in net.named_buffers()] == ["mean", "var"]
    x = floats(8, 2)
    normed = (x - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(net(x).numpy(), normed, rtol=1e-4, atol=1e-5)
    trainer = pullback.trainer(net, "mse", optim.SGD(lr=0.0))
    losses = {float(trainer.update(x, np.zeros_like(x))) for _ in range(3)}
    assert len(losses) == 3  # other elements were dropped
    kept = 0.75**3
    moved = kept * mean + (1 - kept) * x.mean(0)
    np.testing.assert_allclose(trainer.state_dict()["mean"].numpy(), moved, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        trainer.state_dict()["var"].numpy(), kept * variance + (1 - kept) * x.var(0, ddof=1), rtol=1e-4
    )


def test_module_form():
    """TVM's from_onnx: main, with weights as constants, or as parameters whose values are an attribute."""
    w = floats(3, 4)
    model = parsed("g (float[n, 3] x) => (float[n, 4] y) { y = MatMul(x, w) }", w=w)
    x = floats(2, 3)
    module = from_onnx(model)
    assert [p.name for p in module["main"].params] == ["x"]
    np.testing.assert_allclose(interpreter.evaluate(module, "main", [x]), x @ w, rtol=1e-5)
    kept = from_onnx(model, keep_params_in_input=True)
    params = kept["main"].attrs["params"]
    np.testing.assert_array_equal(params[0], w)
    np.testing.assert_allclose(interpreter.evaluate(kept, "main", [x, *params]), x @ w, rtol=1e-5)
    with pytest.raises(ArgumentError, match="opset=13 is asked for, the model is written in opset 20"):
        from_onnx(model, opset=13)


def test_versions_of_operators():
    """Softmax of opset 11 takes all axes from one on together; that of opset 13 one axis."""
    x = floats(2, 3, 4)
    for opset, axes in ((11, (1, 2)), (13, (1,))):
        model = onnx.parser.parse_model(
            f'<ir_version: 7, opset_import: ["" : {opset}]> g (float[2, 3, 4] x) => (float[2, 3, 4] y)'
            " { y = Softmax<axis = 1>(x) }"
        )
        e = np.exp(x)
        np.testing.assert_allclose(pullback.from_onnx(model)(x).numpy(), e / e.sum(axes, keepdims=True), rtol=1e-5)


def test_a_wrong_converter_is_found_where_it_stands():
    from pullback.relax.frontend.onnx import ONNX

    model = parsed("g (float[2, 3] x) => (float[z] y) { a = Transpose(x) y = Flatten(a) }")
    model.graph.node[1].op_type = "Relu"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    kept = ONNX._table["Transpose"]
    register_converter("onnx", "Transpose")(lambda x, *, perm=None: x)
    try:
        net = pullback.from_onnx(model)
        with pytest.raises(InternalError, match=r"Transpose \(of a\) gives a as .*ONNX says float32\(3, 2\)"):
            net.export(*net.example)
    finally:
        ONNX._table["Transpose"] = kept


def test_sizes_that_have_to_be_equal_are_checked_when_it_runs():
    """Halves of an even length, put together and added to the whole; gradients pass through the check."""
    model = parsed(
        """g (float[n, k, 2] x) => (float[n, k, 2] y) {
             one = Constant<value_ints = [1]>()
             two = Constant<value_ints = [2]>()
             zero = Constant<value_ints = [0]>()
             last = Constant<value_ints = [9223372036854775807]>()
             even = Slice(x, zero, last, one, two)
             odd = Slice(x, one, last, one, two)
             pair = Concat<axis = 1>(even, odd)
             h = Mul(pair, w)
             y = Add(h, x)
        }""",
        w=np.asarray([2.0, 3.0], "float32"),
    )  # fmt: skip
    net = pullback.from_onnx(model)
    x = floats(2, 4, 2)
    pair = np.concatenate([x[:, ::2], x[:, 1::2]], 1)
    np.testing.assert_allclose(net(x).numpy(), pair * np.float32([2, 3]) + x, rtol=1e-6)
    trainer = pullback.trainer(net, lambda y, t: pullback.op.sum(y * t), optim.SGD(lr=1.0), targets=net.example[0])
    trainer.update(x, np.ones_like(x))
    np.testing.assert_allclose(trainer.state_dict()["w"].numpy(), [2, 3] - pair.sum((0, 1)), rtol=1e-5)


def test_slices_of_one_element_of_a_symbolic_axis():
    model = parsed(
        """g (float[n, 3] x) => (float[1, 3] y) {
             start = Constant<value_ints = [-1]>()
             end = Constant<value_ints = [9223372036854775807]>()
             axis = Constant<value_ints = [0]>()
             y = Slice(x, start, end, axis)
        }"""
    )
    net = pullback.from_onnx(model)
    assert net.export(*net.example)["backbone"].ret_struct_info.shape == (1, 3)
    x = floats(4, 3)
    np.testing.assert_array_equal(net(x).numpy(), x[-1:])


def test_sequences_inside_of_a_model():
    """What chunk and split of PyTorch become: a sequence whose length follows from a size."""
    model = parsed(
        """g (float[n, 6] x) => (float[n, 2] y) {
             size = Constant<value_int = 2>()
             parts = SplitToSequence<axis = 1>(x, size)
             first = Constant<value_int = 0>()
             back = Constant<value_int = -1>()
             a = SequenceAt(parts, first)
             b = SequenceAt(parts, back)
             y = Sub(a, b)
        }"""
    )
    x = floats(3, 6)
    np.testing.assert_allclose(pullback.from_onnx(model)(x).numpy(), x[:, :2] - x[:, 4:], rtol=1e-6)


def test_scales_of_quantized_numbers_are_constants():
    """Weights of integers with a scale for each channel: nothing but the bias is a parameter."""
    w = GENERATOR.integers(-9, 9, (4, 3)).astype("int8")
    scale, bias = np.abs(floats(4)) + 0.1, floats(4)
    model = parsed(
        """g (float[n, 3] x) => (float[n, 4] y) {
             f = DequantizeLinear<axis = 0>(w, scale)
             y = Gemm<transB = 1>(x, f, bias)
        }""",
        w=w, scale=scale.astype("float32"), bias=bias,
    )  # fmt: skip
    net = pullback.from_onnx(model)
    assert [name for name, _ in net.named_parameters()] == ["bias"]
    x = floats(2, 3)
    np.testing.assert_allclose(net(x).numpy(), x @ (w * scale[:, None]).T + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exponent", [0, 1, 5])
def test_whole_powers_of_integers(exponent):
    base = np.asarray([-3, 0, 2, 7])
    model = parsed("g (int64[4] x) => (int64[4] y) { y = Pow(x, e) }", e=np.asarray(exponent))
    np.testing.assert_array_equal(pullback.from_onnx(model)(base).numpy(), base**exponent)
