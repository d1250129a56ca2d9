"""Models as scikit-learn's estimators, for pipelines, cross-validation and searches over hyperparameters.

    >>> from pullback.sklearn import PullbackClassifier
    >>> model = make_pipeline(StandardScaler(), PullbackClassifier(epochs=30, lr=1e-3))
    >>> model.fit(x_train, y_train).score(x_test, y_test)

It takes scikit-learn: ``pip install 'pullback[sklearn]'``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import nn, optim
from pullback.ir.errors import ArgumentError, ShapeError, UserError, suggestion
from pullback.nn.train import trainer as make_trainer
from pullback.relax.struct_info import format_shape

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("pullback.sklearn needs scikit-learn ≥ 1.6: pip install 'pullback[sklearn]'") from error

__all__ = ["PullbackClassifier", "PullbackRegressor", "multilayer_perceptron"]

ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "logistic": nn.Sigmoid, "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip
_LOGITS, _LOG_PROBABILITIES = ("cross_entropy_loss",), ("nll_loss",)


class _Estimator(BaseEstimator):
    """What classifier and regressor have in common; scikit-learn reads the hyperparameters from ``__init__``."""

    def __init__(
        self,
        model: Any = None,
        loss: Any = "mse",
        optimizer: Any = "adam",
        *,
        lr: Any = None,
        epochs: int = 10,
        batch_size: int = 32,
        hidden_layer_sizes: Sequence[int] = (100,),
        activation: str = "relu",
        precision: str | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: Any = False,
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.precision = precision
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # ---- training ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train ``epochs`` epochs on the rows of ``X`` and ``y``; returns the estimator. With ``warm_start`` a fitted
        estimator goes on with what it has learnt.

        Args:
            X: the inputs, (rows, features); of more axes for a ``model``.
            y: the labels or targets of the rows.
            sample_weight: how much each row counts in the loss: (rows,), or a number.

        Returns:
            the estimator.

        Raises:
            ValueError: for inputs and targets that scikit-learn refuses.
            UserError: for hyperparameters that do not fit, and what ``pullback.trainer`` refuses.
        """
        going_on = self.warm_start and hasattr(self, "trainer_")
        return self._train(X, y, sample_weight, self.epochs, going_on)

    def _train(self, X: Any, y: Any, sample_weight: Any, epochs: int, going_on: bool) -> Any:
        X, y = validate_data(
            self, X, y, allow_nd=self.model is not None, dtype="numeric", multi_output=self._several_targets,
            y_numeric=self._several_targets, reset=not going_on,
        )  # fmt: skip
        X = self._inputs(X)
        weights = {}
        if sample_weight is not None:
            weights["sample_weight"] = _check_sample_weight(sample_weight, X, dtype=np.float32)
        targets = self._targets(y, going_on, weights.get("sample_weight"))
        if not going_on:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.trainer_ = self._trainer(X, targets)
        options = {"epochs": epochs, "batch_size": min(self._size, len(X)), "verbose": self.verbose}
        self.history_ = self.trainer_.fit(X, targets, **options, **weights)
        self.n_iter_ = self.trainer_.epochs
        return self

    def _inputs(self, X: np.ndarray) -> np.ndarray:
        """float64 becomes float32; so does what the model of hidden layers takes, whatever it is."""
        return X.astype(np.float32) if self.model is None or X.dtype == np.float64 else X

    def _trainer(self, X: np.ndarray, targets: np.ndarray) -> Any:
        net = self._module(X, self._outputs_of(targets))
        options: dict[str, Any] = {
            "example": X[:1],
            "targets": targets[:1],
            "seed": self._seed,
            "precision": self.precision,
        }
        return make_trainer(net, copy.deepcopy(self.loss), self._optimizer(), **options)

    def _module(self, X: np.ndarray, outputs: int) -> nn.Module:
        """A new module for these inputs: estimators change no hyperparameter."""
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if callable(self.model):
            made = self.model(int(np.prod(X.shape[1:])), outputs)
            if not isinstance(made, nn.Module):
                raise ArgumentError(
                    f"model must return an nn.Module, got {type(made).__name__}",
                    hint="model=lambda n_features, n_outputs: nn.Sequential(…)",
                )
            return made
        if self.model is not None:
            raise ArgumentError(
                f"model must be an nn.Module, a function that returns one, or None, got {self.model!r}",
                hint="model=lambda n_features, n_outputs: nn.Sequential(…)",
            )
        return multilayer_perceptron(X.shape[1], outputs, self.hidden_layer_sizes, self.activation)

    def _optimizer(self) -> Any:
        if not isinstance(self.optimizer, str):
            if self.lr is not None:
                raise ArgumentError(
                    "lr is for an optimizer that is given by name", hint="optimizer=optim.Adam(lr=…) has its own"
                )
            return copy.deepcopy(self.optimizer)
        if self.optimizer not in optim.BY_NAME or self.lr is None:
            return self.optimizer
        kind: Any = optim.BY_NAME[self.optimizer]
        return kind(lr=self.lr)

    # ---- predictions -------------------------------------------------------------------------------------------------

    def _predicted(self, X: Any) -> np.ndarray:
        """The model's output, float64 of (rows, …). All batches have one size, the last is filled up: so the model is
        compiled once, and what it says of a row does not depend on the others, to the last bit."""
        check_is_fitted(self, "trainer_")
        X = validate_data(self, X, allow_nd=self.model is not None, dtype="numeric", reset=False)
        X = self._inputs(X)
        size = self._size
        parts = []
        for start in range(0, len(X), size):
            batch = X[start : start + size]
            missing = size - len(batch)
            batch = np.concatenate([batch, np.repeat(batch[-1:], missing, 0)]) if missing else batch
            result = self.trainer_.predict(batch)
            result = result[0] if isinstance(result, tuple) else result
            parts.append(np.asarray(result, np.float64)[: size - missing])
        return np.concatenate(parts)

    @property
    def _size(self) -> int:
        if (
            isinstance(self.batch_size, bool)
            or not isinstance(self.batch_size, (int, np.integer))
            or self.batch_size < 1
        ):
            raise ArgumentError(f"batch_size must be an int ≥ 1, got {self.batch_size!r}")
        return int(self.batch_size)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trainer_")


