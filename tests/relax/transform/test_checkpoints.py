"""Checkpoints in a function: Gradient computes what lies between the marks once more, and compiled code does too."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.driver.keys import function_key
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.testing import nn
from pullback.relax.transform import Gradient
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target


@I.ir_module
class Marked:
    @R.function
    def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            x_scp = R.grad.start_checkpoint(x)
            lv1 = R.exp(x_scp)
            lv2 = R.sin(lv1)
            lv3 = R.multiply(lv2, lv1)
            lv3_ecp = R.grad.end_checkpoint(lv3)
            lv4 = R.multiply(lv3_ecp, y)
            gv = R.sum(lv4)
            R.output(gv)
        return gv


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            lv1 = R.exp(x)
            lv2 = R.sin(lv1)
            lv3 = R.multiply(lv2, lv1)
            lv4 = R.multiply(lv3, y)
            gv = R.sum(lv4)
            R.output(gv)
        return gv


X, Y = np.linspace(-1, 1, 9, dtype="float32").reshape(3, 3), np.linspace(2, 3, 9, dtype="float32").reshape(3, 3)


def values(module: IRModule, name: str, *arrays: np.ndarray, target: str = "llvm") -> list[np.ndarray]:
    flat: list[np.ndarray] = []

    def collect(value) -> None:
        if hasattr(value, "numpy"):
            flat.append(value.numpy())
        else:
            for part in value:
                collect(part)

    collect(pullback.compile(module, target).function(name)(*arrays))
    return flat


def bindings(module: IRModule, name: str = "main_adjoint") -> dict[str, str]:
    return {b.var.name: str(b.value) for b in module[name].bindings}


def test_the_adjoint_computes_again_what_lies_between():
    found = bindings(Gradient("main")(Marked))
    assert not any("checkpoint" in value for value in found.values())
    assert found["lv1_cp"] == "R.exp(x)" and found["lv2_cp"] == "R.sin(lv1_cp)"
    assert "lv3_cp" not in found and "lv4_cp" not in found, "what ends is kept, what is outside too"
    order = list(found)
    assert order.index("gv_adjoint") < order.index("lv1_cp") < order.index("lv1_adjoint")
    readers = [value for name, value in found.items() if name.endswith(("adjoint", "adjoint_1")) and "lv1" in value]
    assert all("lv1_cp" in value or "lv1_adjoint" in value for value in readers)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_the_gradient_is_that_without_marks(target):
    for name, module in (("main", Marked), ("main_adjoint", Gradient("main")(Marked))):
        plain = values(Plain if name == "main" else Gradient("main")(Plain), name, X, Y, target=target)
        for a, b in zip(values(module, name, X, Y, target=target), plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    e = np.exp(X.astype("float64"))
    exact = Y * (np.cos(e) * e * e + np.sin(e) * e)
    np.testing.assert_allclose(values(Gradient("main")(Marked), "main_adjoint", X, Y)[1], exact, rtol=1e-5)


def test_marks_of_several_inputs_and_parts():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                x_scp = R.grad.start_checkpoint(x)
                y_scp = R.grad.start_checkpoint(y)
                a = R.tanh(x_scp)
                t = R.split(a, [1], 1)
                b = R.concat([t[1], t[0]], 1)
                c = R.multiply(b, y_scp)
                c_ecp = R.grad.end_checkpoint(c)
                d_scp = R.grad.start_checkpoint(c_ecp)
                d = R.exp(d_scp)
                e = R.multiply(d, d)
                e_ecp = R.grad.end_checkpoint(e)
                gv = R.sum(e_ecp)
                R.output(gv)
            return gv

    found = bindings(Gradient("main")(Module))
    assert {"a_cp", "b_cp", "d_cp"} <= set(found) and not {"c_cp", "e_cp"} & set(found)
    assert found["d_cp"] == "R.exp(c)", "what ended is where the next begins"
    shuffled = np.tanh(X.astype("float64"))[:, [1, 2, 0]]
    de = 2 * np.exp(2 * shuffled * Y)
    _, dx, dy = values(Gradient("main")(Module), "main_adjoint", X, Y)
    np.testing.assert_allclose(dy, de * shuffled, rtol=1e-4)
    np.testing.assert_allclose(dx, (de * Y)[:, [2, 0, 1]] * (1 - np.tanh(X.astype("float64")) ** 2), rtol=1e-4)


def test_no_grad_stops():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                a = R.grad.no_grad(R.exp(x))
                gv = R.sum(R.multiply(a, x))
                R.output(gv)
            return gv

    _, dx = values(Gradient("main")(Module), "main_adjoint", X)
    np.testing.assert_allclose(dx, np.exp(X), rtol=1e-6)


def deep_model(segments: int | None, last: bool = False) -> IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(64, 64), nn.ReLU())])
        data = nn.Placeholder((128, 64), name="data")
        out = model(data) if segments is None else nn.emit_checkpoint_sequential(list(model), segments, data, last)
        builder.emit_func_output(nn.emit(R.sum(R.multiply(out, out))), params=[data, *model.parameters()])
    return builder.get()


def memory(module: IRModule) -> int:
    names = [p.name for p in module["main"].params[1:]]
    module = Gradient("main", require_grads=names)(module)
    return plan_function(prepare(module), "main_adjoint", {}, Target("llvm")).arena_bytes


def test_compiled_code_keeps_less():
    plain, marked = memory(deep_model(None)), memory(deep_model(4))
    assert marked < 0.8 * plain, (marked, plain)


def test_copies_stay_apart_in_text_and_have_keys_of_their_own():
    module = Gradient("main")(Marked)
    assert_structural_equal(from_source(module.script()), module)
    text = module.script()
    renamed = from_source(text.replace("lv1_cp", "lv1_again").replace("lv2_cp", "lv2_again"))
    assert_structural_equal(renamed, module)
    keys = {function_key(m, "main_adjoint", {}, Target("llvm")) for m in (module, renamed)}
    assert len(keys) == 2


def test_a_model_with_marks_trains_as_without():
    results = []
    for segments in (None, 3):
        module = deep_model(segments)
        params = [np.random.default_rng(k).normal(size=p.struct_info.shape, scale=0.1).astype("float32")
                  for k, p in enumerate(module["main"].params)]  # fmt: skip
        results.append(values(Gradient("main")(module), "main_adjoint", *params))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_marks_in_a_loop_change_nothing(target):
    """There `checkpoint_every` says what is computed again."""
    text = (
        "@R.function\ndef main(x: R.Tensor((3, 3), 'float32'), y: R.Tensor((3, 3), 'float32')):\n    z = x\n"
        "    for i in R.range(3):\n        s = R.grad.start_checkpoint(z)\n        a = R.sin(s)\n"
        "        z = R.grad.end_checkpoint(R.multiply(a, y))\n    return R.sum(z)\n"
    )
    plain = text.replace("R.grad.start_checkpoint", "").replace("R.grad.end_checkpoint", "")
    results = [
        values(Gradient("main")(IRModule({"main": from_source(t)})), "main_adjoint", X, Y, target=target)
        for t in (text, plain)
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
