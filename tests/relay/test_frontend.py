"""Models of PyTorch, ONNX and Keras in relay: the source framework's forward, and names."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from pullback import relax, relay
from pullback.ir import IRModule, UserError
from pullback.relay.expr import Call, Function
from pullback.relay.frontend.names import NAMES
from pullback.relay.op.registry import Op
from pullback.relay.raised import raised


def ops_of(function: Function) -> set[str]:
    found: set[str] = set()
    relay.analysis.post_order_visit(
        function, lambda e: found.add(e.op.name) if isinstance(e, Call) and isinstance(e.op, Op) else None
    )
    return found


def evaluated(mod: Any, params: Any, kind: str, *arguments: Any) -> list[np.ndarray]:
    found = relay.create_executor(kind, mod=mod, params=params).evaluate()(*arguments)
    return [t.numpy() for t in (found if isinstance(found, (list, tuple)) else [found])]


def cnn(torch: Any) -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.nn.ReLU6(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 5),
        torch.nn.Softmax(-1),
    )  # fmt: skip


def text(torch: Any) -> Any:
    class Text(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm = torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8)
            self.query, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

        def forward(self, ids: Any) -> Any:
            x = self.norm(self.words(ids))
            weights = torch.softmax(self.query(x) @ x.transpose(1, 2), -1)
            return self.head(torch.nn.functional.gelu((weights @ x).mean(1)))

    return Text()


MODELS = {
    "cnn": (cnn, ("x", (2, 3, 16, 16), "float32"), {"nn.conv2d", "nn.batch_norm", "nn.dense", "nn.max_pool2d"}),
    "text": (text, ("ids", (2, 7), "int64"), {"take", "nn.layer_norm", "nn.batch_matmul", "mean"}),
}


@pytest.mark.parametrize("kind", ["debug", "graph"])
@pytest.mark.parametrize("name", MODELS)
def test_pytorch(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    make, (entry, shape, dtype), expected = MODELS[name]
    model = make(torch).eval()
    x = torch.randn(shape) if dtype == "float32" else torch.randint(0, 11, shape)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
        wanted = model(x).numpy()
        trace = torch.jit.trace(model, x)
    mod, params = relay.frontend.from_pytorch(trace, [(entry, (shape, dtype))])
    assert mod["main"].params[0].name_hint == entry
    assert {p.name_hint for p in mod["main"].params[1:]} == set(params)
    assert all(name.startswith("aten::") for name in params)
    assert expected <= ops_of(mod["main"])
    np.testing.assert_allclose(evaluated(mod, params, kind, x.numpy())[0], wanted, rtol=1e-5, atol=1e-5)


def test_names_of_pytorch_are_counted() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(model, torch.ones(1, 4)), [("x", (1, 4))])
    assert list(params) == [
        "aten::linear_0.weight", "aten::linear_0.bias", "aten::linear_1.weight", "aten::linear_1.bias"
    ]  # fmt: skip
    assert "span=aten::relu_1:0:0" in str(mod["main"])


def test_a_gradient_of_an_imported_model() -> None:
    """As PyTorch's, of all parameters."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3), torch.nn.Sigmoid())
    x = torch.randn(2, 4)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(model.eval(), x), [("x", (2, 4))])
    _, (_, *found) = relay.create_executor("vm").evaluate(relay.transform.gradient(mod["main"]))(x.numpy(), **params)
    model(x).sum().backward()
    for mine, theirs in zip(found, model.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_what_is_no_scripted_module() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UserError, match="takes a traced or scripted module, got Linear"):
        relay.frontend.from_pytorch(torch.nn.Linear(2, 2), [("x", (1, 2))])


@pytest.mark.parametrize("freeze", [False, True])
def test_onnx(freeze: bool) -> None:
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((4, 3), "float32"), rng.standard_normal(3, "float32")
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        onnx.helper.make_node("Relu", ["h"], ["r"]),
        onnx.helper.make_node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=0),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, ["n", 4])], [value("y", 1, ["n"])],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
    )  # fmt: skip
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    mod, params = relay.frontend.from_onnx(proto, {"x": (2, 4)}, freeze_params=freeze)
    assert [p.name_hint for p in mod["main"].params] == (["x"] if freeze else ["x", "w", "b"])
    x = rng.standard_normal((2, 4), "float32")
    found = evaluated(mod, params, "graph", x)[0]
    np.testing.assert_allclose(found, np.maximum(x @ w + b, 0).mean(1), rtol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_keras(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((8, 8, 3), name="image"), keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.MaxPooling2D(2), keras.layers.Flatten(), keras.layers.Dense(5, activation="softmax"),
    ])  # fmt: skip
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 3), "float32")
    given = x.transpose(0, 3, 1, 2) if layout == "NCHW" else x
    mod, params = relay.frontend.from_keras(model, {"image": given.shape}, layout)
    assert list(params) == [f"_param_{k}" for k in range(1, 5)]
    found = evaluated(mod, params, "graph", given)[0]
    np.testing.assert_allclose(found, np.asarray(model(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [relax.op.dropout, relax.op.nn.dropout])
def test_dropout_of_the_graph_is_relays(op: Any) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op(x, 0.3))
        builder.emit_func_output(result)
    function = raised(builder.get()["main"], NAMES)
    tensor = relay.TensorType((2, 3), "float32")
    several = op is relax.op.nn.dropout  # the result and its mask
    assert ops_of(function) == {"nn.dropout"}
    typed = relay.transform.InferType()(IRModule.from_expr(function))["main"]
    assert typed.body.checked_type == (relay.TupleType((tensor, tensor)) if several else tensor)
