"""FuseOps and LowerToTir: which ops become one kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax import BlockBuilder, Call, Function, TensorStructInfo, Var, op
from pullback.relax.analysis import check_well_formed
from pullback.relax.transform import (
    CanonicalizeBindings,
    FuseOps,
    Gradient,
    InlineFunctions,
    JoinStep,
    LowerToTir,
    RaiseOps,
    Simplify,
    fuse_ops,
)
from pullback.schedule.choose import recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.group import Group, Machine
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from tests.driver.models import mlp_trainer_module
from tests.helpers import round_trip


def groups(module: IRModule, name: str = "main") -> list[str]:
    """What the function calls after fusion, in order."""
    fused = FuseOps()(module)
    check_well_formed(fused)
    round_trip(fused)
    calls = [b.value for b in fused[name].bindings if hasattr(b.value, "op")]
    return [getattr(c.op, "short", getattr(c.op, "name", "")) for c in calls]


def test_what_is_in_memory_in_any_case_is_scaled_where_it_is_read():
    """The product's elements are read by the sum: to write them once more, scaled, would be for nothing."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32"), g: R.Tensor((64,), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                d = R.multiply(y, g)
                total = R.sum(y, axis=[1], keepdims=True)
                z = R.subtract(d, total)
                R.output(z)
            return z

    assert groups(Before) == ["matmul", "fused_multiply_sum_subtract"]


def test_what_nobody_else_reads_is_scaled_where_it_is_made():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32"), g: R.Tensor((64,), "float32")):
            with R.dataflow():
                d = R.multiply(R.matmul(x, w), g)
                total = R.sum(d, axis=[1], keepdims=True)
                z = R.subtract(d, total)
                R.output(z)
            return z

    assert groups(Before) == ["fused_matmul_multiply", "fused_sum_subtract"]


def test_epilogue():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w) + b)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32")):
            cls = Expected
            with R.dataflow():
                y = cls.fused_matmul_add_relu(x, w, b)
                R.output(y)
            return y

        @R.function(private=True)
        def fused_matmul_add_relu(
            x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32")
        ) -> R.Tensor((2, 4), "float32"):
            R.func_attr({"primitive": True})
            with R.dataflow():
                lv = R.matmul(x, w)
                lv_1 = R.add(lv, b)
                y = R.nn.relu(lv_1)
                y_1 = y
                R.output(y_1)
            return y_1

    assert_structural_equal(FuseOps()(Before), Expected)


def test_movement_is_copied_into_every_reader():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                t = R.permute_dims(y)
                a = R.matmul(x, t)
                b = R.exp(t)
                R.output(a, b)
            return (a, b)

    assert groups(Module) == ["fused_matmul", "fused_exp"]
    fused = FuseOps()(Module)
    bodies = [f for f in fused.functions.values() if isinstance(f, Function) and f.attrs.get("primitive")]
    assert len(bodies) == 2
    for body in bodies:
        assert next(b.value.op.short for b in body.bindings) == "permute_dims"


def test_no_group_closes_a_cycle():
    """``exp`` and ``add`` cannot be one kernel: the matmul between them needs the one and is needed by the other."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), w: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                e = R.exp(x)
                m = R.matmul(e, w)
                t = R.permute_dims(m)
                s = R.matmul(t, w)
                y = R.add(e, s)
                R.output(y)
            return y

    names = groups(Module)
    assert names.index("exp") < names.index("matmul")
    assert len(names) == 3


def test_rows_are_one_kernel_and_two_matmuls_are_two():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 5), "float32"), v: R.Tensor((5, 5), "float32"), w: R.Tensor((5, 5), "float32")):
            with R.dataflow():
                a = R.matmul(x, v) + R.matmul(x, w)
                b = R.nn.softmax(a * 2.0)
                c = R.sum(b * b, axis=-1)
                R.output(c)
            return c

    names = groups(Module)
    assert sum("matmul" in n for n in names) == 2
    assert names[-1].startswith("fused_") and "softmax" in names[-1] and "sum" in names[-1]


def test_a_reduction_does_not_wait_for_another():
    """No kernel sums over rows and then over columns: the deviations join the mean that they are taken from."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((8, 64), "float32")):
            with R.dataflow():
                m = R.mean(x, axis=[1], keepdims=True)
                v = R.mean(R.square(x - m), axis=[1], keepdims=True)
                both = R.mean(v, axis=[0]) + R.mean(m, axis=[0])
                R.output(both)
            return both

    assert groups(Module) == ["fused_mean_subtract_square_mean", "fused_mean_mean_add"]


