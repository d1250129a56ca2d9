"""Copies and pickles of modules and of the trainers that train them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.script import relax as R

X = np.random.default_rng(0).random((12, 4), dtype=np.float32)
Y = np.arange(12) % 3


class Net(nn.Module):
    def __init__(self):
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.count = nn.Buffer(np.zeros((), "float32"))
        self.scale = nn.Buffer(np.full(3, 2.0, "float32"), persistent=False)

    def forward(self, x):
        self.count = self.count + 1.0
        return self.last(R.nn.relu(self.first(x))) * self.scale


def trained() -> pullback.relax.training.Trainer:
    trainer = pullback.trainer(Net(), "cross_entropy", "adam", example=X, seed=3)
    trainer.fit(X, Y, epochs=2, batch_size=6)
    return trainer


def values(owner) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in owner.state_dict().items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def trainer():
    return trained()


def joblib_copy(trainer, tmp_path):
    joblib.dump(trainer, tmp_path / "trainer.joblib")
    return joblib.load(tmp_path / "trainer.joblib")


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "joblib"])
def test_a_copy_goes_on_as_the_original(trainer, way, tmp_path):
    ways = {
        "deepcopy": copy.deepcopy, "pickle": lambda t: pickle.loads(pickle.dumps(t)),
        "joblib": lambda t: joblib_copy(t, tmp_path),
    }  # fmt: skip
    original = ways["deepcopy"](trainer)
    made = ways[way](trainer)
    assert same(values(made), values(trainer)) and made.epochs == trainer.epochs
    for t in (original, made):
        t.fit(X, Y, epochs=1, batch_size=6)
    assert same(values(made), values(original)) and not same(values(made), values(trainer))


def test_the_copy_has_a_model_of_its_own(trainer):
    made = pickle.loads(pickle.dumps(trainer))
    assert isinstance(made.model, Net) and made.model is not trainer.model
    before = values(trainer)
    made.update(X, Y)
    assert same(values(made.model), values(made)) and not same(values(made), before)
    assert same(values(trainer.model), before)
    assert np.array_equal(made.model.scale.numpy(), np.full(3, 2.0, "float32"))
    assert "first.weight" in str(made) and "Net" in str(made)


def test_values_are_kept_once():
    wide = nn.Linear(100, 1000)
    trainer = pullback.trainer(wide, "mse", "sgd", example=np.zeros((2, 100), "float32"))
    assert len(pickle.dumps(trainer)) < 1.5 * 4 * 101_000


def test_modules_are_pickled_with_their_values(trainer):
    made = pickle.loads(pickle.dumps(trainer.model))
    assert same(values(made), values(trainer))
    again = pullback.trainer(made, "cross_entropy", "adam", example=X)
    assert np.array_equal(again.predict(X).numpy(), trainer.predict(X).numpy())
    assert same(values(copy.deepcopy(Net().init_parameters(5))), values(Net().init_parameters(5)))


def test_a_module_that_cannot_be_pickled_is_left_out():
    trainer = pullback.trainer(nn.Sequential(nn.Linear(4, 3), nn.Lambda(lambda x: x * 2.0)), "mse", "sgd", example=X)
    with pytest.warns(UserWarning, match="the module is left out of the trainer's pickle, which holds its values"):
        made = pickle.loads(pickle.dumps(trainer))
    assert made.model is None and same(values(made), values(trainer))
    assert copy.deepcopy(trainer).model is not None
    made.summary()


def test_a_function_that_has_no_name_is_not_pickled():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(nn.Lambda(lambda x: x))


def test_another_process_goes_on_bit_for_bit(trainer, tmp_path):
    (tmp_path / "trainer.pickle").write_bytes(pickle.dumps(trainer))
    program = (
        "import pickle, sys; from tests.nn.test_copies import X, Y; t = pickle.load(open(sys.argv[1], 'rb'));"
        "t.fit(X, Y, epochs=1, batch_size=6); sys.stdout.write(t.predict(X).numpy().tobytes().hex())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "trainer.pickle")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    here = copy.deepcopy(trainer)
    here.fit(X, Y, epochs=1, batch_size=6)
    assert done.stdout.splitlines()[-1] == here.predict(X).numpy().tobytes().hex()
