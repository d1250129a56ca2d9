"""Training a subset of the parameters: which, at what cost, and another one later."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

import pullback
from benchmarks.models.chargpt import CharGPT
from benchmarks.workers.finetune_pullback import trainer_of
from pullback import nn, optim
from pullback.driver.memory import MemoryReport
from pullback.ir.errors import ArgumentError, DifferentiationError, UserError
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import EMA, SGD, Adam, MomentumSGD, ParameterGroups
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T

RNG = np.random.default_rng(2)
X = RNG.normal(size=(24, 5)).astype("float32")
Y = RNG.normal(size=(24, 3)).astype("float32")


@I.ir_module
class Model:
    @R.function
    def backbone(
        x: R.Tensor((8, 5), "float32"),
        body_w: R.Param((5, 6)),
        body_b: R.Param((6,), initial=0.125),
        mid_w: R.Param((6, 6)),
        head_w: R.Param((6, 3)),
        head_b: R.Param((3,)),
    ):
        with R.dataflow():
            h = R.tanh(R.matmul(x, body_w) + body_b)
            m = R.tanh(R.matmul(h, mid_w))
            y = R.matmul(m, head_w) + head_b
            R.output(y)
        return y


NAMES = ("body_w", "body_b", "mid_w", "head_w", "head_b")
SHAPES = dict(zip(NAMES, [(5, 6), 6, (6, 6), (6, 3), 3], strict=True))
VALUES = {name: 0.5 * RNG.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}


def made(trainable=None, optimizer=Adam, target="debug", model=Model):
    optimizer = optimizer(0.05) if isinstance(optimizer, type) else optimizer
    trainer = pullback.trainer(model, "mse", optimizer, target=target, trainable=trainable, seed=1)
    trainer.load_params(VALUES)
    return trainer


def params(trainer):
    return {name: value.numpy() for name, value in trainer.params.items()}


def states(trainer):
    labels = trainer._interface.record.optimizer_states
    return dict(zip(labels, (s.numpy() for s in trainer.optimizer_states), strict=True))


class Reference:
    """The model, its gradients and Adam in float64."""

    def __init__(self):
        self.p = {n: v.astype(float) for n, v in VALUES.items()}
        self.m, self.v, self.steps = {}, {}, 0

    def step(self, x, y, trained):
        p = self.p
        h = np.tanh(x @ p["body_w"] + p["body_b"])
        m = np.tanh(h @ p["mid_w"])
        out = m @ p["head_w"] + p["head_b"]
        d = 2 * (out - y) / y.size
        dm = d @ p["head_w"].T * (1 - m * m)
        dh = dm @ p["mid_w"].T * (1 - h * h)
        gradients = {
            "body_w": x.T @ dh, "body_b": dh.sum(0), "mid_w": h.T @ dm, "head_w": m.T @ d, "head_b": d.sum(0),
        }  # fmt: skip
        self.steps += 1
        for n in trained:
            g = gradients[n]
            self.m[n], self.v[n] = 0.9 * self.m.get(n, 0) + 0.1 * g, 0.999 * self.v.get(n, 0) + 0.001 * g * g
            rate = 0.05 * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
            p[n] = p[n] - rate * self.m[n] / (np.sqrt(self.v[n]) + 1e-8 * np.sqrt(1 - 0.999**self.steps))
        return ((out - y) ** 2).mean()


def batch(k):
    rows = slice(8 * (k % 3), 8 * (k % 3) + 8)
    return X[rows], Y[rows]


def run(trainer, reference, steps, first=0):
    for k in range(first, first + steps):
        loss = trainer.update(*batch(k)).item()
        expected = reference.step(*(a.astype(float) for a in batch(k)), trainer.trained)
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
    for name, value in params(trainer).items():
        np.testing.assert_allclose(value, reference.p[name], rtol=2e-3, atol=1e-5, err_msg=name)


# ---- which


@pytest.mark.parametrize(
    ("trainable", "trained"),
    [
        (None, NAMES),
        ("head_*", ("head_w", "head_b")),
        (["*_b", "mid_w"], ("body_b", "mid_w", "head_b")),
        (["body_w"], ("body_w",)),
    ],
)
def test_just_the_subset_is_trained_as_numpy_does(trainable, trained):
    trainer = made(trainable)
    assert trainer.trained == trained
    run(trainer, Reference(), 4)
    after = params(trainer)
    assert tuple(n for n in NAMES if (after[n] != VALUES[n]).any()) == trained
    owners = {label.partition(" of ")[2] for label in states(trainer)} - {""}
    assert owners == set(trained)


def test_patterns_choose_among_what_the_model_does_not_freeze():
    frozen = Model.with_attr("frozen", ("body_w", "head_b"))
    assert made(model=frozen).trained == ("body_b", "mid_w", "head_w")
    assert made(["head_*", "body_b"], model=frozen).trained == ("body_b", "head_w")
    with pytest.raises(ArgumentError, match="'head_b' matches only what the model freezes: body_w, head_b"):
        made(["body_*", "head_b"], model=frozen)
    with pytest.raises(ArgumentError, match=r"trainable: no parameter matches 'tail\.\*'"):
        made(["head_*", "tail.*"])
    for wrong in ([], 3, [1]):
        with pytest.raises(ArgumentError, match=r"all parameters are frozen|must be patterns"):
            made(wrong)


def test_setup_trainer_takes_it_too():
    info = TensorStructInfo((8, 3), "float32")
    module = SetupTrainer(MSELoss(), SGD(0.1), [info, info], trainable=["head_*"])(Model)
    gradients = module["backbone_loss_adjoint"].ret_struct_info.fields[1].fields
    assert [g.shape for g in gradients] == [(6, 3), (3,)]
    assert module["optimizer"].params[1].struct_info == module["backbone_loss_adjoint"].ret_struct_info.fields[1]


def test_other_batch_sizes_and_weights_train_the_same_subset():
    trainer, whole = made("head_*", SGD), made("head_*", SGD)
    trainer.fit(X, Y, batch_size=5, shuffle=False, verbose=0)
    for k in range(0, 24, 5):
        whole.update(X[k : k + 5], Y[k : k + 5])
    for name, value in params(whole).items():
        np.testing.assert_allclose(params(trainer)[name], value, rtol=1e-6)
    trainer.fit(X, Y, sample_weight=np.linspace(1, 2, 24), verbose=0)
    after = params(trainer)
    assert [n for n in NAMES if (after[n] != VALUES[n]).any()] == ["head_w", "head_b"]


@I.ir_module
class Undifferentiable:
    """Its kernel has no gradient: how often its loop runs depends on memory that it writes."""

    @T.prim_func
    def twice(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
        count = T.alloc_buffer((1,), "int64")
        count[0] = 8
        for i in range(count[0]):
            for j in range(6):
                B[i, j] = A[i, j] + A[i, j]

    @R.function
    def backbone(x: R.Tensor((8, 5), "float32"), low: R.Param((5, 6)), w: R.Param((6, 3))):
        cls = Undifferentiable
        with R.dataflow():
            twice = R.call_tir(cls.twice, (R.matmul(x, low),), R.Tensor((8, 6), "float32"))
            y = R.matmul(twice, w)
            R.output(y)
        return y


def test_what_is_below_the_subset_needs_no_gradient():
    with pytest.raises(DifferentiationError, match="these ops have no gradient"):
        pullback.trainer(Undifferentiable, "mse", "sgd", target="debug")
    trainer = pullback.trainer(Undifferentiable, "mse", SGD(0.1), target="debug", trainable="w", seed=3)
    low, w = (v.numpy().astype(float) for v in trainer.params.values())
    trainer.update(X[:8], Y[:8])
    hidden = 2 * X[:8] @ low
    expected = w - 0.1 * hidden.T @ (2 * (hidden @ w - Y[:8]) / 24)
    np.testing.assert_allclose(trainer.params["w"].numpy(), expected, rtol=1e-4, atol=1e-6)


# ---- at what cost


def test_a_step_of_the_last_block_keeps_few_activations():
    """Plans are the same in each run: of six blocks, the last one's step takes at most two fifths of the memory."""
    model = CharGPT(layers=6, width=64, heads=2, length=32, batch=2)
    reports = {}
    for subset in ("all", "last block"):
        trainer = trainer_of(model, subset)
        reports[subset] = trainer.vm.executable.function("__step").memory()
    whole, last = reports["all"], reports["last block"]
    assert isinstance(last, MemoryReport)
    assert last.arena["saved for backward"] <= 0.4 * whole.arena["saved for backward"]
    assert last.arena_bytes <= 0.4 * whole.arena_bytes
    assert len(last.steps) < 0.5 * len(whole.steps)
    sizes = model.parameters()
    trained = sum(a.nbytes for name, a in sizes.items() if name.startswith("block5_"))
    assert last.categories["optimizer states"] == 2 * trained + 8 + 2 * 8  # m, v; count and two products of betas
    assert last.categories["parameters"] == whole.categories["parameters"]