def test_sums_of_one_large_value_read_it_once():
    """Where their results are of the same axes; what they have in common otherwise is no reason."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((64, 96), "float32"), z: R.Tensor((64, 96), "float32"), s: R.Tensor((), "float32")):
            with R.dataflow():
                a = R.sum(x, axis=1)
                b = R.vecdot(x, x)
                c = R.max(x * s, axis=1)
                d = R.sum(x, axis=0)
                e = R.sum(z * s, axis=1)
                R.output(a, b, c, d, e)
            return (a, b, c, d, e)

    assert groups(Before) == ["fused_sum_vecdot_multiply_max", "sum", "fused_multiply_sum"]
    sources = np.random.default_rng(0).standard_normal((2, 64, 96)).astype("f")
    for mode in ("debug", "llvm"):
        vm = pullback.relax.VirtualMachine(pullback.compile(Before, mode), pullback.cpu())
        results = vm["main"](*map(pullback.nd.array, (*sources, np.float32(2))))
        x, z = sources.astype("d")
        expected = (x.sum(1), (x * x).sum(1), 2 * x.max(1), x.sum(0), 2 * z.sum(1))
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_the_update_joins_the_weight_gradient():
    module = JoinStep()(mlp_trainer_module())
    module = InlineFunctions()(RaiseOps()(module))
    module = IRModule({"__step": module["__step"]})
    fused = FuseOps()(CanonicalizeBindings()(Simplify()(CanonicalizeBindings()(module))))
    updates = [n for n in fused if n.startswith("fused_matmul_") and n.count("subtract")]
    matmuls = [n for n in fused if "matmul" in n]
    lowered = LowerToTir()(fused)
    assert len(updates) == 4  # one for each weight matrix
    assert not any(n.startswith("matmul") for n in lowered)  # every matmul has its neighbours with it
    assert len(matmuls) == 4 + 4 + 3  # forward, weight gradients, input gradients


def test_equal_kernels_are_one_function():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.matmul(a, w)
                c = R.reshape(b, (6,))
                R.output(c)
            return c

    lowered = LowerToTir()(FuseOps()(Module))
    assert [n for n in lowered if n != "main"] == ["matmul"]
    assert [b.value.op.short for b in lowered["main"].bindings if hasattr(b.value, "op")] == [
        "call_tir",
        "call_tir",
        "reshape",
    ]


def whole_search(fusion: fuse_ops._Fusion, candidate: fuse_ops._Set) -> bool:
    """What ``makes_cycle`` says, by looking at everything that can be reached."""
    wanted = fusion.external_reads(candidate)
    reached = {r for m in candidate.members for r in fusion.readers[m]} - candidate.members
    while True:
        more = {m for k in reached for m in fusion.group_of[k].members}
        more |= {r for k in more for r in fusion.readers[k]} - candidate.members
        if more <= reached:
            return bool(reached & wanted)
        reached |= more


@pytest.mark.parametrize("seed", range(12))
def test_cycles_are_found_by_the_bounded_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On random graphs, every question gets the answer of the whole search; what no cycle forbids is joined at random,
    so that groups reach far."""
    rng, asked = np.random.default_rng(seed), []
    bounded = fuse_ops._Fusion.makes_cycle

    def compared(self: fuse_ops._Fusion, candidate: fuse_ops._Set) -> bool:
        asked.append(bounded(self, candidate))
        assert asked[-1] == whole_search(self, candidate)
        return asked[-1]

    monkeypatch.setattr(fuse_ops._Fusion, "makes_cycle", compared)
    monkeypatch.setattr(fuse_ops._Fusion, "recognized", lambda *_: rng.random() < 0.6)
    x = Var("x", TensorStructInfo((4,)))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for _ in range(60):
                recent = values[-1 - int(min(len(values) - 1, rng.geometric(0.2)))]
                values.append(builder.emit(op.add(recent, values[int(rng.integers(len(values)))])))
            out = builder.emit_output(values[-1])
        builder.emit_func_output(out)
    function = builder.get()["main"]
    fusion = fuse_ops._Fusion(function, IRModule({"main": function}), Machine())
    fusion.form()
    groups = set(fusion.group_of.values())
    assert len(list(fusion.in_order(list(groups)))) == len(groups), "the groups can be put in order"
    assert any(asked) and not all(asked)


