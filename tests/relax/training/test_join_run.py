"""The whole training as one function: it is what `fit` does with the same order of rows, to the last bit, and what
NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn, optim, te
from pullback.ir.errors import ArgumentError
from pullback.ir.node import assert_structural_equal
from pullback.ir.op import Op
from pullback.relax import transform
from pullback.relax.analysis import called_functions, check_well_formed
from pullback.relax.convention import TRAIN, Convention
from pullback.relax.interpreter import evaluate
from pullback.relax.op.register import register_op
from pullback.relax.regions import is_closed
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training import JoinRun, SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Accumulate, Adam, AdamW, MomentumSGD, RunTime
from pullback.relax.training.weights import weighted_setup
from pullback.script import ir as I
from pullback.script import relax as R

ROWS = 11
RNG = np.random.default_rng(9)
X = RNG.normal(size=(ROWS, 4)).astype("float32")
Z = RNG.normal(size=(ROWS, 3)).astype("float32")
Y = RNG.normal(size=(ROWS, 3)).astype("float32")
LABELS = RNG.integers(0, 3, ROWS)
WEIGHTS = RNG.uniform(0.5, 2, ROWS)

TARGETS = ("debug", "llvm")


@I.ir_module
class Line:
    @R.function
    def backbone(x: R.Tensor((4, 4), "float32"), w: R.Param((4, 3)), b: R.Param((3,))):
        return R.add(R.matmul(x, w), b)


@I.ir_module
class Mixed:
    """Two inputs, states, parameters of which one is not trained, in any order; any number of rows."""

    @R.function
    def backbone(
        mean: R.State((4,), initial=0.5),
        w: R.Param((4, 3)),
        x: R.Tensor(("n", 4), "float32"),
        b: R.Param((3,), trainable=False, initial=0.25),
        z: R.Tensor(("n", 3), "float32"),
        seen: R.State((), "int64"),
    ):
        with R.dataflow():
            y = R.dropout(R.matmul(x - mean, w), p=0.25) + b + z
            new_mean = mean * 0.75 + R.mean(x, axis=0) * 0.25
            more = seen + R.const(1, "int64")
            R.output(y, new_mean, more)
        return (y, new_mean, more)


def info(*shape, dtype="float32"):
    return TensorStructInfo(shape, dtype)


def line(loss=None, optimizer=None, labels=None, legalize=False, **options):
    labels = info(4, 3) if labels is None else labels
    return SetupTrainer(loss or MSELoss(), optimizer or Adam(0.05), [info(4, 3), labels], legalize, **options)(Line)


def mixed():
    rows = Mixed["backbone"].params[2].struct_info.shape[0]
    return SetupTrainer(MSELoss(), AdamW(0.05), [info(rows, 3), info(rows, 3)], legalize=False)(Mixed)


def normed():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3))
    made = pullback.trainer(net, "cross_entropy", optim.Adam(lr=0.05), example=X, target="debug")
    return made.mod


def weighted():
    setup = SetupTrainer(MSELoss(), MomentumSGD(0.05, 0.9), [info(4, 3), info(4, 3)], legalize=False)
    return weighted_setup(setup)(Line)


CLASSES = info(4, dtype="int64")
MODELS = {
    "adam": (line, [X], [Y]),
    "sum": (lambda: line(MSELoss("sum"), SGD(0.01)), [X], [Y]),
    "classes": (lambda: line(CrossEntropyLoss(), labels=CLASSES), [X], [LABELS]),
    "some ignored": (
        lambda: line(CrossEntropyLoss(ignore_index=1), labels=CLASSES), [X], [np.where(np.arange(ROWS) < 6, LABELS, 1)],
    ),
    "a subset": (lambda: line(trainable=["b"]), [X], [Y]),
    "accumulated": (lambda: line(optimizer=Accumulate(MomentumSGD(0.05, 0.9), 2)), [X], [Y]),
    "run-time rate": (lambda: line(optimizer=SGD(RunTime(0.05))), [X], [Y]),
    "float16": (lambda: line(optimizer=SGD(0.05), precision="float16"), [X], [Y]),
    "weights": (weighted, [X], [Y, WEIGHTS.astype("float32")]),
    "mixed": (mixed, [X, Z], [Y]),
    "batch norm": (normed, [X], [LABELS]),
}  # fmt: skip


def initial(module):
    """A trainer with parameters drawn from a seed."""
    vm = pullback.relax.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu())
    trainer = Trainer(module, vm)
    trainer.seed(7)
    trainer.init_states()
    trainer.xavier_uniform_init_params(1)
    return trainer


def orders(epochs, seed=3):
    """Those that ``fit(…, seed=3)`` draws."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return np.stack([generator.permutation(ROWS) for _ in range(epochs)])


