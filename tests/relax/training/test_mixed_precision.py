"""Training in mixed precision: bfloat16 beside float32, the loss scale of float16, and going on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, IRModule, assert_structural_equal
from pullback.relax import TensorStructInfo
from pullback.relax.convention import LOSS_SCALE, Convention
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.lr_schedule import LambdaLR, LinearLR
from pullback.relax.training.optimizer import (
    EMA,
    SGD,
    Accumulate,
    Adam,
    AdamW,
    ClipByGlobalNorm,
    DynamicLossScale,
    MomentumSGD,
    Optimizer,
    ParameterGroups,
)
from pullback.relax.training.setup_trainer import ADJOINT
from pullback.relax.training.step import STEP
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of, with_state
from tests.relax.training.optimizers import run

X, Y = classes(24)
PREDICTION, TARGETS = TensorStructInfo((8, 5), "float32"), TensorStructInfo((8,), "int64")


@I.ir_module
class Images:
    """Convolutions, batch norm, dropout, a residual, pooling."""

    I.module_attrs({"param_num": 5, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor((16, 3, 8, 8), "float32"), u: R.Tensor((8, 3, 3, 3), "float32"),
        w: R.Tensor((8, 8, 3, 3), "float32"), gamma: R.Tensor((8,), "float32"), beta: R.Tensor((8,), "float32"),
        v: R.Tensor((128, 4), "float32"), mean: R.Tensor((8,), "float32"), variance: R.Tensor((8,), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            h = R.nn.conv2d(x, u, padding=1)
            n = R.nn.batch_norm(h, gamma, beta, mean, variance)
            r = R.nn.relu(n[0])
            s = R.nn.max_pool2d(r + R.nn.conv2d(r, w, padding=1), (2, 2), (2, 2))
            out = R.matmul(R.reshape(R.dropout(s, 0.1), (16, 128)), v)
            new_mean = n[1]
            new_variance = n[2]
            R.output(out, new_mean, new_variance)
        return (out, new_mean, new_variance)


@I.ir_module
class Sequences:
    """A transformer block over embeddings."""

    I.module_attrs({"param_num": 8, "state_num": 0})

    @R.function
    def backbone(
        tokens: R.Tensor((4, 12), "int64"), table: R.Tensor((10, 16), "float32"), places: R.Tensor((12, 16), "float32"),
        gamma: R.Tensor((16,), "float32"), beta: R.Tensor((16,), "float32"), qkv: R.Tensor((16, 48), "float32"),
        up: R.Tensor((16, 32), "float32"), down: R.Tensor((32, 16), "float32"), head: R.Tensor((16, 10), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            x = R.reshape(R.take(table, R.reshape(tokens, (48,)), axis=0), (4, 12, 16)) + places
            parts = R.split(R.matmul(R.nn.layer_norm(x, gamma, beta), qkv), 3, axis=-1)
            q = R.reshape(parts[0], (4, 12, 2, 8))
            k = R.reshape(parts[1], (4, 12, 2, 8))
            v = R.reshape(parts[2], (4, 12, 2, 8))
            a = x + R.reshape(R.nn.attention(q, k, v, causal_mask="TopLeft"), (4, 12, 16))
            m = a + R.matmul(R.nn.gelu(R.matmul(R.nn.layer_norm(a, gamma, beta), up)), down)
            out = R.reshape(R.matmul(m, head), (48, 10))
            R.output(out)
        return out


def batch(module: IRModule) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and labels that depend on them."""
    generator = np.random.default_rng(8)
    if module is Sequences:
        tokens = generator.integers(0, 10, (4, 12))
        return tokens, (tokens.reshape(48) * 3 + 1) % 10
    if module is Images:
        x = generator.standard_normal((16, 3, 8, 8)).astype("float32")
        return x, x[:, :, 2:4, 2:4].mean((1, 2, 3)).argsort().argsort() // 4
    return X[:8], Y[:8]


