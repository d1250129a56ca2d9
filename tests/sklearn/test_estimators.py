"""The estimators of scikit-learn: its own checks of them, pipelines, searches, pickles, and models of one's own."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax.training import Trainer
from pullback.script import relax as R
from pullback.sklearn import PullbackClassifier, PullbackRegressor

IRIS = load_iris()
X, Y = StandardScaler().fit_transform(IRIS.data), IRIS.target
NAMES = IRIS.target_names[Y]
SMALL = {"epochs": 20, "batch_size": 50, "hidden_layer_sizes": (8,), "lr": 0.02, "random_state": 0}


class Net(nn.Module):
    """A model with an attribute of its own, at the top level, so that it can be pickled."""

    def __init__(self, n_features: int, n_outputs: int):
        self.first, self.last = nn.Linear(n_features, 6), nn.Linear(6, n_outputs)

    def forward(self, x):
        return self.last(R.tanh(self.first(x)))


@pytest.fixture(scope="module")
def fitted() -> PullbackClassifier:
    return PullbackClassifier(**SMALL).fit(X, NAMES)


EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows that weigh 0 stand in batches, rows that are left out do not"
}
if "sample_weight" not in inspect.signature(Trainer.fit).parameters:
    EXPECTED |= dict.fromkeys(
        [
            "check_sample_weights_pandas_series", "check_sample_weights_not_an_array", "check_sample_weights_list",
            "check_sample_weights_shape", "check_sample_weights_not_overwritten",
            "check_classifiers_one_label_sample_weights",
        ],
        "fit takes no sample_weight",
    )  # fmt: skip


@pytest.mark.parametrize("kind", [PullbackClassifier, PullbackRegressor])
def test_scikit_learns_own_checks(kind):
    check_estimator(kind(epochs=20, lr=0.01), expected_failed_checks=EXPECTED, on_skip=None)


def test_labels_and_attributes(fitted):
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    assert fitted.score(X, NAMES) > 0.9 and fitted.predict(X[:3]).dtype == fitted.classes_.dtype
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (150, 3) and np.allclose(probabilities.sum(1), 1)
    scores = fitted.decision_function(X)
    assert (fitted.classes_[scores.argmax(1)] == fitted.predict(X)).all()
    assert np.allclose(np.exp(fitted.predict_log_proba(X)), probabilities)
    assert fitted.n_features_in_ == 4 and fitted.n_iter_ == 20 and fitted.trainer_.steps == 60
    assert len(fitted.history_.epochs) == 20


def test_a_model_of_hidden_layers_is_the_modules(fitted):
    """The estimator computes what a trainer of the same module does, with the same seed."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    x = X.astype(np.float32)
    trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=0.02), example=x, seed=seed)
    trainer.fit(x, Y, epochs=20, batch_size=50)
    assert np.array_equal(trainer.predict(x[:50]).numpy(), np.float32(fitted._predicted(X[:50])))


def test_random_state_decides_and_clones_are_unfitted(fitted):
    other = clone(fitted)
    assert not hasattr(other, "trainer_")
    assert np.array_equal(other.fit(X, NAMES).predict_proba(X), fitted.predict_proba(X))
    assert not np.array_equal(clone(fitted).set_params(random_state=1).fit(X, NAMES).predict_proba(X[:50]),
                              fitted.predict_proba(X[:50]))  # fmt: skip


@pytest.mark.parametrize("by", ["pickle", "joblib"])
def test_fitted_estimators_are_pickled(fitted, by, tmp_path):
    if by == "pickle":
        made = pickle.loads(pickle.dumps(fitted))
    else:
        joblib.dump(fitted, tmp_path / "model.joblib")
        made = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(made.predict_proba(X), fitted.predict_proba(X))
    again = [
        e.set_params(warm_start=True).fit(X, NAMES).predict_proba(X) for e in (made, pickle.loads(pickle.dumps(fitted)))
    ]
    assert np.array_equal(*again) and made.n_iter_ == 40


def test_a_grid_search_over_a_pipeline_in_two_processes():
    pipeline = make_pipeline(StandardScaler(), PullbackClassifier(Net, **{k: v for k, v in SMALL.items() if k != "lr"}))
    search = GridSearchCV(pipeline, {"pullbackclassifier__lr": [1e-4, 0.03]}, cv=2, n_jobs=2)
    search.fit(IRIS.data, NAMES)
    assert search.best_params_ == {"pullbackclassifier__lr": 0.03} and search.best_score_ > 0.9
    assert search.best_estimator_.predict(IRIS.data[:2]).tolist() == ["setosa", "setosa"]


