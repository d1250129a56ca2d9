"""shard_draws: ranks draw for their rows what one process draws for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir import IRModule, ShapeError, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var
from pullback.relax.expr import Call, Function
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.regions import regions
from pullback.relax.transform import AddRandomState, Gradient, InlineFunctions
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.shard_draws import shard_draws
from pullback.runtime.ranks import run_local
from pullback.script import ir as I
from pullback.script import relax as R

W = TensorStructInfo((16, 16), "float64")
STATE = np.array([3, 11], np.uint64)


def module_of(model: Callable[..., Any], shape: tuple[Any, ...]) -> IRModule:
    """``main(x, w, random_state)`` = the sum of what the model makes of x and w."""
    params = [Var("x", TensorStructInfo(shape, "float64")), Var("w", W)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(ops.sum(ops.square(model(*params)))))
    return AddRandomState("main")(InlineFunctions()(builder.get()))


def sharded(module: IRModule, ranks: int) -> IRModule:
    result = module.copy()
    result["main"] = shard_draws(module["main"], ["x"], ranks)
    return result


def adjoint(module: IRModule) -> IRModule:
    return Gradient("main", list(module["main"].params[:2]))(module)


def calls(function: Function) -> list[str]:
    """The names of the ops, those in regions too."""
    found = []
    for binding in function.bindings:
        value: Any = binding.value
        if isinstance(value, Call):
            found.append(value.op.short)
            for _, region in regions(value):
                found += calls(region)
    return found


def recurrent(x: Any, w: Any) -> Any:
    """Over (rows, steps, 16), with a mask for each step and one that all steps share."""
    h = R.sum(x, 1)
    keeps = R.dropout(R.ones_like(h), 0.3)

    def step(h: Any, row: Any) -> Any:
        h = R.dropout(R.tanh(row + R.matmul(h, w)), 0.3) * keeps
        return (h,), (h,)

    (last,), (each,) = R.scan(step, (h,), (R.permute_dims(x, (1, 0, 2)),))
    return R.concat([R.dropout(R.permute_dims(each, (1, 0, 2)), 0.2), R.expand_dims(last, 1)], 1)


def branching(x: Any, w: Any) -> Any:
    return R.cond(R.sum(w) > 0, lambda: R.dropout(x, 0.5) * 3.0, lambda: R.dropout(R.matmul(R.dropout(x), w), 0.2))


def noisy(x: Any, w: Any) -> Any:
    share = R.random.uniform((x.shape[0], 1), dtype="float64")
    return x + R.random.normal(x.shape, 0.0, 0.1, dtype="float64") * share


MODELS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "input": (lambda x, w: R.matmul(R.dropout(x, 0.25), w), (16,)),
    "several": (lambda x, w: R.dropout(R.tanh(R.matmul(R.dropout(x, 0.25), w)), 0.5), (16,)),
    "with its mask": (lambda x, w: R.nn.dropout(R.matmul(x, w), 0.3)[0] + R.nn.dropout(x, 0.6)[1], (16,)),
    "no whole groups": (lambda x, w: R.dropout(R.strided_slice(x, [1], [0], [5]), 0.5), (16,)),
    "rows and steps in one": (
        lambda x, w: R.reshape(R.dropout(R.matmul(R.reshape(x, (-1, 16)), w), 0.3), (-1, 7, 16)), (7, 16),
    ),
    "rows last": (lambda x, w: R.dropout(R.permute_dims(R.matmul(x, w), (1, 0)), 0.3), (16,)),
    "rows in the middle": (lambda x, w: R.dropout(R.permute_dims(x, (1, 0, 2)), 0.3), (3, 16)),
    "weights": (lambda x, w: R.matmul(x, R.dropout(w, 0.3)), (16,)),
    "channels": (lambda x, w: x * R.dropout(R.ones_like(R.sum(x, 2, True)), 0.5), (6, 5)),
    "noise": (noisy, (16,)),
    "one for all rows": (lambda x, w: x * R.random.uniform((16,), dtype="float64"), (16,)),
    "images": (lambda x, w: R.image.random_crop(R.image.random_flip(x), (4, 4), 1), (2, 4, 4)),
    "recurrent": (recurrent, (5, 16)),
    "branches": (branching, (16,)),
}  # fmt: skip


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("ranks, rows", [(2, 4), (3, 1)])
@pytest.mark.parametrize(
    "name, symbolic", [(n, s) for n in MODELS for s in (False, True) if (n, s) != ("noise", False)]
)
def test_ranks_give_what_one_process_gives(name, ranks, rows, symbolic, target):
    model, rest = MODELS[name]
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(ranks * rows, *rest)), rng.normal(size=(16, 16)) / 4
    loss, (dx, dw) = evaluate(adjoint(module_of(model, x.shape)), "main_adjoint", [x, w, STATE])
    own = adjoint(sharded(module_of(model, (tir.Var("n") if symbolic else rows, *rest)), ranks))
    assert ("ccl.rank" in calls(own["main"])) == (name not in ("weights", "one for all rows"))

    def run(rank: int) -> Any:
        loss, (dx, dw) = compiled(x[rank * rows : (rank + 1) * rows], w, STATE)
        return loss.numpy(), (dx.numpy(), dw.numpy())

    compiled = pullback.compile(own, target)["main_adjoint"]
    found = run_local(ranks, run)
    np.testing.assert_allclose(sum(f[0] for f in found), loss, rtol=1e-10)
    np.testing.assert_allclose(np.concatenate([f[1][0] for f in found]), dx, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sum(f[1][1] for f in found), dw, rtol=1e-9, atol=1e-12)


def test_the_rank_is_asked_for_once():
    names = calls(sharded(module_of(recurrent, (4, 5, 16)), 2)["main"])
    assert names.count("ccl.rank") == 1 and names.count("random.shard") == 3 and "dropout" not in names


def test_alone_and_without_draws_nothing_changes():
    drawing, still = (module_of(m, (4, 16))["main"] for m in (MODELS["input"][0], lambda x, w: R.matmul(x, w)))
    assert shard_draws(drawing, ["x"], 1) is drawing
    assert shard_draws(still, ["x"], 3) is still


def test_recursive_functions():
    """Of a symbolic size: each call draws for the rank's rows."""

    @I.ir_module
    class Again:
        @R.function
        def again(
            x: R.Tensor(("n", 16), "float64"), w: R.Tensor((16, 16), "float64"), k: R.Tensor((), "int64")
        ) -> R.Tensor(("n", 16), "float64"):
            if k > R.const(0, "int64"):
                z = Again.again(R.dropout(x, p=0.3), w, k - R.const(1, "int64"))
                y = R.tanh(R.matmul(z, w)) + x
            else:
                y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor(("n", 16), "float64"), w: R.Tensor((16, 16), "float64")):
            return R.sum(R.square(Again.again(x, w, R.const(3, "int64"))))

    module = AddRandomState("main")(Again)
    whole = IRModule({"main": inline_calls(module["main"], module)})
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(6, 16)), rng.normal(size=(16, 16)) / 4
    expected = evaluate(whole, "main", [x, w, STATE])
    own = IRModule({"main": shard_draws(whole["main"], ["x"], 3)})
    assert "recurse" in calls(own["main"]) and "random.shard" in calls(own["main"])
    found = run_local(3, lambda rank: evaluate(own, "main", [x[2 * rank : 2 * rank + 2], w, STATE]))
    np.testing.assert_allclose(sum(found), expected, rtol=1e-10)