def trainer(module: IRModule, optimizer: Optimizer, precision: str | None, target: str = "llvm") -> Trainer:
    return pullback.trainer(module, CrossEntropyLoss(), optimizer, seed=4, target=target, precision=precision)


MODELS = {"mlp": (mlp(), AdamW(3e-3)), "images": (Images, MomentumSGD(0.02, 0.9)), "sequences": (Sequences, Adam(3e-3))}


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_it_trains_as_float32_does(name: str, precision: str) -> None:
    module, optimizer = MODELS[name]
    x, y = batch(module)
    single, mixed = (trainer(module, optimizer, p) for p in (None, precision))
    losses = np.array([[float(t.update(x, y)) for t in (single, mixed)] for _ in range(60)])
    assert losses[-1, 0] < 0.6 * losses[0, 0]
    np.testing.assert_allclose(losses[:, 1], losses[:, 0], rtol=0.02, atol=0.02 * losses[0, 0])
    assert not np.array_equal(losses[:, 1], losses[:, 0])
    for value in (*mixed.params.values(), *mixed.states.values()):
        assert value.dtype == "float32"
    assert mixed.predict(x).dtype == "float32"
    if name != "sequences":  # whose targets are not one for each row
        np.testing.assert_allclose(mixed.evaluate(x, y).loss, single.evaluate(x, y).loss, atol=0.02 * losses[0, 0])


@pytest.mark.parametrize("name", MODELS)
def test_interpreter_and_native_agree(name: str) -> None:
    module, optimizer = MODELS[name]
    x, y = batch(module)
    trainers = [trainer(module, optimizer, "bfloat16", target) for target in ("debug", "llvm")]
    losses = np.array([[float(t.update(x, y)) for t in trainers] for _ in range(4)])
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=5e-3)


def test_float32_is_what_it_was() -> None:
    plain, named = (
        SetupTrainer(CrossEntropyLoss(), SGD(0.1), [PREDICTION, TARGETS], precision=p)(mlp()) for p in (None, "float32")
    )
    assert_structural_equal(plain, named)


def test_both_forms_are_mixed_and_recorded() -> None:
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.1), [PREDICTION, TARGETS], precision="bfloat16")(mlp())
    assert module.attrs["training"]["precision"] == "bfloat16"
    assert not any(kind == LOSS_SCALE for kind, _ in Convention.of(module).kept)
    plain = SetupTrainer(CrossEntropyLoss(), SGD(0.1), [PREDICTION, TARGETS])(mlp())
    for name in ("backbone", "backbone_loss", "backbone_loss_adjoint"):
        assert "bfloat16" in module[name].script() and "bfloat16" not in plain[name].script()
        assert [p.struct_info for p in module[name].params] == [p.struct_info for p in plain[name].params]
        assert module[name].ret_struct_info == plain[name].ret_struct_info
    ops = [  # the names of kernels count what came before
        SetupTrainer(CrossEntropyLoss(), SGD(0.1), [PREDICTION, TARGETS], legalize=False, precision=precision)(mlp())
        for precision in ("bfloat16", None)
    ]
    assert_structural_equal(ops[0]["optimizer"], ops[1]["optimizer"])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_printed_module_trains_as_well(precision: str) -> None:
    module = SetupTrainer(CrossEntropyLoss(), Adam(0.01), [PREDICTION, TARGETS], precision=precision)(mlp())
    again = from_source(module.script())
    assert again.attrs["training"]["precision"] == precision
    assert Convention.of(again) == Convention.of(module)
    losses = []
    for each in (module, again.with_attrs({"optim_state": module.attrs["optim_state"]})):
        vm = pullback.relax.VirtualMachine(pullback.compile(each, "llvm"), pullback.cpu())
        t = Trainer(each, vm)
        t.xavier_uniform_init_params(3)
        losses.append([float(t.update(X[:8], Y[:8])) for _ in range(3)])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_last_batch_may_be_smaller(precision: str) -> None:
    """20 rows in batches of 8: the module is derived for 4 rows, with its casts and its scale."""
    t = trainer_of("llvm", optimizer=Adam(0.01), precision=precision)
    history = t.fit(X[:20], Y[:20], epochs=11, verbose=0)
    assert t.steps == 33 and t.evaluate(X[:20], Y[:20]).loss < history.epochs[0].loss