def test_regression_of_one_target_and_of_two():
    target = X @ np.array([1.0, -2.0, 0.5, 1.5])
    scores = cross_val_score(
        PullbackRegressor(**{**SMALL, "epochs": 60}), X, target, cv=KFold(2, shuffle=True, random_state=0)
    )
    assert scores.min() > 0.8
    two = PullbackRegressor(**SMALL).fit(X, np.stack([target, -target], axis=1))
    assert two.predict(X).shape == (150, 2)
    assert PullbackRegressor(**SMALL).fit(X, target).predict(X).shape == (150,)


@pytest.mark.parametrize("loss", ["bce_with_logits", "cross_entropy"])
def test_two_classes(loss):
    x, y = X[:100], NAMES[:100]
    model = PullbackClassifier(loss=loss, **SMALL).fit(x, y)
    assert model.score(x, y) > 0.95
    scores, probabilities = model.decision_function(x), model.predict_proba(x)
    assert scores.shape == (100,) and probabilities.shape == (100, 2)
    assert ((scores > 0) == (model.predict(x) == model.classes_[1])).all()
    assert np.allclose(probabilities[:, 1], 1 / (1 + np.exp(-scores)))


def test_modules_and_images():
    digits = load_digits()
    images, labels = digits.images[:200, None] / 16.0, digits.target[:200]
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model = PullbackClassifier(net, optimizer=optim.SGD(lr=0.3), epochs=15, random_state=0).fit(images, labels)
    assert model.score(images, labels) > 0.9
    assert model.model is net and model.trainer_.model is not net  # hyperparameters stay as they are


def test_partial_fit():
    model = PullbackClassifier(**SMALL)
    for _ in range(25):
        for start in (0, 75):
            order = np.random.default_rng(0).permutation(150)[start : start + 75]
            model.partial_fit(X[order], NAMES[order], classes=np.unique(NAMES))
    assert model.n_iter_ == 50 and model.score(X, NAMES) > 0.9
    with pytest.raises(ValueError, match="is not what partial_fit was first called with"):
        model.partial_fit(X, NAMES, classes=["a", "b"])
    with pytest.raises(ValueError, match="labels that are not among the classes"):
        model.partial_fit(X, np.full(150, "rose"))


def test_mistakes():
    for options, error, message in (
        ({"model": 3}, ArgumentError, "model must be an nn.Module, a function that returns one, or None, got 3"),
        ({"model": lambda n, k: k}, ArgumentError, "model must return an nn.Module, got int"),
        ({"activation": "rely"}, ArgumentError, "no activation 'rely'.*relu"),
        ({"batch_size": 0}, ArgumentError, "batch_size must be an int ≥ 1, got 0"),
        ({"optimizer": optim.Adam(), "lr": 0.1}, ArgumentError, "lr is for an optimizer that is given by name"),
        ({"loss": "bce_with_logits"}, ArgumentError, "is for two classes, got 3"),
        ({"optimizer": "adamm"}, ArgumentError, "no optimizer 'adamm'"),
    ):
        with pytest.raises(error, match=message):
            PullbackClassifier(**{**SMALL, **({"lr": None} if "optimizer" in options else {}), **options}).fit(X, NAMES)
    wrong = PullbackClassifier(nn.Linear(4, 5), epochs=1).fit(X, Y)
    with pytest.raises(ShapeError, match=r"output must be \(150, 3\), it is \(150, 5\)"):
        wrong.predict(X)
    margin = PullbackClassifier(loss=lambda scores, labels: R.mean((scores - 1.0) * (scores - 1.0)), **SMALL)
    with pytest.raises(UserError, match="does not say which probabilities"):
        margin.fit(X, Y).predict_proba(X)


def test_without_scikit_learn():
    program = "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None; import pullback.sklearn"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "needs scikit-learn ≥ 1.6: pip install 'pullback[sklearn]'" in done.stderr.splitlines()[-1]


def test_the_package_imports_without_it():
    done = subprocess.run([sys.executable, "-c", "import pullback, sys; sys.exit('sklearn' in sys.modules)"])
    assert done.returncode == 0