class PullbackClassifier(ClassifierMixin, _Estimator):
    """A classifier for scikit-learn.

    Labels may be of any type. Inputs of float64 become float32, and for the perceptron all do. After ``fit``:
    ``classes_``, ``trainer_`` (the Trainer), ``history_``, ``n_iter_`` (epochs), ``n_features_in_``.

    Args:
        model: None for a perceptron with ``hidden_layer_sizes`` and ``activation``; a function
            ``(n_features, n_outputs) → nn.Module``; or an ``nn.Module``, of which each ``fit`` trains a copy. Its
            output is (rows, classes), for the losses "bce" and "bce_with_logits", of two classes, (rows, 1).
        loss: a name or a loss, as ``pullback.trainer`` takes.
        optimizer: an optimizer, of which each ``fit`` uses a copy, or a name: "adam", "sgd", ….
        lr: the learning rate of an optimizer that is given by name, a number or a schedule; None: its default.
        epochs: how many ``fit`` trains.
        batch_size: rows of a batch, at least 1; predictions are made in batches of as many.
        hidden_layer_sizes: of the perceptron, from the inputs to the outputs.
        activation: between its layers: "relu", "tanh", "sigmoid", "logistic", "gelu" or "silu".
        precision: that of ``pullback.trainer``: None is float32, "float16" and "bfloat16" are mixed precision.
        warm_start: whether ``fit`` goes on from what was learnt.
        random_state: the seed of initial values, of the order of rows and of dropout: an int, ``RandomState`` or None.
        verbose: whether the progress is shown.

    Examples:
        >>> from pullback.sklearn import PullbackClassifier
        >>> from sklearn.model_selection import GridSearchCV
        >>> model = PullbackClassifier(epochs=5, lr=1e-2, hidden_layer_sizes=(32,), random_state=0).fit(x, y)
        >>> model.predict(x[:5]).shape, model.predict_proba(x[:5]).shape
        ((5,), (5, 4))
        >>> search = GridSearchCV(PullbackClassifier(), {"lr": [1e-3, 1e-2], "hidden_layer_sizes": [(50,), (100, 100)]})
    """

    _several_targets = False

    def __init__(
        self,
        model: Any = None,
        loss: Any = "cross_entropy",
        optimizer: Any = "adam",
        *,
        lr: Any = None,
        epochs: int = 10,
        batch_size: int = 32,
        hidden_layer_sizes: Sequence[int] = (100,),
        activation: str = "relu",
        precision: str | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: Any = False,
    ) -> None:
        super().__init__(
            model, loss, optimizer, lr=lr, epochs=epochs, batch_size=batch_size, hidden_layer_sizes=hidden_layer_sizes,
            activation=activation, precision=precision, warm_start=warm_start, random_state=random_state,
            verbose=verbose,
        )  # fmt: skip

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> PullbackClassifier:
        """One epoch on these rows, going on from what was learnt.

        Args:
            X: the inputs, (rows, features); of more axes for a ``model``.
            y: the labels, (rows,).
            classes: all labels, needed in the first call unless ``y`` has them all.
            sample_weight: how much each row counts in the loss: (rows,), or a number.

        Returns:
            the estimator.

        Raises:
            ValueError: where ``classes`` are not those of the first call, and for labels that are none of them.
        """
        going_on = hasattr(self, "trainer_")
        if not going_on:
            self._asked = None if classes is None else np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not what partial_fit was first called with: {self.classes_!r}")
        try:
            return self._train(X, y, sample_weight, 1, going_on)
        finally:
            self._asked = None

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row: (rows,).

        Args:
            X: the inputs.

        Returns:
            labels, of the dtype of ``classes_``.

        Raises:
            NotFittedError: before ``fit``.
            ShapeError: where the model's output is not (rows, classes).
        """
        scores = self._scores(self._predicted(X))
        return self.classes_[scores.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class: (rows, classes).

        Args:
            X: the inputs.

        Returns:
            float64, in the order of ``classes_``.

        Raises:
            NotFittedError: before ``fit``.
            UserError: for a loss that knows no probabilities.
        """
        return self._probabilities(self._predicted(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of :meth:`predict_proba`.

        Args:
            X: the inputs.

        Returns:
            (rows, classes), float64.

        Raises:
            NotFittedError: before ``fit``.
            UserError: for a loss that knows no probabilities.
        """
        return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores from which the label follows: (rows, classes), of two classes (rows,), above 0 for the second.

        Args:
            X: the inputs.

        Returns:
            float64.

        Raises:
            NotFittedError: before ``fit``.
            ShapeError: where the model's output is not (rows, classes).
        """
        scores = self._scores(self._predicted(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @property
    def _binary(self) -> bool:
        """Whether the model has one output for two classes."""
        name = self.loss if isinstance(self.loss, str) else getattr(self.loss, "name", "")
        return name.removesuffix("_loss") in ("bce", "bce_with_logits")

    def _targets(self, y: np.ndarray, going_on: bool, weights: np.ndarray | None) -> np.ndarray:
        check_classification_targets(y)
        if not going_on:
            asked = getattr(self, "_asked", None)
            self.classes_ = np.unique(y) if asked is None else asked
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(f"y has labels that are not among the classes {self.classes_!r}: {np.unique(y[~known])!r}")
        counted = self.classes_ if weights is None else np.unique(y[weights > 0])
        if len(self.classes_) < 2 or (not going_on and len(counted) < 2):
            raise ValueError(f"a classifier needs rows of two classes or more; there is one class: {counted!r}")
        numbers = np.searchsorted(self.classes_, y).astype(np.int64)
        if not self._binary:
            return numbers
        if len(self.classes_) != 2:
            raise ArgumentError(f"the loss {self.loss!r} is for two classes, got {len(self.classes_)}")
        return numbers.astype(np.float32)[:, None]

    def _outputs_of(self, targets: np.ndarray) -> int:
        return 1 if self._binary else len(self.classes_)

    def _scores(self, outputs: np.ndarray) -> np.ndarray:
        classes = len(self.classes_)
        if self._binary and outputs.shape[1:] == (1,):
            middle = 0.5 if "logits" not in self.trainer_._interface.record.loss else 0.0
            return np.concatenate([np.zeros_like(outputs), outputs - middle], axis=1)
        if outputs.ndim != 2 or outputs.shape[1] != classes:
            wanted = format_shape((len(outputs), 1 if self._binary else classes))
            raise ShapeError(f"the model's output must be {wanted}, it is {format_shape(outputs.shape)}")
        return outputs

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        name = self.trainer_._interface.record.loss
        scores = self._scores(outputs)
        if self._binary:
            one = 1 / (1 + np.exp(-outputs)) if "logits" in name else outputs
            return np.concatenate([1 - one, one], axis=1)
        if name in _LOGITS:
            shifted = np.exp(scores - scores.max(1, keepdims=True))
        elif name in _LOG_PROBABILITIES:
            shifted = np.exp(scores)
        else:
            raise UserError(
                f"the loss {name} does not say which probabilities the model's outputs stand for",
                hint='"cross_entropy", "nll" and "bce_with_logits" do; decision_function(X) returns the outputs',
            )
        return shifted / shifted.sum(1, keepdims=True)


class PullbackRegressor(RegressorMixin, _Estimator):
    """A regressor for scikit-learn, of one target or of several: (rows,) or (rows, targets).

    Targets become float32, and are not scaled: a ``TransformedTargetRegressor`` does that. After ``fit``: ``trainer_``
    (the Trainer), ``history_``, ``n_iter_`` (epochs), ``n_features_in_``.

    Args:
        model: None for a perceptron with ``hidden_layer_sizes`` and ``activation``; a function
            ``(n_features, n_outputs) → nn.Module``; or an ``nn.Module``, of which each ``fit`` trains a copy. Its
            output is (rows, targets).
        loss: a name or a loss, as ``pullback.trainer`` takes.
        optimizer: an optimizer, of which each ``fit`` uses a copy, or a name: "adam", "sgd", ….
        lr: the learning rate of an optimizer that is given by name, a number or a schedule; None: its default.
        epochs: how many ``fit`` trains.
        batch_size: rows of a batch, at least 1; predictions are made in batches of as many.
        hidden_layer_sizes: of the perceptron, from the inputs to the outputs.
        activation: between its layers: "relu", "tanh", "sigmoid", "logistic", "gelu" or "silu".
        precision: that of ``pullback.trainer``: None is float32, "float16" and "bfloat16" are mixed precision.
        warm_start: whether ``fit`` goes on from what was learnt.
        random_state: the seed of initial values, of the order of rows and of dropout: an int, ``RandomState`` or None.
        verbose: whether the progress is shown.

    Examples:
        >>> from pullback.sklearn import PullbackRegressor
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> model = make_pipeline(StandardScaler(), PullbackRegressor(epochs=5, random_state=0))
        >>> model.fit(x, x.sum(1)).predict(x[:5]).shape
        (5,)
    """

    _several_targets = True

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> PullbackRegressor:
        """One epoch on these rows, going on from what was learnt.

        Args:
            X: the inputs, (rows, features); of more axes for a ``model``.
            y: the targets, (rows,) or (rows, targets).
            sample_weight: how much each row counts in the loss: (rows,), or a number.

        Returns:
            the estimator.
        """
        return self._train(X, y, sample_weight, 1, hasattr(self, "trainer_"))

    def predict(self, X: Any) -> np.ndarray:
        """The prediction for each row, in the form that ``y`` had.

        Args:
            X: the inputs.

        Returns:
            float64, (rows,) or (rows, targets).

        Raises:
            NotFittedError: before ``fit``.
        """
        outputs = self._predicted(X)
        return outputs.reshape(len(outputs)) if self._flat else outputs

    def _targets(self, y: np.ndarray, going_on: bool, weights: np.ndarray | None) -> np.ndarray:
        if not going_on:
            self._flat = y.ndim == 1
        return np.asarray(y, np.float32).reshape(len(y), -1)

    def _outputs_of(self, targets: np.ndarray) -> int:
        return targets.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def multilayer_perceptron(
    n_features: int, n_outputs: int, hidden_layer_sizes: Sequence[int] = (100,), activation: str = "relu"
) -> nn.Sequential:
    """Linear layers with an activation between them: what the estimators train by default.

    Args:
        n_features: columns of the input, (rows, n_features) of float32.
        n_outputs: columns of the output.
        hidden_layer_sizes: from the input to the output; an int is one layer, () none.
        activation: "relu", "tanh", "sigmoid", "logistic", "gelu" or "silu".

    Returns:
        the module.

    Raises:
        ArgumentError: for another activation.

    Examples:
        >>> from pullback.sklearn import multilayer_perceptron
        >>> len(multilayer_perceptron(16, 4, (32, 32)))
        5
    """
    sizes = [hidden_layer_sizes] if isinstance(hidden_layer_sizes, (int, np.integer)) else list(hidden_layer_sizes)
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"there is no activation {activation!r}{suggestion(activation, ACTIVATIONS)}",
            hint=f"the names are {', '.join(ACTIVATIONS)}",
        )
    layers: list[nn.Module] = []
    for inputs, outputs in zip([n_features, *sizes], sizes, strict=False):
        layers += [nn.Linear(int(inputs), int(outputs)), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(int(sizes[-1] if sizes else n_features), n_outputs))