@pytest.mark.parametrize("given", ["half", "float64", 16, True, "bf16", ["float16"], np.dtype("float16")])
def test_unknown_precisions(given: Any) -> None:
    message = "precision must be one of None, 'float32', 'bfloat16', 'float16', got"
    with pytest.raises(ArgumentError, match=message):
        SetupTrainer(CrossEntropyLoss(), SGD(0.1), [PREDICTION, TARGETS], precision=given)
    with pytest.raises(ArgumentError, match=message):
        trainer_of(precision=given)


# ---- the loss scale --------------------------------------------------------------------------------------------------


def kept(t: Trainer) -> list[np.ndarray]:
    """Parameters and the wrapped optimizer's states."""
    return [*params(t), *(s.numpy() for s in t.optimizer_states[1:-3])]


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_a_scale_that_overflows_skips_the_step(target: str) -> None:
    """Gradients beyond 65504 are infinite in float16: nothing changes but the scale, until it fits."""
    optimizer = DynamicLossScale(Adam(0.01), init_scale=2.0**22, growth_interval=5)
    t = trainer_of(target, optimizer=optimizer, precision="float16")
    plain = trainer_of(target, optimizer=Adam(0.01))
    before, first = kept(t), None
    scales = [t.loss_scale]
    while True:
        loss = float(t.update(X[:8], Y[:8]))
        first = loss if first is None else first
        if t.loss_scale == scales[-1]:
            break
        scales.append(t.loss_scale)
        assert loss == first
        assert_same(kept(t), before)
    skipped = len(scales) - 1
    assert skipped > 3 and scales == [2.0 ** (22 - k) for k in range(skipped + 1)]
    assert t.optimizer_states[-1].item() == skipped and t.steps == skipped + 1
    plain.update(X[:8], Y[:8])
    for _ in range(20):  # in which the scale grows until it is too large, and is halved again
        skipped, loss = t.optimizer_states[-1].item(), float(t.update(X[:8], Y[:8]))
        if t.optimizer_states[-1].item() == skipped:
            assert abs(loss - float(plain.update(X[:8], Y[:8]))) < 0.02 * first
    assert loss < 0.2 * first and skipped > len(scales) - 1


def test_the_scale_grows_and_shrinks_as_in_gradscaler() -> None:
    """Of gradients that are given: the scale doubles after three finite steps in a row, and halves at once."""
    gradients = [[np.array([g], "float32")] for g in (1, 1, 1, 1, np.inf, 1, 1, np.nan, 1, 1, 1, 1, 1, 1)]
    made = DynamicLossScale(SGD(1.0), 8.0, growth_interval=3)
    values = [np.zeros(1, "float32")]
    found = list(run(made, values, gradients))
    scales = [float(states[-3]) for _, states in found]
    assert scales == [8, 8, 16, 16, 8, 8, 8, 4, 4, 4, 8, 8, 8, 16]
    assert [float(p[0][0]) for p, _ in found] == [-1, -2, -3, -4, -4, -5, -6, -6, -7, -8, -9, -10, -11, -12]
    assert [int(states[0]) for _, states in found] == list(range(1, 15))