# ---- another one later


def test_freezing_and_unfreezing_go_on_with_values_and_states():
    trainer, reference = made(), Reference()
    run(trainer, reference, 3)
    kept = states(trainer)
    trainer.freeze("body_*", "mid_w")
    assert trainer.trained == ("head_w", "head_b") and trainer.steps == 3
    for label, value in states(trainer).items():
        np.testing.assert_array_equal(value, kept[label])
    run(trainer, reference, 3, 3)
    for name in ("body_w", "body_b", "mid_w"):
        del reference.m[name], reference.v[name]
    trainer.unfreeze("mid_w")
    assert trainer.trained == ("mid_w", "head_w", "head_b")
    assert not states(trainer)["m of mid_w"].any() and states(trainer)["m of head_w"].any()
    run(trainer, reference, 3, 6)
    trainer.unfreeze()
    assert trainer.trained == NAMES
    run(trainer, reference, 3, 9)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_a_second_trainer_goes_on_from_the_first(target):
    """Freezing is the same, to the last bit, as a second trainer of the subset, with values and states as they are."""
    first = made(optimizer=MomentumSGD(0.05, 0.9), target=target)
    first.update(*batch(0))
    second = made("head_*", MomentumSGD(0.05, 0.9), target)
    second.load_params(first.params)
    first.freeze("body_*", "mid_w")
    kept = {label: i for i, label in enumerate(first._interface.record.optimizer_states)}
    changed = {
        i: first.optimizer_states[kept[label]] for i, label in enumerate(second._interface.record.optimizer_states)
    }
    second._values = second._values.with_optimizer_states(changed)
    for trainer in (first, second):
        trainer.fit(X, Y, epochs=2, seed=4, verbose=0)
    for name, value in params(first).items():
        np.testing.assert_array_equal(params(second)[name], value)


