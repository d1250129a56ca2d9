"""The fragments of the reference's page on relay's build module (`004`), with the package renamed and nothing else.

Lines are those of the document.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import pullback as tvm


def test_simple_example() -> None:
    """Lines 47-57. The printed result there is an NDArray; here it is a tensor of the same value."""
    x = tvm.relay.var("x", tvm.relay.TensorType([1], dtype="float32"))
    expr = tvm.relay.add(x, tvm.relay.Constant(tvm.nd.array(np.array([1], dtype="float32"))))
    executor = tvm.relay.create_executor(
        kind="vm", mod=tvm.IRModule.from_expr(tvm.relay.Function([x], expr))
    )  # fmt: skip
    result = executor.evaluate()(np.array([2], dtype="float32"))
    assert isinstance(result, tvm.nd.NDArray) and result.shape == (1,)
    np.testing.assert_array_equal(result.numpy(), np.array([3.0], dtype="float32"))
    np.testing.assert_array_equal(result.asnumpy(), result.numpy())


def test_signature_of_create_executor() -> None:
    """Line 31: kind="debug", mod=None, device=None, target="llvm", params=None."""
    parameters = list(inspect.signature(tvm.relay.create_executor).parameters.values())[:5]
    assert [(p.name, p.default) for p in parameters] == [
        ("kind", "debug"), ("mod", None), ("device", None), ("target", "llvm"), ("params", None),
    ]  # fmt: skip


def test_binding_parameters_by_name() -> None:
    """Lines 6-15 and 61-94."""
    _build_module = tvm.relay.build_module
    x, w = tvm.relay.var("x", shape=(2, 3)), tvm.relay.var("w", shape=(4, 3))
    func = tvm.relay.Function([x, w], tvm.relay.nn.dense(x, w))
    params = {"w": np.arange(12, dtype="float32").reshape(4, 3)}
    bound = _build_module.bind_params_by_name(func, params)
    assert [p.name_hint for p in bound.params] == ["x"]
    by_name = tvm.get_global_func("relay.build_module.BindParamsByName")
    inputs = {name: tvm.relay.Constant(tvm.nd.array(value)) for name, value in params.items()}
    tvm.ir.assert_structural_equal(by_name(func, inputs), bound)

    target, device, mod = "llvm", None, tvm.IRModule.from_expr(func)
    raw_targets = tvm.target.Target.canon_multi_target(target)
    for device in (tvm.cpu(), None):
        if device is not None:
            assert device.device_type == raw_targets[0].get_target_device_type()
        else:
            # Derive the default device from the first target.
            device = tvm.nd.device(raw_targets[0].get_target_device_type(), 0)
        assert device == tvm.cpu()
    if params is not None:
        mod = tvm.IRModule.from_expr(_build_module.bind_params_by_name(mod["main"], params))
    data = np.ones((2, 3), "float32")
    found = tvm.relay.create_executor(mod=mod, device=device, target=target).evaluate()(data)
    np.testing.assert_allclose(found.numpy(), data @ params["w"].T)


def assert_shapes_match(tru: Any, est: Any) -> None:
    """Verfiy whether the shapes are equal"""
    if tru.shape != est.shape:
        msg = "Output shapes {} and {} don't match"
        raise AssertionError(msg.format(tru.shape, est.shape))


@pytest.mark.parametrize("kind", ["graph", "vm", "aot", "debug"])
def test_a_traced_model(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines 98-175; line 142 says graph, lines 33-36 name the others."""
    torch = pytest.importorskip("torch")

    class Conv2D(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 6, 7, bias=False)
            self.softmax = torch.nn.Softmax(dim=1)

        def forward(self, *args: Any) -> Any:
            return self.softmax(self.conv(args[0]))

    input_shape = [1, 3, 10, 10]
    baseline_model = Conv2D().float().eval()
    input_data = torch.rand(input_shape).float()
    baseline_input = [input_data]
    with torch.no_grad():
        baseline_outputs = baseline_model(*[input.clone() for input in baseline_input])
    if isinstance(baseline_outputs, tuple):
        baseline_outputs = tuple(out.cpu().numpy() for out in baseline_outputs)
    else:
        baseline_outputs = (baseline_outputs.cpu().numpy(),)
    trace = torch.jit.trace(baseline_model, [input.clone() for input in baseline_input])
    trace = trace.float().eval()
    input_names = [f"input{idx}" for idx, _ in enumerate(baseline_input)]
    input_shapes = list(zip(input_names, [inp.shape for inp in baseline_input]))  # noqa: B905
    mod, params = tvm.relay.frontend.from_pytorch(trace, input_shapes, custom_convert_map=None)
    print(mod["main"])
    for arg in mod["main"].params[: len(input_names)]:
        assert arg.name_hint in input_names
    compiled_input = dict(zip(input_names, [inp.clone().cpu().numpy() for inp in baseline_input]))  # noqa: B905
    assert capsys.readouterr().out == PRINTED
    assert list(params) == ["aten::_convolution_0.weight"]

    targets = ["llvm"]
    # targets = ["llvm", "cuda"]
    check_correctness = True
    rtol = 1e-5
    atol = 1e-5
    expected_ops = ["nn.conv2d"]
    for target in targets:
        if not tvm.runtime.enabled(target):
            continue
        dev = tvm.device(target, 0)
        executor = tvm.relay.create_executor(
            kind, mod=mod, device=dev, target=target, params=params
        ).evaluate()  # fmt: skip
        result = executor(**compiled_input)
        if not isinstance(result, list):
            result = [result]

        for i, baseline_output in enumerate(baseline_outputs):
            output = result[i].asnumpy()
            assert_shapes_match(baseline_output, output)
            if check_correctness:
                np.testing.assert_allclose(baseline_output, output, rtol=rtol, atol=atol)

        def visit(op: Any) -> None:
            if isinstance(op, tvm.ir.op.Op):  # noqa: SIM102
                if op.name in expected_ops:
                    expected_ops.remove(op.name)

        tvm.relay.analysis.post_order_visit(mod["main"].body, visit)

        if expected_ops:
            msg = "TVM Relay do not contain expected ops {}"
            raise AssertionError(msg.format(expected_ops))


# Lines 138-141.
PRINTED = """\
fn (%input0: Tensor[(1, 3, 10, 10), float32] /* span=aten::_convolution_0.input0:0:0 */, \
%aten::_convolution_0.weight: Tensor[(6, 3, 7, 7), float32] /* span=aten::_convolution_0.weight:0:0 */) {
  %0 = nn.conv2d(%input0, %aten::_convolution_0.weight, padding=[0, 0, 0, 0], channels=6, kernel_size=[7, 7]) \
/* span=aten::_convolution_0:0:0 */;
  nn.softmax(%0, axis=1) /* span=aten::softmax_0:0:0 */
}
"""