def test_skipped_steps_are_none_of_the_schedules() -> None:
    """The rate 1, 2, 3, … of the wrapped optimizer goes on where it was before a step that was skipped."""
    gradients = [[np.array([g], "float32")] for g in (1, np.inf, 1, np.nan, np.nan, 1)]
    rate = LambdaLR(lambda step: step.astype("float64") + 1.0)
    found = list(run(DynamicLossScale(SGD(rate), 8.0), [np.zeros(1, "float32")], gradients, "debug"))
    assert [float(p[0][0]) for p, _ in found] == [-1, -1, -3, -3, -3, -6]
    assert [int(states[-1]) for _, states in found] == [0, 1, 1, 2, 3, 3]


def test_the_scale_does_not_become_infinite() -> None:
    made = DynamicLossScale(SGD(1.0), 2.0**127, growth_interval=1)
    found = list(run(made, [np.zeros(1, "float32")], [[np.ones(1, "float32")]] * 2))
    assert [float(states[-3]) for _, states in found] == [2.0**127] * 2


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_gradients_are_those_of_the_loss_whatever_the_scale(target: str) -> None:
    """A scale that is a power of two and under which nothing overflows or vanishes changes no bit."""
    infos = [PREDICTION, TARGETS]
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.1), infos, precision="float16", legalize=False)(mlp())
    adjoint = pullback.compile(module, target).function("backbone_loss_adjoint")
    assert [p.name for p in module["backbone_loss_adjoint"].params][-2:] == ["targets", "loss_scale"]
    t = trainer_of("debug")
    arguments = [X[:8], *params(t), Y[:8]]
    results = [adjoint(*arguments, np.float32(scale)) for scale in (2.0**6, 2.0**10, 2.0**40)]
    (loss, gradients), (same, again), (_, infinite) = results
    assert loss.numpy() == same.numpy() and np.isfinite(loss.numpy())
    for a, b in zip(gradients, again, strict=True):
        assert a.dtype == "float32"
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=2e-6)
    assert not all(np.isfinite(g.numpy()).all() for g in infinite)


def test_without_a_scale_small_gradients_vanish() -> None:
    """Adjoints of 2.5e-8 are zeros in float16; multiplied by 2¹⁶ they are not."""
    model = with_state()
    x, y = np.full((4, 3), 1e-3, "float32"), np.full((4, 2), 1e-7, "float32")
    moved = []
    for scale in (1.0, 2.0**16):
        t = pullback.trainer(
            model, MSELoss(), DynamicLossScale(SGD(1e6), scale), precision="float16", target="debug", init="zeros"
        )
        t.update(x, y)
        moved.append(np.abs(t.params["w"].numpy()).max())
    assert moved[0] == 0 and moved[1] > 0


def test_states_of_the_model_change_in_a_step_that_is_skipped() -> None:
    """As in PyTorch, where only the optimizer is held back."""
    x, y = batch(Images)
    t = trainer(Images, DynamicLossScale(MomentumSGD(0.02, 0.9), 2.0**40), "float16")
    before, mean = kept(t), t.states["mean"].numpy()
    t.update(x, y)
    assert_same(kept(t), before)
    assert t.loss_scale == 2.0**39 and not np.array_equal(t.states["mean"].numpy(), mean)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_it_resumes_bit_for_bit(target: str, tmp_path: Path) -> None:
    """The scale, the count of finite steps, skipped steps: all are in the file."""
    rate = LinearLR(0.02, 0.1, 1.0, 6)

    def made() -> Trainer:
        inner = EMA(Accumulate(ClipByGlobalNorm(ParameterGroups(Adam(rate), {"b*": {"lr": 0.01}}), 1.0), 2), 0.9)
        optimizer = DynamicLossScale(inner, 2.0**20, growth_interval=3)
        return trainer_of(target, optimizer=optimizer, precision="float16")

    whole, first, second = made(), made(), made()
    assert whole.loss_scale == 2.0**20
    whole.fit(X, Y, epochs=8, verbose=0)
    first.fit(X, Y, epochs=4, verbose=0)
    first.save(tmp_path / "half")
    second.load(tmp_path / "half")
    assert second.loss_scale == first.loss_scale < 2.0**20
    second.fit(X, Y, epochs=4, verbose=0)
    assert whole.loss_scale == second.loss_scale
    every = [[*params(t), *(s.numpy() for s in t.optimizer_states)] for t in (whole, second)]
    assert_same(*every)