def test_groups_keep_their_own_scalars():
    """States of the same name are those of a group: here each group has products of betas of its own."""
    rules = {"body_*": {"betas": (0.5, 0.9)}, "head_*": {"betas": (0.8, 0.99)}}
    trainer = made(optimizer=ParameterGroups(Adam(0.05), rules))
    for k in range(3):
        trainer.update(*batch(k))
    other = copy.deepcopy(trainer)
    trainer.freeze("mid_w", "body_*")
    record = trainer._interface.record
    assert record.optimizer_groups == ("", *["head_*"] * 6)
    pairs = zip(trainer.optimizer_states, record.optimizer_states, strict=True)
    products = [state.numpy() for state, label in pairs if "prod" in label]
    np.testing.assert_allclose(sorted(float(p) for p in products), [0.8**3, 0.99**3])
    trainer.update(*batch(3))
    other.update(*batch(3))  # what head learns does not depend on what else is trained
    for name in ("head_w", "head_b"):
        np.testing.assert_array_equal(params(trainer)[name], params(other)[name])


def test_averages_of_what_is_trained_anew_begin_as_the_parameters():
    trainer = made("head_*", EMA(SGD(0.05), 0.9))
    trainer.update(*batch(0))
    head = {n: v.numpy() for n, v in trainer.averages.items()}
    trainer.unfreeze("mid_w")
    found = {n: v.numpy() for n, v in trainer.averages.items()}
    for name in NAMES:
        np.testing.assert_array_equal(found[name], head[name])
    before = params(trainer)["mid_w"]
    trainer.update(*batch(1))
    expected = 0.9 * before + 0.1 * params(trainer)["mid_w"]
    np.testing.assert_allclose(trainer.averages["mid_w"].numpy(), expected, rtol=1e-5)


