"""Rematerialize: what is computed again, what is not, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.driver import native, pipeline
from pullback.driver.artifact import Artifact, Layout
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.training.optimizer import Adam
from pullback.relax.transform import Gradient
from pullback.relax.transform.rematerialize import Rematerialize
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from tests.driver.models import mlp_trainer_module, step_arguments
from tests.properties.random_graphs import Maker


def test_a_mask_is_computed_where_it_is_read():
    @I.ir_module
    class Before:
        @R.function
        def f_adjoint(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                z = R.matmul(x, w)
                h = R.nn.relu(z)
                y = R.matmul(h, w)
                loss = R.sum(y)
                dh = R.matmul(y, w)
                dw = R.matmul(R.permute_dims(h), y)
                mask = R.greater(h, R.const(0.0, "float32"))
                dz = R.where(mask, dh, R.const(0.0, "float32"))
                R.output(loss, dw, dz)
            return (loss, (dw, dz))

    @I.ir_module
    class Expected:
        @R.function
        def f_adjoint(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                z = R.matmul(x, w)
                h = R.nn.relu(z)
                y = R.matmul(h, w)
                loss = R.sum(y)
                dh = R.matmul(y, w)
                dw = R.matmul(R.permute_dims(h), y)
                h_cp = R.reshape(h, (8, 64))
                mask = R.greater(h_cp, R.const(0.0, "float32"))
                dz = R.where(mask, dh, R.const(0.0, "float32"))
                R.output(loss, dw, dz)
            return (loss, (dw, dz))

    assert_structural_equal(Rematerialize()(Before), Expected)


def test_a_cheap_value_of_the_forward_part_is_computed_again():
    """Of ``h = (x - mean) * scale`` only ``x``, which is an argument, and the small factors have to be kept."""

    @I.ir_module
    class Before:
        @R.function
        def f_adjoint(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                mean = R.mean(x, axis=-1, keepdims=True)
                d = R.subtract(x, mean)
                h = R.multiply(d, R.const(3.0, "float32"))
                loss = R.sum(R.matmul(h, w))
                dy = R.exp(w)
                dx = R.multiply(h, dy)
                R.output(loss, dx)
            return (loss, (dx,))

    @I.ir_module
    class Expected:
        @R.function
        def f_adjoint(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                mean = R.mean(x, axis=-1, keepdims=True)
                d = R.subtract(x, mean)
                h = R.multiply(d, R.const(3.0, "float32"))
                loss = R.sum(R.matmul(h, w))
                dy = R.exp(w)
                mean_cp = R.reshape(mean, (64, 1))
                d_cp = R.subtract(x, mean_cp)
                h_cp = R.multiply(d_cp, R.const(3.0, "float32"))
                dx = R.multiply(h_cp, dy)
                R.output(loss, dx)
            return (loss, (dx,))

    assert_structural_equal(Rematerialize()(Before), Expected)


UNCHANGED = {
    "dear: the value is an exponential": "h = R.exp(z)",
    "two large arguments": "h = R.add(z, R.matmul(x, x))",
    "the argument would have to be kept": "h = R.add(z, R.const(1.0, 'float32'))",
}


@pytest.mark.parametrize("line", UNCHANGED.values(), ids=UNCHANGED)
def test_what_is_saved_stays(line):
    module = from_source(f"""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def f_adjoint(x: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            z = R.matmul(x, x)
            {line}
            loss = R.sum(R.matmul(h, x))
            dx = R.multiply(h, R.exp(x))
            R.output(loss, dx)
        return (loss, (dx,))
""")
    module = pipeline.CanonicalizeBindings()(module)
    assert_structural_equal(Rematerialize()(module), module)


def test_other_functions_stay():
    graph = Maker(0, None).make()
    assert Rematerialize()(graph.module)["main"] is graph.module["main"]


class _Nothing:
    name = "nothing"

    def __call__(self, module: IRModule) -> IRModule:
        return module


def both(module: IRModule, name: str):
    """The native function with and without the pass, and their plans."""
    found = []
    for step in (Rematerialize, _Nothing):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "Rematerialize", step)
            plan = plan_function(prepare(module), name, {}, Target("llvm"))
        code = native.object_code(plan.host, plan.kernels, Target("llvm"))
        found.append((plan, native.NativeFunction(name, Artifact(Layout.of(plan), tuple(plan.constants), code))))
    return found


def test_a_step_has_the_same_bits_and_needs_less_memory():
    module = mlp_trainer_module((48, 64, 64, 64, 10), 32, Adam(0.01))
    (less, again), (more, saved) = both(module, "__step")
    assert less.arena_bytes < more.arena_bytes and len(less.steps) <= len(more.steps)
    results = []
    for function in (again, saved):
        tensors = step_arguments(module)
        call = function.call(tensors)
        results.append([call()[0].numpy().copy() for _ in range(3)] + [t.numpy() for t in tensors])
    for a, b in zip(*results, strict=True):
        assert a.tobytes() == b.tobytes()


def test_one_value_is_saved_for_several_that_follow_from_it():
    """What goes into gelu is enough for its value, which the next weight's gradient reads, and for its derivative."""
    layers = "\n            ".join(f"h{k + 1} = R.nn.gelu(R.add(R.matmul(h{k}, w), b))" for k in range(4))
    module = from_source(f"""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def f(h0: R.Tensor((256, 512), "float32"), w: R.Tensor((512, 512), "float32"), b: R.Tensor((512,), "float32")):
        with R.dataflow():
            {layers}
            loss = R.mean(h4 * h4)
            R.output(loss)
        return loss
""")
    (less, again), (more, saved) = both(Gradient("f")(module), "f_adjoint")
    large = [[p for p in plan.places if p.role == "saved" and p.nbytes == 4 * 256 * 512] for plan in (less, more)]
    assert (len(large[0]), len(large[1])) == (4, 7)
    rng = np.random.default_rng(0)
    tensors = [pullback.tensor(rng.standard_normal(s, np.float32) / 16) for s in [(256, 512), (512, 512), 512]]
    for a, b in zip(again.call(tensors)(), saved.call(tensors)(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_random_graphs_have_the_same_bits():
    changed = 0
    for seed in range(30):
        graph = Maker(seed, None).make()
        (less, again), (more, saved) = both(Gradient("main")(graph.module), "main_adjoint")
        changed += str(less.host) != str(more.host)
        tensors = [pullback.tensor(a) for a in graph.inputs]
        for a, b in zip(again.call(tensors)(), saved.call(tensors)(), strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes(), f"graph {seed}"
    assert changed > 0