def test_a_checkpoint_of_bfloat16_is_one_of_float32(tmp_path: Path) -> None:
    mixed, single = trainer_of(precision="bfloat16"), trainer_of()
    mixed.update(X[:8], Y[:8])
    mixed.save(tmp_path / "mixed")
    single.load(tmp_path / "mixed")
    assert_same(params(mixed), params(single))


def test_the_trainers_scale_and_profiles() -> None:
    t = trainer_of("llvm", optimizer=DynamicLossScale(SGD(0.1), 512.0), precision="float16")
    assert t.loss_scale == 512 and trainer_of(precision="bfloat16").loss_scale == trainer_of().loss_scale == 1
    assert t.hyperparameters["init_scale"] == 512 and t.hyperparameters["lr"] == 0.1
    assert "DynamicLossScale(SGD)" in repr(t)
    default = trainer_of(precision="float16")
    assert default.loss_scale == 2.0**16
    module = default.mod
    labels = module.attrs["training"]["optimizer_states"]
    kinds = [kind for kind, _ in Convention.of(module).optimizer_states]
    assert labels[kinds.index(LOSS_SCALE)] == "loss_scale" and labels[-1] == "num_skipped"
    adjoint = t.vm.executable.memory(ADJOINT).categories
    assert adjoint["optimizer states"] == 4 and adjoint["parameters"] == sum(4 * p.size for p in params(t))
    assert t.vm.executable.memory(STEP).categories["optimizer states"] == 8 + 4 + 8 + 8


def test_a_scale_may_be_had_in_any_precision_and_within_wrappers() -> None:
    """In float32 it changes nothing, since powers of two are exact; in Accumulate the sum of the gradients counts."""
    plain, scaled = trainer_of("llvm", optimizer=SGD(0.05)), trainer_of("llvm", optimizer=DynamicLossScale(SGD(0.05)))
    for _ in range(3):
        plain.update(X[:8], Y[:8]), scaled.update(X[:8], Y[:8])
    assert_same(params(plain), params(scaled))
    inner = trainer_of("llvm", optimizer=Accumulate(DynamicLossScale(SGD(0.05), 2.0**40), 2), precision="float16")
    scales = []
    for _ in range(4):
        inner.update(X[:8], Y[:8])
        scales.append(inner.loss_scale)
    assert scales == [2.0**40, 2.0**39, 2.0**39, 2.0**38]


def test_the_first_infinity_is_named() -> None:
    t = trainer_of("llvm", optimizer=DynamicLossScale(SGD(0.05), 256.0), precision="float16")
    with pytest.raises(pullback.ir.UserError, match="the loss of step 1 is"):
        t.fit(X * 1e8, Y, verbose=0, detect_nan=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_scale": 0}, "init_scale must be positive"),
        ({"init_scale": "big"}, "init_scale must be a number"),
        ({"growth_factor": 1.0}, "growth_factor must be more than 1"),
        ({"backoff_factor": 1.0}, "backoff_factor must be between 0 and 1"),
        ({"backoff_factor": 0.0}, "backoff_factor must be between 0 and 1"),
        ({"growth_interval": 0}, "growth_interval must be an int ≥ 1"),
    ],
)
def test_options_of_the_scale(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DynamicLossScale(SGD(0.1), **options)


def test_an_optimizer_has_one_scale() -> None:
    with pytest.raises(ArgumentError, match="DynamicLossScale is in DynamicLossScale"):
        DynamicLossScale(Accumulate(DynamicLossScale(SGD(0.1)), 2))
    with pytest.raises(ArgumentError, match="ParameterGroups takes a plain optimizer"):
        ParameterGroups(DynamicLossScale(SGD(0.1)), {})