def test_parameters_of_a_module_follow():
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    trainer = pullback.trainer(net, "mse", optim.Adam(lr=0.1), example=X, target="debug", trainable="2.*")
    assert trainer.trained == ("2.weight", "2.bias") and net[0].weight.requires_grad
    trainer.fit(X, Y, verbose=0)  # without a warning: requires_grad is as it was
    trainer.freeze("2.bias")
    assert [p.requires_grad for p in net.parameters()] == [False, False, True, False]
    before = {n: v.numpy() for n, v in net.state_dict().items()}
    trainer.fit(X, Y, verbose=0)
    after = {n: v.numpy() for n, v in net.state_dict().items()}
    assert [n for n in before if (before[n] != after[n]).any()] == ["2.weight"]
    trainer.unfreeze("0.*")
    assert [p.requires_grad for p in net.parameters()] == [True, True, True, False]
    trainer.fit(X, Y, verbose=0)
    assert (net[0].weight.numpy() != before["0.weight"]).any()


def test_callbacks_may_freeze_in_the_middle_of_an_epoch():
    trainer = made(optimizer=SGD)

    class Freeze(pullback.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            if epoch == 1:
                self.trainer.freeze("body_*")

    before = {}

    class Look(pullback.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs):
            before[epoch] = params(self.trainer)

    trainer.fit(X, Y, epochs=3, callbacks=[Freeze(), Look()], verbose=0)
    assert (before[1]["body_w"] != before[2]["body_w"]).any()
    np.testing.assert_array_equal(params(trainer)["body_w"], before[2]["body_w"])
    assert (params(trainer)["head_w"] != before[3]["head_w"]).any()


def test_threads_may_choose_and_train_at_once():
    trainer = made(optimizer=MomentumSGD(0.001, 0.9))
    failed = []

    def guarded(action):
        try:
            for _ in range(6):
                action()
        except Exception as error:
            failed.append(error)

    def choose():
        trainer.freeze("mid_w")
        trainer.unfreeze("mid_w")

    actions = [choose, lambda: trainer.update(*batch(0)), lambda: trainer.predict(X[:8])]
    actions.append(lambda: trainer.fit(X, Y, verbose=0))
    threads = [threading.Thread(target=guarded, args=(a,)) for a in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and trainer.trained == NAMES


def test_what_cannot_be_changed_is_told_and_changes_nothing():
    trainer = made("head_*")
    before = params(trainer)
    for wrong, message in (
        (lambda: trainer.freeze("*"), "all parameters are frozen"),
        (lambda: trainer.freeze("tail"), "freeze: no parameter matches 'tail'"),
        (lambda: trainer.unfreeze(3), "unfreeze must be patterns"),
    ):
        with pytest.raises(ArgumentError, match=message):
            wrong()
    assert trainer.trained == ("head_w", "head_b")
    trainer.freeze()  # nothing
    grouped = made(optimizer=ParameterGroups(SGD(0.1), {"mid_w": {"frozen": True}}))
    grouped.freeze("body_w")
    with pytest.raises(ArgumentError, match="mid_w: frozen by the optimizer's ParameterGroups"):
        grouped.unfreeze()
    assert grouped.trained == ("body_b", "head_w", "head_b")
    with pytest.raises(UserError, match="does not know its loss"):
        copy.deepcopy(trainer).unfreeze()
    for name, value in params(trainer).items():
        np.testing.assert_array_equal(value, before[name])