@pytest.mark.parametrize("seed", range(4))
def test_how_far_groups_reach(seed: int) -> None:
    rng, groups, count = np.random.default_rng(seed), [], 37
    reach = fuse_ops._Reach(count)
    for _ in range(60):
        groups.append(sorted(map(int, rng.integers(0, count, 2))))
        reach.add(*groups[-1])
        for number in range(count):
            assert reach.of(number) == max([number, *(last for first, last in groups if first <= number)])


def test_layers_that_are_alike_are_recognized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    asked = fuse_ops._Fusion.asked

    def counted(self: fuse_ops._Fusion, order: list[int], outputs: list[int]) -> bool:
        counts[-1] += 1
        return asked(self, order, outputs)

    monkeypatch.setattr(fuse_ops._Fusion, "asked", counted)
    for layers in (6, 12, 24):
        counts.append(0)
        x = Var("x", TensorStructInfo((8, 16)))
        weights = [Var(f"w{k}", TensorStructInfo((16, 16))) for k in range(layers)]
        builder = BlockBuilder()
        with builder.function("main", [x, *weights]):
            with builder.dataflow():
                value = x
                for w in weights:
                    value = builder.emit(op.nn.relu(op.add(op.matmul(value, w), 1.0)))
                out = builder.emit_output(value)
            builder.emit_func_output(out)
        FuseOps()(builder.get())
    assert 0 < counts[0] == counts[1] == counts[2]


def _many(kind: str, count: int) -> IRModule:
    """A function with an op of many operands, or a value that many ops read."""
    x = Var("x", TensorStructInfo((8, 16)))
    width = 16 if kind == "sums" else 8
    weights = [Var(f"w{k}", TensorStructInfo((16, width + k % 7 if kind == "widths" else width))) for k in range(count)]
    builder = BlockBuilder()
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            parts = [builder.emit(op.matmul(x, w)) for w in weights]
            if kind == "sums":
                parts = [builder.emit(op.sum(op.multiply(x, p), axis=[1])) for p in parts]
            elif kind == "elementwise":
                parts = [builder.emit(op.tanh(p)) for p in parts]
            value = builder.emit(op.stack(parts, 0) if kind in ("stack", "sums") else op.concat(parts, 1))
            out = builder.emit_output(op.square(value))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("kind", ["products", "widths", "elementwise", "stack", "sums"])