def run(module, trainer, x, y, order, epochs=None, target="debug", joined=None, **options):
    """What the joined training of a trainer's values gives, in Python's tuples of arrays."""
    joined = JoinRun(rows=ROWS, **options)(module) if joined is None else joined
    vm = pullback.relax.VirtualMachine(pullback.compile(joined, target), pullback.cpu())
    values = trainer._values
    tensors = [tuple(map(pullback.nd.array, group)) for group in (x, y)]
    kept = (values.params, values.states + values.random, values.optimizer_states)
    epochs = len(order) if epochs is None else epochs
    result = vm[TRAIN](*tensors, *kept, pullback.nd.array(np.array(epochs)), pullback.nd.array(np.asarray(order)))
    return as_arrays(result)


def as_arrays(value):
    return tuple(map(as_arrays, value)) if isinstance(value, tuple) else value.numpy()


def assert_same(found, trainer, history):
    losses, done, params, states, optimizer_states = found
    assert done == len(history)
    values = trainer._values
    pairs = [(losses[: len(history)], [e.loss for e in history])]
    for got, wanted in ((params, values.params), (states, values.states + values.random)):
        pairs += zip(got, (v.numpy() for v in wanted), strict=True)
    pairs += zip(optimizer_states, (v.numpy() for v in values.optimizer_states), strict=True)
    assert np.isnan(losses[len(history) :]).all()
    for got, wanted in pairs:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_fit_does(name, target):
    """On either target to the last bit: `fit` runs on the same."""
    make, x, y = MODELS[name]
    module = make()
    size = 4 if name in ("mixed", "batch norm") else None
    trainer = initial(module)
    if target != "debug":
        vm = pullback.relax.VirtualMachine(pullback.compile(module, target), pullback.cpu())
        native = Trainer(module, vm)
        native._values = trainer._values.copy()
        trainer = native
    trainer.seed(3)  # as fit does, random numbers of the model too
    found = run(module, trainer, x, y, orders(3), target=target, batch_size=size)
    history = trainer.fit(x, list(y), epochs=3, batch_size=size, seed=3, verbose=0)
    assert_same(found, trainer, history)


@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        ({"batch_size": 4, "drop_last": True}, {"batch_size": 4, "drop_last": True}),
        ({"batch_size": 3}, {"batch_size": 3}),
        ({"batch_size": 11}, {"batch_size": 11}),
        ({"batch_size": 30}, {"batch_size": 30}),  # one batch, of the rows that there are
        ({"batch_size": 1}, {"batch_size": 1}),
        ({"batch_size": 4, "max_epochs": 3}, {"batch_size": 4}),
    ],
)
@pytest.mark.parametrize("name", ["adam", "mixed"])
def test_batches_are_cut_as_fit_cuts_them(name, options, fitting):
    make, x, y = MODELS[name]
    module = make()
    trainer = initial(module)
    trainer.seed(3)
    found = run(module, trainer, x, y, orders(3), **options)
    assert_same(found, trainer, trainer.fit(x, y, epochs=3, seed=3, verbose=0, **fitting))


def descent(rate, w, b, order):
    """Gradient descent in float64: losses of the epochs, parameters."""
    losses = []
    for epoch in order:
        total = 0.0
        for k in range(0, ROWS, 4):
            rows = epoch[k : k + 4]
            error = X[rows].astype(float) @ w + b - Y[rows]
            total += (error**2).sum()
            d = 2 * error / error.size
            w, b = w - rate * X[rows].T @ d, b - rate * d.sum(0)
        losses.append(total / Y.size)
    return losses, w, b


