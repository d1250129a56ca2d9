"""Models of Keras train as Keras trains them: the same losses, and the same weights on their way back."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from keras import layers as L  # noqa: E402

import pullback  # noqa: E402
from pullback.ir.errors import UserError  # noqa: E402
from pullback.relax.frontend.keras import from_keras, to_keras  # noqa: E402
from tests.relax.frontend.keras.models import numbers, randomized  # noqa: E402

STEPS, ROWS = 10, 8


def compiled(model, loss="mse", optimizer="sgd", **options):
    model.compile(optimizer=optimizer, loss=loss, **options)
    return model


def train_both(model, inputs, targets, *, steps=STEPS, rtol=1e-4):
    """Ten steps of both sides with the same batches; returns the trainer."""
    net = from_keras(model)
    many = isinstance(targets, (list, tuple))
    trainer = pullback.trainer(net, net.loss, net.optimizer, targets=net.targets)
    for k in range(steps):
        rows = slice(k * ROWS % len(inputs[0]), k * ROWS % len(inputs[0]) + ROWS)
        x, y = [a[rows] for a in inputs], [t[rows] for t in targets] if many else targets[rows]
        mine = float(trainer.update(tuple(x), tuple(y) if many else y).numpy())
        theirs = model.train_on_batch(x if len(x) > 1 else x[0], y)
        model.reset_metrics()
        theirs = float(theirs[0] if isinstance(theirs, (list, tuple)) else theirs)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, err_msg=f"step {k}")
    return trainer


def check_weights(trainer, model, *, rtol=1e-3, atol=1e-4):
    """Weights that went back are those that Keras trained."""
    copy = keras.models.clone_model(model)
    to_keras(trainer, copy)
    for variable, mine, theirs in zip(model.weights, copy.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, err_msg=variable.path)
    return copy


def mlp(*, final="softmax", units=3, **options):
    layers = [keras.Input((6,)), L.Dense(8, activation="tanh", **options), L.Dense(units, activation=final)]
    return randomized(keras.Sequential(layers))


X, CLASSES = numbers((STEPS * ROWS, 6)), numbers((STEPS * ROWS,), "int64", high=3)


def test_mlp_trains_and_predicts_as_keras_does():
    model = compiled(mlp(), "sparse_categorical_crossentropy", keras.optimizers.SGD(0.1), metrics=["accuracy"])
    trainer = train_both(model, [X], CLASSES)
    copy = check_weights(trainer, model)
    np.testing.assert_allclose(trainer.predict(X).numpy(), copy.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


def test_cnn_trains_with_its_batch_norm():
    model = keras.Sequential([
        keras.Input((8, 8, 3)), L.Conv2D(6, 3, padding="same", use_bias=False), L.BatchNormalization(momentum=0.9),
        L.ReLU(), L.MaxPooling2D(), L.SeparableConv2D(8, 3, use_bias=False),
        L.BatchNormalization(epsilon=1e-2, scale=False), L.Activation("gelu"), L.GlobalAveragePooling2D(), L.Dense(3),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled(model, loss, keras.optimizers.Adam(1e-2))
    trainer = train_both(model, [numbers((80, 8, 8, 3))], CLASSES, rtol=1e-3)
    copy = check_weights(trainer, model, rtol=1e-2, atol=1e-3)
    x = numbers((4, 8, 8, 3), seed=5)
    np.testing.assert_allclose(trainer.predict(x).numpy(), copy.predict(x, verbose=0), rtol=1e-3, atol=1e-4)


def test_lstm_classifier_trains_with_masks():
    model = keras.Sequential([
        keras.Input((7,), dtype="int32"), L.Embedding(12, 6, mask_zero=True), L.Bidirectional(L.LSTM(5)),
        L.Dropout(0.0), L.Dense(1, activation="sigmoid"),
    ])  # fmt: skip
    compiled(model, "binary_crossentropy", keras.optimizers.RMSprop(1e-2))
    ids = numbers((80, 7), "int32", high=12)
    ids[::3, 4:] = 0
    trainer = train_both(model, [ids], (CLASSES[:, None] > 0).astype("float32"), rtol=5e-4)
    check_weights(trainer, model, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_mobilenet_trains_as_keras_does():
    # Of images this small the last norms see 8 values: if they train, a change of the data by 10⁻⁶ changes the second
    # loss by a tenth in Keras itself. So their statistics stay; test_cnn_trains_with_its_batch_norm trains norms.
    model = keras.applications.MobileNetV2(input_shape=(32, 32, 3), alpha=0.35, weights=None, classes=3)
    for layer in model.layers:
        layer.trainable = not isinstance(layer, L.BatchNormalization)
    compiled(model, "sparse_categorical_crossentropy", keras.optimizers.SGD(1e-2))
    x = numbers((24, 32, 32, 3))
    trainer = train_both(model, [x], CLASSES[:24], steps=3)
    trained = [np.array(w) for w in model.get_weights()]
    np.testing.assert_allclose(trainer.predict(x).numpy(), model.predict(x, verbose=0), rtol=1e-3, atol=1e-4)
    assert to_keras(trainer) is model
    for mine, theirs in zip(model.get_weights(), trained, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(1e-2, epsilon=1e-2),
    "amsgrad": lambda: keras.optimizers.Adam(1e-2, amsgrad=True, beta_2=0.9),
    "adamw": lambda: keras.optimizers.AdamW(1e-2, weight_decay=0.1),
    "nadam": lambda: keras.optimizers.Nadam(1e-2),
    "adamax": lambda: keras.optimizers.Adamax(1e-2, epsilon=1e-2),
    "rmsprop": lambda: keras.optimizers.RMSprop(1e-2, epsilon=1e-3),
    "rmsprop centered": lambda: keras.optimizers.RMSprop(1e-2, momentum=0.5, centered=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1, epsilon=1e-2),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "lion": lambda: keras.optimizers.Lion(1e-2, weight_decay=0.1),
    "clipped by value": lambda: keras.optimizers.SGD(0.5, clipvalue=0.05),
    "clipped by norm": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.1),
    "exponential decay": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 4, 0.5)),
    "staircase": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5, staircase=True)
    ),
    "cosine": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.CosineDecay(0.1, 6, warmup_steps=3, warmup_target=0.5), momentum=0.9
    ),
    "polynomial": lambda: keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.5, 6, power=2.0)),
    "piecewise": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.PiecewiseConstantDecay([3, 6], [0.5, 0.1, 0.01])
    ),
    "inverse time": lambda: keras.optimizers.SGD(keras.optimizers.schedules.InverseTimeDecay(0.5, 3, 0.5)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_follow_keras(name):
    model = compiled(mlp(), "sparse_categorical_crossentropy", OPTIMIZERS[name]())
    trainer = train_both(model, [X], CLASSES, rtol=5e-4)
    check_weights(trainer, model)


ONE_HOT = np.eye(3, dtype="float32")[CLASSES]
VALUES = numbers((80, 3), seed=3)
LOSSES = {
    "sparse": (lambda: "sparse_categorical_crossentropy", CLASSES, "softmax"),
    "sparse logits": (lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True), CLASSES, None),
    "categorical": (lambda: keras.losses.CategoricalCrossentropy(label_smoothing=0.1), ONE_HOT, "softmax"),
    "categorical logits": (lambda: keras.losses.CategoricalCrossentropy(from_logits=True), ONE_HOT, None),
    "binary": (lambda: keras.losses.BinaryCrossentropy(), ONE_HOT, "sigmoid"),
    "binary logits": (lambda: keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.2), ONE_HOT, None),
    "focal": (lambda: keras.losses.BinaryFocalCrossentropy(), ONE_HOT, "sigmoid"),
    "categorical focal": (lambda: keras.losses.CategoricalFocalCrossentropy(), ONE_HOT, "softmax"),
    "mse": (lambda: "mse", VALUES, None),
    "mse sum": (lambda: keras.losses.MeanSquaredError(reduction="sum"), VALUES, None),
    "mae": (lambda: "mean_absolute_error", VALUES, None),
    "mape": (lambda: keras.losses.MeanAbsolutePercentageError(), VALUES + 3, None),
    "msle": (lambda: keras.losses.MeanSquaredLogarithmicError(), np.abs(VALUES), "softplus"),
    "huber": (lambda: keras.losses.Huber(delta=0.5), VALUES, None),
    "log cosh": (lambda: keras.losses.LogCosh(), VALUES, None),
    "kl": (lambda: keras.losses.KLDivergence(), ONE_HOT * 0.7 + 0.1, "softmax"),
    "poisson": (lambda: keras.losses.Poisson(), np.abs(VALUES), "softplus"),
    "cosine": (lambda: keras.losses.CosineSimilarity(), VALUES, None),
    "hinge": (lambda: keras.losses.Hinge(), np.sign(VALUES), None),
    "squared hinge": (lambda: keras.losses.SquaredHinge(), np.sign(VALUES), None),
    "categorical hinge": (lambda: keras.losses.CategoricalHinge(), ONE_HOT, None),
    "tversky": (lambda: keras.losses.Tversky(), ONE_HOT, "sigmoid"),
    "own": (lambda: lambda y, p: keras.ops.mean(keras.ops.abs(y - p) ** 1.5, axis=-1), VALUES, None),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_keras(name):
    loss, targets, final = LOSSES[name]
    model = compiled(mlp(final=final), loss(), keras.optimizers.SGD(0.01))
    train_both(model, [X], targets, steps=3)


def test_several_outputs_have_losses_and_weights():
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    shared = L.Dense(5, activation="relu")
    x = L.Concatenate()([shared(a), shared(b)])
    model = keras.Model([a, b], {"class": L.Dense(3, name="class")(x), "value": L.Dense(2, name="value")(x)})
    losses = {
        "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "value": keras.losses.MeanSquaredError(),
    }
    with pytest.MonkeyPatch.context():
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss=losses, loss_weights={"class": 0.5, "value": 2.0})
    net = from_keras(model)
    trainer = pullback.trainer(net, net.loss, net.optimizer, targets=net.targets)
    for k in range(4):
        rows = slice(k * ROWS, (k + 1) * ROWS)
        mine = float(trainer.update((X[rows], X[rows][::-1]), (CLASSES[rows], VALUES[rows, :2])).numpy())
        targets = {"class": CLASSES[rows], "value": VALUES[rows, :2]}
        theirs = model.train_on_batch([X[rows], X[rows][::-1]], targets)
        model.reset_metrics()
        np.testing.assert_allclose(mine, np.ravel(theirs)[0], rtol=1e-4)


def test_regularizers_are_part_of_the_loss():
    options = {"kernel_regularizer": keras.regularizers.L1L2(0.01, 0.02), "bias_regularizer": "l2"}
    model = compiled(mlp(activity_regularizer="l1", **options), "sparse_categorical_crossentropy")
    trainer = train_both(model, [X], CLASSES)
    check_weights(trainer, model)


def test_regularizers_count_with_losses_of_pullback_too():
    model = mlp(kernel_regularizer=keras.regularizers.L2(0.1), final=None)
    net = from_keras(model)
    trainer = pullback.trainer(net, "cross_entropy", "sgd")
    kernel = np.asarray(model.layers[0].kernel)
    logits = np.asarray(model(X[:ROWS]), np.float64)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    wanted = -logs[np.arange(ROWS), CLASSES[:ROWS]].mean() + 0.1 * np.square(kernel).sum()
    np.testing.assert_allclose(float(trainer.update(X[:ROWS], CLASSES[:ROWS]).numpy()), wanted, rtol=1e-5)


def test_frozen_layers_stay_and_their_statistics_too():
    model = randomized(keras.Sequential([
        keras.Input((6,)), L.Dense(5), L.BatchNormalization(), L.Dense(3, activation="softmax"),
    ]))  # fmt: skip
    model.layers[0].trainable = model.layers[1].trainable = False
    compiled(model, "sparse_categorical_crossentropy", keras.optimizers.SGD(0.1))
    before = model.get_weights()
    trainer = train_both(model, [X], CLASSES)
    copy = check_weights(trainer, model)
    for old, new in zip(before[:6], copy.get_weights()[:6], strict=True):
        np.testing.assert_array_equal(old, new)
    assert trainer.trained == ("dense.kernel", "dense.bias") or len(trainer.trained) == 2


def test_dropout_drops_in_training_alone():
    model = keras.Sequential([keras.Input((400,)), L.Dropout(0.5), L.GaussianNoise(0.1), L.Dense(1, use_bias=False)])
    model.set_weights([np.full((400, 1), 1 / 400, "float32")])
    net = from_keras(model)
    trainer = pullback.trainer(net, "mse", pullback.optim.SGD(0.0))
    x, y = np.ones((64, 400), "float32"), np.ones((64, 1), "float32")
    losses = [float(trainer.update(x, y).numpy()) for _ in range(5)]
    assert len(set(losses)) == 5
    assert 0.5 / 400 < np.mean(losses) < 2.0 / 400  # the variance of a mean of 400 numbers that are 0 or 2
    np.testing.assert_allclose(trainer.predict(x).numpy(), y, rtol=1e-5)


def refused(model, text):
    net = from_keras(model)
    with pytest.raises(UserError, match=text):
        pullback.trainer(net, net.loss, net.optimizer)


def test_what_is_not_taken_over_says_so():
    refused(mlp(), "is not compiled with a loss")
    refused(compiled(mlp(), "mse", keras.optimizers.Ftrl()), "the optimizer Ftrl is not taken over")
    refused(compiled(mlp(), "mse", keras.optimizers.SGD(clipnorm=1.0)), "clipnorm is not taken over")
    refused(compiled(mlp(), "mse", keras.optimizers.Adam(use_ema=True)), "use_ema is not taken over")
    refused(compiled(mlp(), "crossentropy"), "depends on the targets")
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, L.Dense(2)(L.Embedding(4, 3, mask_zero=True)(ids)))
    refused(compiled(model), "an output of the model has a mask")
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=0)
    refused(compiled(mlp(), ignoring), "ignore_class")