def test_what_several_inputs_have_rows():
    params = [Var(n, TensorStructInfo((4, 16), "float64")) for n in "xyw"]
    builder = BlockBuilder()
    with builder.function("main", params):
        x, y, w = params  # w has four rows by chance
        builder.emit_func_output(Tuple(tuple(builder.emit(R.dropout(v)) for v in (x + y, w))))
    module = AddRandomState("main")(builder.get())
    found = shard_draws(module["main"], ["x", "y"], 2)
    assert calls(found).count("random.shard") == 1
    assert calls(shard_draws(module["main"], ["x", "y", "w"], 2)).count("random.shard") == 2


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda x, w: R.take(x, R.random.permutation(x.shape[0]), 0), "it moves rows between them"),
        (lambda x, w: R.random.uniform((x.shape[0], x.shape[0])), "several axes have the batch"),
        (lambda x, w: R.random.uniform((x.shape[0] + 1, 2)), "an axis has, with more than its rows"),
        (lambda x, w: R.dropout(R.matmul(x, R.permute_dims(x, (1, 0)))), "several axes have the batch"),
        (lambda x, w: R.dropout(R.concat([x, w], 0)), "an axis has, with more than its rows"),
    ],
)
def test_what_cannot_be_divided(model, message):
    with pytest.raises(UserError, match=message):
        sharded(module_of(model, (tir.Var("n"), 16)), 2)


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda x, w: R.dropout(R.matmul(x, R.permute_dims(x, (1, 0)))), "several axes have the batch"),
        (lambda x, w: R.dropout(R.concat([x, w], 0)), "an axis has, with more than its rows"),
    ],
)
def test_what_cannot_be_divided_of_a_known_number_of_rows(model, message):
    with pytest.raises(UserError, match=message):
        sharded(module_of(model, (4, 16)), 2)


def test_errors():
    with pytest.raises(ShapeError, match="make the batch dimension symbolic"):
        sharded(module_of(noisy, (4, 16)), 2)
    with pytest.raises(ShapeError, match="cannot be divided among ranks: with 5 rows"):
        sharded(module_of(lambda x, w: R.dropout(R.reshape(x, (4, 4, 4))), (4, 16)), 2)
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((4, 16), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.dropout(x)))
    with pytest.raises(UserError, match="dropout draws random numbers, and has no state"):
        shard_draws(builder.get()["main"], ["x"], 2)
    module = module_of(lambda x, w: R.dropout(x), (4, 16))
    with pytest.raises(ShapeError, match="by the rows of the inputs, which are none"):
        shard_draws(module["main"], [], 2)
    with pytest.raises(ShapeError, match="which are x: 4, w: 16"):
        shard_draws(module["main"], ["x", "w"], 2)
