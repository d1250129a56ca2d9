"""Trainers of modules: short names, values that follow, frozen parameters, functions as losses, several inputs."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas
import pytest

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError, CallError, NoAttribute, ShapeError, UserError
from pullback.relax.training.loss import MSELoss
from tests.relax.training.test_trainer import mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int64")


def net():
    return nn.Sequential(nn.Linear(4, 6), nn.Lambda(lambda h: h.tanh()), nn.Linear(6, 2))


def trainer(model=None, loss="cross_entropy", optimizer="adam", **options):
    options.setdefault("target", "debug")
    return pullback.trainer(model or net(), loss, optimizer, example=X, **options)


def values(of):
    return {name: value.numpy() for name, value in of.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all((one[n] == other[n]).all() for n in one)


def test_ten_lines_train_natively():
    model = net()
    made = trainer(model, optimizer=optim.Adam(lr=0.05), target="llvm")
    history = made.fit(X, Y, epochs=20, batch_size=8, seed=0, validation=(X, Y))
    assert history.epochs[-1].loss < 0.3 < history.epochs[0].loss
    assert made.predict(X[:3]).shape == (3, 2)
    assert same(values(model), values(made))
    np.testing.assert_allclose(model(X).numpy(), made.predict(X).numpy(), rtol=1e-6)


def test_the_module_s_values_are_the_trainer_s():
    model = net()
    first = trainer(model)
    before = values(model)
    first.update(X, Y)
    assert same(values(model), values(first))
    assert not same(values(model), before)
    second = trainer(model)  # goes on from there
    assert same(values(second), values(first))
    second.update(X, Y)
    assert same(values(model), values(second))
    assert not same(values(first), values(second))


def test_values_that_are_given_or_loaded_stay():
    model = net()
    model[0].weight.data = np.full((6, 4), 0.5)
    made = trainer(model, seed=3)
    assert (made.params["0.weight"].numpy() == 0.5).all()
    made.load_state_dict({name: value + 1 for name, value in values(made).items()})
    assert (model[0].weight.numpy() == 1.5).all()
    fresh = trainer(model, init={"2.*": "zeros"})
    assert (fresh.params["0.weight"].numpy() == 1.5).all()
    assert not fresh.params["2.weight"].numpy().any()


def test_seeds_decide_initial_values():
    assert same(values(trainer(seed=5)), values(trainer(seed=5)))
    assert not same(values(trainer(seed=5)), values(trainer(seed=6)))


def test_copies_of_a_module_do_not_follow_the_trainer():
    model = net()
    made = trainer(model)
    other = copy.deepcopy(model)
    made.update(X, Y)
    assert not same(values(other), values(made))


def test_trainers_of_modules_are_copied_and_pickled():
    made = trainer()
    made.update(X, Y)
    with pytest.warns(UserWarning, match="left out of the trainer.s pickle"):  # for its lambda
        pickled = pickle.loads(pickle.dumps(made))
    for other in (copy.deepcopy(made), pickled):
        assert same(values(other), values(made))
        assert other.update(X, Y).item() == copy.deepcopy(made).update(X, Y).item()


@pytest.mark.parametrize("wrapped", [False, True])
def test_frozen_parameters_stay_and_have_no_state(wrapped):
    model = net()
    model[0].requires_grad_(False)
    optimizer = optim.Adam(lr=0.1)
    made = trainer(model, optimizer=optim.ClipByGlobalNorm(optimizer, 1.0) if wrapped else optimizer)
    before = values(made)
    made.fit(X, Y, epochs=2, batch_size=8)
    after = values(made)
    assert [n for n in before if (before[n] == after[n]).all()] == ["0.weight", "0.bias"]
    assert sum("of 0." in label for label in made._interface.record.optimizer_states) == 0
    model.requires_grad_(True)
    again = trainer(model)  # unfrozen, from what was trained
    assert same(values(again), after)
    model.requires_grad_(False)
    with pytest.raises(ArgumentError, match="all parameters are frozen"):
        trainer(model)


def test_groups_match_dotted_names():
    made = trainer(optimizer=optim.ParameterGroups(optim.SGD(lr=0.1), {"0.*": {"frozen": True}}))
    before = values(made)
    made.update(X, Y)
    assert [n for n, v in values(made).items() if (before[n] == v).all()] == ["0.weight", "0.bias"]


def test_checkpoints_have_dotted_names(tmp_path):
    made = trainer()
    made.update(X, Y)
    made.save(tmp_path / "a.safetensors")
    other = trainer()
    other.load(tmp_path / "a.safetensors")
    assert same(values(other), values(made))


class Pair(nn.Module):
    def __init__(self):
        self.encode, self.decode = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x, shift):
        code = self.encode(x + shift)
        return self.decode(code), code


def test_functions_are_losses_of_outputs_and_targets():
    def loss(reconstruction, code, target):
        return MSELoss()(reconstruction, target) + 0.1 * code.abs().mean()

    shift = RNG.normal(size=(24, 4)).astype("float32")
    made = pullback.trainer(Pair(), loss, "sgd", example=(X, shift), target="debug")
    found = made.update([X, shift], X).item()
    fresh = pullback.trainer(Pair(), loss, "sgd", example=(X, shift), target="debug")
    reconstruction, code = (t.numpy() for t in fresh.predict(X, shift))
    expected = ((reconstruction - X) ** 2).mean() + 0.1 * np.abs(code).mean()
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "match"),
    [
        (lambda prediction: None, "returns None, not a graph value"),
        (lambda: 1.0, "must take the model's output"),
        (lambda *outputs: outputs[0].mean(), "must take the model's output"),
        ("cross_entropie", "no loss 'cross_entropie'"),
    ],
)
def test_losses_that_are_none(loss, match):
    with pytest.raises(ArgumentError, match=match):
        trainer(loss=loss)


def test_arrays_say_the_types_of_targets():
    made = trainer(loss=lambda p, t, w: (((p - t) ** 2).mean(1) * w).mean(), targets=[np.zeros((9, 2)), np.zeros(9)])
    made.update(X, [np.zeros((24, 2), "float32"), np.ones(24, "float32")])


def test_models_without_or_with_too_much_of_an_example():
    with pytest.raises(ArgumentError, match=r"needs an example(.|\n)*example=x_train"):
        pullback.trainer(net(), "cross_entropy", "adam")
    with pytest.raises(ArgumentError, match=r"example= is for an nn\.Module"):
        pullback.trainer(mlp(), "cross_entropy", "adam", example=X)
    with pytest.raises(ShapeError, match=r"0 \(Linear\)"):
        pullback.trainer(net(), "cross_entropy", "adam", example=X[:, :3])


def test_a_batch_may_be_fixed():
    spec = pullback.relax.TensorStructInfo((8, 4), "float32")
    made = pullback.trainer(net(), "cross_entropy", "adam", example=spec, target="debug")
    assert made._interface.batch == 8
    made.fit(X[:20], Y[:20])
    assert made.predict(X[:3]).shape == (3, 2)


def test_scripts_take_patterns_of_initial_values():
    made = pullback.trainer(mlp(), "cross_entropy", "sgd", init={"w*": 0.25}, target="debug")
    names = [n for n in made.params if n.startswith("w")]
    assert names
    assert all((made.params[n].numpy() == 0.25).all() for n in names)


def test_state_dicts_that_do_not_fit_change_nothing():
    made = trainer()
    before = values(made)
    with pytest.raises(ArgumentError, match=r"missing 0\.bias"):
        made.load_state_dict({n: v for n, v in before.items() if n != "0.bias"})
    with pytest.raises(ShapeError, match=r"0\.bias has shape"):
        made.load_state_dict(before | {"0.bias": np.zeros(5)})
    assert same(values(made), before)


def test_what_people_bring_from_elsewhere_is_explained():
    with pytest.raises(ArgumentError, match=r"the class Linear(.|\n)*make one"):
        pullback.trainer(nn.Linear, "mse", "adam", example=X)
    with pytest.raises(CallError, match="not given the parameters"):
        optim.Adam(net().parameters(), lr=1e-3)
    with pytest.raises(ArgumentError, match=r"net\.export\(example\)"):
        pullback.training.SetupTrainer(MSELoss(), optim.Adam(), [])(net())
    with pytest.raises(NoAttribute, match=r"pullback\.trainer\(net, loss"):
        net().fit(X, Y)


@pytest.mark.parametrize(
    ("loss", "word"),
    {
        "sparse_categorical_crossentropy": '"cross_entropy"', "categorical_crossentropy": 'targets="one-hot"',
        "MSELoss": '"mse"', "l1_loss": '"l1"', "mean_squared_error": '"mse"', "crossentropy": "cross_entropy",
    }.items(),
)  # fmt: skip
def test_losses_have_names_elsewhere(loss, word):
    with pytest.raises(ArgumentError) as caught:
        trainer(loss=loss)
    assert word in caught.value.message


def test_probabilities_for_a_loss_of_logits_are_noticed():
    def end(loss, *layers):
        pullback.trainer(nn.Sequential(nn.Linear(4, 2), *layers), loss, "sgd", example=X, target="debug")

    with pytest.warns(UserWarning, match=r"ends in a softmax.*\"nll\" takes the results of a log_softmax") as caught:
        end("cross_entropy", nn.Softmax(dim=1))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"ends in a sigmoid.*\"bce\" takes"):
        end("bce_with_logits", nn.Sigmoid())
    with pytest.warns(UserWarning, match=r"ends in a linear.*a sigmoid; \"bce_with_logits\" takes it as it is"):
        end("bce")
    with pytest.warns(UserWarning, match=r"ends in an add.*a log_softmax; \"cross_entropy\" takes it as it is"):
        end("nll", nn.Lambda(lambda x: x + 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end("cross_entropy")
        end("bce", nn.Sigmoid())
        end("nll", nn.LogSoftmax(dim=1))


def test_examples_are_inputs_alone():
    batch = (np.zeros((2, 4), "float32"), np.zeros(2, "int64"))
    with pytest.raises(ArgumentError, match=r"of a batch \(x, y\) the example is x"):
        pullback.trainer(nn.Linear(4, 2), "cross_entropy", "adam", example=batch)
    with pytest.raises(ArgumentError, match=r"Linear.forward takes(.|\n)*of a batch \(x, y\) the example is x"):
        pullback.trainer(nn.Sequential(nn.Sequential(nn.Linear(4, 2))), "cross_entropy", "adam", example=batch)
    with pytest.raises(ArgumentError, match=r"is a zip, not an array(.|\n)*next\(iter\(loader\)\)\[0\]"):
        pullback.trainer(net(), "cross_entropy", "adam", example=zip(*batch, strict=True))


def test_data_frames_are_examples():
    frame = pandas.DataFrame({"a": [0.5, 1.5], "b": [1, 2], "c": [True, False], "d": [0, 1]})
    made = pullback.trainer(net(), "cross_entropy", "adam", example=frame, target="debug")
    assert made.predict(frame).shape == (2, 2)
    with pytest.raises(ArgumentError, match="the columns d hold no plain numbers"):
        pullback.trainer(net(), "cross_entropy", "adam", example=frame.assign(d="red"))


def test_an_optimizer_that_writes_its_own_function_cannot_freeze():
    class Own(optim.Optimizer):
        def __init__(self):
            super().__init__("Own")

        def get_function(self):
            return super().get_function()

    model = net()
    model[0].requires_grad_(False)
    with pytest.raises(UserError, match=r"cannot freeze 0\.weight, 0\.bias"):
        trainer(model, optimizer=Own())


def test_values_given_to_the_module_are_the_trainer_s():
    """As in PyTorch, where there is one set of them: pretrained ones may be loaded when the trainer is made already."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    made = trainer(model)
    made.update(X, Y)
    state = {name: np.full_like(value, 2) for name, value in values(model).items()}
    model.load_state_dict(state)
    assert same(values(made), state)
    assert same(values(model), state)
    model[1].running_mean = np.arange(6)
    model[2].bias.data = [3, 4]
    with pytest.raises(ShapeError):
        model[2].bias.data = [3, 4, 5]
    assert made.states["1.running_mean"].numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert made.params["2.bias"].numpy().tolist() == [3, 4]
    np.testing.assert_allclose(model(X).numpy(), made.predict(X).numpy(), rtol=1e-6)
    other = copy.deepcopy(made)
    other.model.load_state_dict(state)
    assert same(values(other), state)
    assert made.params["2.bias"].numpy().tolist() == [3, 4]