def test_the_work_grows_with_the_number_of_bindings(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work: the operands of all ops that schedules are asked about, and of all candidates that are looked at."""
    work = []
    asked, accepted = fuse_ops._Fusion.asked, fuse_ops._Fusion.accepted

    def counted(self: fuse_ops._Fusion, order: list[int], outputs: list[int]) -> bool:
        work[-1] += sum(1 + len(self.reads[k]) for k in order)
        return asked(self, order, outputs)

    def looked_at(self: fuse_ops._Fusion, candidate: fuse_ops._Set) -> bool:
        work[-1] += 1
        return accepted(self, candidate)

    monkeypatch.setattr(fuse_ops._Fusion, "asked", counted)
    monkeypatch.setattr(fuse_ops._Fusion, "accepted", looked_at)
    for count in (25, 50, 100, 200):
        work.append(0)
        FuseOps()(_many(kind, count))
    assert all(later <= 2.3 * earlier for earlier, later in itertools.pairwise(work)), work


def test_of_many_alike_one_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A concatenation takes no product: what it would not do with one it would not do with the others."""
    declined = []
    asked = fuse_ops._Fusion.asked

    def counted(self: fuse_ops._Fusion, order: list[int], outputs: list[int]) -> bool:
        answer = asked(self, order, outputs)
        declined.append(not answer)
        return answer

    monkeypatch.setattr(fuse_ops._Fusion, "asked", counted)
    FuseOps()(_many("products", 20))
    assert sum(declined) <= 3


@pytest.mark.parametrize(
    ("mode", "kernels"), [("clip", ["fused_take_multiply_sum"]), ("raise", ["take", "fused_multiply_sum"])]
)
def test_a_take_that_makes_its_indices_valid_is_joined(mode, kernels):
    """One that looks at them while it runs is not: nothing may be computed before it has."""
    builder = BlockBuilder()
    infos = {"x": TensorStructInfo((4, 9)), "i": TensorStructInfo((2, 30), "int64"), "w": TensorStructInfo((2, 30))}
    x, i, w = (Var(name, info) for name, info in infos.items())
    with builder.function("main", [x, i, w]):
        taken = builder.emit(op.multiply(builder.emit(op.take(x, i, 1, mode)), w))
        builder.emit_func_output(builder.emit(op.sum(taken, 1)))
    assert groups(builder.get()) == kernels


@pytest.mark.parametrize(
    ("prologue", "kernels"),
    [
        (lambda whole, half, low: op.nn.relu(whole), 1),
        (lambda whole, half, low: op.nn.pad(op.nn.relu(whole), [0, 0, 0, 0, 1, 1, 0, 0]), 1),
        (lambda whole, half, low: op.concat([half, half], axis=1), 2),
        (lambda whole, half, low: op.nn.relu(op.concat([half, op.nn.relu(half)], axis=1)), 2),
        (lambda whole, half, low: op.repeat(low, 2, axis=2), 2),
        (lambda whole, half, low: op.nn.relu(op.tile(half, [1, 2, 1, 1])), 2),
    ],
    ids=["relu", "padding", "joined", "joined, then relu", "repeated", "tiled, then relu"],
)
def test_a_contraction_reads_what_is_joined_or_repeated_from_memory(prologue, kernels):
    """Its tasks would look for each element's place several times. Padding and elementwise ops are computed there."""
    shapes = {"whole": (2, 8, 8, 8), "half": (2, 4, 8, 8), "low": (2, 8, 4, 8)}
    images = [Var(name, TensorStructInfo(shape, "float32")) for name, shape in shapes.items()]
    w = Var("w", TensorStructInfo((5, 8, 3, 3), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [*images, w]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.conv2d(prologue(*images), w, padding=1))
        builder.emit_func_output(out)
    made = groups(builder.get())
    assert len(made) == kernels, made


@pytest.mark.parametrize("batch", [1, 3])
def test_a_size_of_one_is_no_hindrance(batch):
    """Along it elementwise ops read the element at 0, which is the one at their own place."""
    x, w = Var("x", TensorStructInfo((batch, 8, 6, 6), "float32")), Var("w", TensorStructInfo((4, 8, 1, 1), "float32"))
    b = Var("b", TensorStructInfo((4, 1, 1), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.relu(op.add(op.nn.conv2d(x, w), b)))
        builder.emit_func_output(out)
    assert groups(builder.get()) == ["fused_conv2d_add_relu"]


def test_the_update_joins_the_gradient_of_a_depthwise_weight():
    x, d = (Var(name, TensorStructInfo((2, 8, 6, 6), "float32")) for name in "xd")
    w = Var("w", TensorStructInfo((8, 1, 3, 3), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, w, d]):
        with builder.dataflow():
            y = op.nn.conv2d(x, w, padding=1, groups=8)
            out = builder.emit_output(op.sum(op.multiply(y, d)))
        builder.emit_func_output(out)
    module = Gradient("main", require_grads=[w])(builder.get())
    builder = BlockBuilder(module)
    with builder.function("step", [x, w, d]):
        with builder.dataflow():
            both = builder.emit(Call(module.get_global_var("main_adjoint"), (x, w, d)))
            out = builder.emit_output(op.subtract(w, op.multiply(both[1][0], 0.1)))
        builder.emit_func_output(out)
    made: dict[str, Group] = {}
    lower_function(prepare(builder.get()), "step", {}, Target("llvm"), made)
    assert isinstance(recognize(made["fused_conv2d_weight_multiply_subtract"]), Contraction)