def test_it_is_what_numpy_does():
    module = line(optimizer=SGD(0.1))
    trainer = initial(module)
    start = [v.numpy().astype(float) for v in trainer._values.params]
    order = np.stack([RNG.permutation(ROWS), RNG.integers(0, ROWS, ROWS)])  # rows may come twice
    losses, done, (w, b), states, (steps,) = run(module, trainer, [X], [Y], order)
    expected, *params = descent(0.1, *start, order)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for got, wanted in zip((w, b), params, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert done == 2 and steps == 6 and states == ()


@pytest.mark.parametrize("most", [None, 5])
def test_epochs_that_are_not_asked_for_are_not_run(most):
    module = line()
    trainer = initial(module)
    before = [v.numpy().copy() for v in trainer._values.params]
    losses, done, params, _, states = run(module, trainer, [X], [Y], orders(5), 0, max_epochs=most)
    assert np.isnan(losses).all() and len(losses) == 5 and done == 0 and states[0] == 0
    for got, wanted in zip(params, before, strict=True):
        np.testing.assert_array_equal(got, wanted)
    found = run(module, trainer, [X], [Y], orders(5), 2, max_epochs=most)
    assert_same(found, trainer, trainer.fit([X], [Y], epochs=2, seed=3, verbose=0))


def below(epoch, losses):
    return R.take(losses, epoch) < 0.92


def patient(epoch, losses):
    """Two epochs without a new least loss."""
    known = R.where(R.isnan(losses), R.const(np.inf, "float64"), losses)
    return epoch - R.argmin(known) >= R.const(2, "int64")


@pytest.mark.parametrize("most", [None, 40])
@pytest.mark.parametrize("stop", [below, patient])
def test_it_stops_on_a_condition(stop, most):
    rate = 0.05 if stop is below else 0.6
    module = line(optimizer=SGD(rate))
    trainer = initial(module)
    order = orders(40)
    found = run(module, trainer, [X], [Y], order, stop=stop, max_epochs=most)
    start = [v.numpy().astype(float) for v in trainer._values.params]
    losses, *_ = descent(rate, *start, order)
    if stop is below:
        epochs = next(k for k, loss in enumerate(losses, 1) if loss < 0.92)
    else:
        epochs = next(k for k in range(3, 41) if np.argmin(losses[:k]) <= k - 3)
    assert 1 < epochs < 40 and found[1] == epochs
    assert_same(found, trainer, trainer.fit([X], [Y], epochs=epochs, seed=3, verbose=0))
    again = run(module, trainer, [X], [Y], order, 1, stop=stop, max_epochs=most)  # no more than it is asked for
    assert again[1] == 1


def test_a_batch_that_counts_nothing_counts_nothing():
    """Its loss is no number, and no part of the epoch's; an epoch of such batches has NaN."""
    module = line(CrossEntropyLoss(ignore_index=1), labels=CLASSES)
    labels = np.where(np.arange(ROWS) < 3, 0, 1)
    order = np.stack([np.arange(ROWS), np.r_[np.arange(3, ROWS), [5, 5, 5]]])
    trainer = initial(module)
    losses, *rest = run(module, trainer, [X], [labels], order)
    history = trainer.fit([X], [labels], epochs=1, shuffle=False, verbose=0)
    assert losses[0] == history[0].loss and np.isfinite(losses[0]) and np.isnan(losses[1])
    assert rest[0] == 2


# ---- the function


@pytest.fixture
def shifting():
    """A formula of its own, whose adjoint is a kernel of the shape at hand."""

    @register_op("own.test_join_run_shifted")
    def shifted(x):
        return te.compute(x.shape, lambda i, j: x[i, j] * x[i, (j + 1) % 3], "shifted")

    @I.ir_module
    class Shifted:
        @R.function
        def backbone(x: R.Tensor((4, 4), "float32"), w: R.Param((4, 3))):
            return R.own.test_join_run_shifted(R.matmul(x, w))

    yield Shifted
    del Op.registry["relax.own.test_join_run_shifted"]


def test_kernels_of_both_batch_sizes_are_kept_apart(shifting):
    module = SetupTrainer(MSELoss(), SGD(0.05), [info(4, 3), info(4, 3)], legalize=False)(shifting)
    joined = JoinRun(rows=ROWS)(module)
    assert len(joined.functions) > len(module.functions) + 3  # a kernel for three rows, besides the three functions
    trainer = initial(module)
    found = run(module, trainer, [X], [Y], orders(2))
    assert_same(found, trainer, trainer.fit([X], [Y], epochs=2, seed=3, verbose=0))


def test_of_a_legalized_module_it_is_in_ops():
    joined, plain = (JoinRun(rows=ROWS)(line(legalize=legalize)) for legalize in (True, False))
    assert called_functions(joined["__train_step"]) == []
    for name in (TRAIN, "__train_step", "__train_last_step"):
        assert_structural_equal(joined[name], plain[name])


@pytest.mark.parametrize("stop", [None, below])
def test_its_closed_form_means_the_same(stop):
    module = line()
    joined = JoinRun(rows=ROWS, stop=stop)(module)
    check_well_formed(joined)
    closed = transform.InlineFunctions()(joined)
    assert is_closed(closed[TRAIN]) and not is_closed(joined[TRAIN])
    trainer = initial(module)
    values = trainer._values
    arguments = [(X,), (Y,), *(tuple(v.numpy() for v in g) for g in (values.params, (), values.optimizer_states))]
    arguments += [np.array(3), orders(3)]
    as_written, as_closed = (flat(evaluate(m, TRAIN, arguments)) for m in (joined, closed))
    for one, other in zip(as_written, as_closed, strict=True):
        np.testing.assert_array_equal(one, other)


def flat(value):
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


def test_the_convention_says_what_it_takes():
    joined = JoinRun(rows=ROWS, batch_size=4)(mixed())
    roles = Convention.of(joined)[TRAIN]
    kinds = ["input"] * 2 + ["target"] + ["parameter"] * 2 + ["state"] * 2 + ["random state"]
    assert [kind for kind, _ in roles.takes[:8]] == kinds
    assert [kind for kind, _ in roles.takes[-2:]] == ["epochs", "row order"]
    assert roles.returns[:2] == (("epoch losses", 0), ("epochs", 0))
    assert roles.returns[2:] == roles.takes[3:-2]


def test_the_module_is_a_trainer_module_still():
    joined = JoinRun(rows=ROWS)(line())
    trainer, plain = initial(joined), initial(line())
    for one in (trainer, plain):
        one.fit(X, Y, epochs=2, seed=3, verbose=0)
    np.testing.assert_array_equal(trainer.predict(X).numpy(), plain.predict(X).numpy())
    assert repr(trainer.evaluate(X, Y)) == repr(plain.evaluate(X, Y))


@pytest.mark.parametrize(
    ("number", "message"), [(ROWS, "take: an index is outside"), (-1, "take: an index is outside")]
)
def test_row_numbers_that_are_none_are_an_error(number, message):
    module = line()
    order = orders(2)
    order[1, 9] = number  # in the batch of what is left
    with pytest.raises(ArgumentError, match=message):
        run(module, initial(module), [X], [Y], order)


def test_more_epochs_than_orders_are_an_error():
    module = line()
    with pytest.raises(ArgumentError, match="take: an index is outside"):
        run(module, initial(module), [X], [Y], orders(2), 3)
    with pytest.raises(ArgumentError, match="max_steps=2"):
        run(module, initial(module), [X], [Y], orders(2), 3, max_epochs=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JoinRun(rows=0)(line()), "rows must be an int ≥ 1, got 0"),
        (lambda: JoinRun(rows=ROWS, batch_size=True), "batch_size must be an int ≥ 1, got True"),
        (lambda: JoinRun(rows=ROWS, drop_last=1), "drop_last must be True or False"),
        (lambda: JoinRun(rows=ROWS, stop=0.1), "stop must be a function of graph values"),
        (lambda: JoinRun(rows=3, drop_last=True)(line()), "drop_last leaves no batch: there are 3 rows"),
        (lambda: JoinRun(rows=ROWS)(mixed()), "takes any number of rows, so JoinRun needs a batch_size"),
        (lambda: JoinRun(rows=ROWS)(Line), "this is no trainer module"),
        (lambda: JoinRun(rows=ROWS, stop=lambda e, losses: losses)(line()), "stop must give a bool scalar"),
    ],
)
def test_mistakes_are_told(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