def test_what_is_frozen_after_the_trainer_was_made_is_told():
    model = net()
    made = trainer(model)
    made.fit(X, Y, verbose=False)
    model[0].requires_grad_(False)
    with pytest.warns(UserWarning, match=r"0\.weight, 0\.bias was changed(.|\n)*0\.weight is trained") as told:
        made.fit(X, Y, verbose=False)
    assert told[0].filename == __file__
    again = trainer(model)
    again.fit(X, Y, verbose=False)
    model.requires_grad_(True)
    with pytest.warns(UserWarning, match=r"in which 0\.weight is frozen"):
        copy.deepcopy(again).fit(X, Y, verbose=False)


def test_attributes_of_the_users_own_are_no_hooks() -> None:
    """A model may call its parts as imported models call what they say of themselves."""

    class Net(nn.Module):
        def __init__(self) -> None:
            self.example, self.adapted = nn.Linear(3, 4), nn.Linear(4, 2)
            self.input_names = ["a"]

        def forward(self, x):
            return self.adapted(self.example(x))

    x = np.ones((5, 3), "float32")
    with pytest.raises(ArgumentError, match="needs an example of its input"):
        pullback.trainer(Net(), "mse", "sgd")
    trainer = pullback.trainer(Net(), "mse", "sgd", example=x)
    assert trainer.predict(x).shape == (5, 2)
    assert trainer.mod["backbone"].params[0].name == "x"
