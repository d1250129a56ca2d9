"""Models of Keras as a whole: names, sharing, nesting, layers of one's own, and what cannot be converted."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from keras import layers as L  # noqa: E402
from keras import ops as K  # noqa: E402

import pullback  # noqa: E402
from pullback.ir.errors import ArgumentError, NameNotFound, ShapeError, UserError  # noqa: E402
from pullback.relax.frontend import UnsupportedOps, converters, register_converter  # noqa: E402
from pullback.relax.frontend.keras import KERAS, from_keras, to_keras  # noqa: E402
from pullback.script import relax as R  # noqa: E402
from tests.relax.frontend.keras.models import check_forward, interpreted, numbers, randomized  # noqa: E402


def test_parameters_have_the_names_of_layers_and_states_are_buffers():
    inner = keras.Sequential([keras.Input((4,)), L.Dense(3, name="dense")], name="inner")
    x = keras.Input((4,))
    y = L.BatchNormalization(name="norm")(L.Dense(4, name="dense")(x))
    model = keras.Model(x, inner(y))
    net = check_forward(model, numbers((5, 4)))
    assert [n for n, _ in net.named_parameters()] == [
        "dense.kernel", "dense.bias", "norm.gamma", "norm.beta", "inner.dense.kernel", "inner.dense.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_buffers()] == ["norm.moving_mean", "norm.moving_variance"]
    assert net.get_parameter("inner.dense.kernel").shape == (4, 3)
    assert net.paths["dense.bias"] == model.get_layer("dense").bias.path


def test_shared_layers_are_held_once_and_inputs_keep_their_order():
    a, b = keras.Input((4,), name="b"), keras.Input((3,), name="a")
    dense = L.Dense(5)
    both = L.Concatenate()([a, b])
    x = dense(dense(L.Dense(5)(both)))
    net = check_forward(keras.Model([a, b], [x, both]), numbers((2, 4)), numbers((2, 3)))
    assert len(list(net.parameters())) == 4


def test_tied_embeddings():
    ids = keras.Input((6,), dtype="int32")
    table = L.ReversibleEmbedding(11, 4)
    net = check_forward(keras.Model(ids, table(table(ids), reverse=True)), numbers((2, 6), "int32", high=11))
    assert len(list(net.parameters())) == 1


def test_inputs_and_outputs_may_be_dicts():
    inputs = {"b": keras.Input((3,), name="b"), "a": keras.Input((2,), name="a")}
    outputs = {"sum": K.sum(inputs["a"], axis=1), "twice": inputs["b"] * 2}
    model = keras.Model(inputs, outputs)
    net = from_keras(model)
    data = {"a": numbers((4, 2)), "b": numbers((4, 3))}
    wanted = model(data)
    found = interpreted(net, *(data[t.name] for t in model.inputs))
    for mine, name in zip(found, sorted(outputs), strict=True):
        np.testing.assert_allclose(mine, np.asarray(wanted[name]), rtol=1e-6)


def test_sizes_that_keras_leaves_open_are_symbolic():
    x = keras.Input((None, 3))
    model = keras.Model(x, L.Conv1D(2, 3, padding="same")(L.LSTM(4, return_sequences=True)(x)))
    net = check_forward(model, numbers((2, 5, 3)))
    np.testing.assert_allclose(
        interpreted(net, numbers((3, 7, 3)))[0], np.asarray(model(numbers((3, 7, 3)))), rtol=2e-5, atol=1e-5
    )
    module = net.export(*net.example)
    assert not any(isinstance(s, int) for s in module["backbone"].params[0].struct_info.shape[:2])


def test_open_sizes_of_an_axis_are_one_where_the_model_needs_it():
    a, b, c = keras.Input((None, 3)), keras.Input((None,)), keras.Input((None, 3))
    weighed = K.sum(a * K.expand_dims(b, -1), axis=1)
    model = keras.Model([a, b], weighed)
    check_forward(model, numbers((2, 5, 3)), numbers((2, 5)))
    model = keras.Model([a, c], [K.sum(a, axis=1), K.sum(c, axis=1)])
    check_forward(model, numbers((2, 5, 3)), numbers((2, 7, 3)))


def test_an_example_says_what_sizes_are():
    x = keras.Input((None, 3))
    model = keras.Model(x, L.GlobalMaxPooling1D()(x))
    net = from_keras(model, example=R.Tensor(("n", 9, 3), "float32"))
    assert net.example[0].shape[1] == 9


class Scaled(L.Layer):
    """A layer of the user's, which counts its calls and adds a term to the loss."""

    def build(self, shape):
        self.scales = [self.add_weight((shape[-1],), name=f"scale{k}", initializer="ones") for k in range(2)]
        self.count = self.add_weight((), name="count", initializer="zeros", trainable=False)

    def call(self, x, training=None):
        self.count.assign_add(1.0)
        self.add_loss(0.1 * K.sum(K.square(self.scales[0])))
        x = x * self.scales[0] + K.reshape(self.scales[1], (1, -1))
        if training:
            x = x * 2.0
        return x


def test_layers_of_ones_own_are_traced():
    x = keras.Input((4,))
    model = keras.Model(x, L.Dense(1, name="dense")(Scaled(name="scaled")(x)))
    net = check_forward(model, numbers((3, 4)))
    assert {"scaled.scale0", "scaled.scale1", "scaled.count"} <= set(net.held)
    count = float(net.held["scaled.count"].numpy())
    trainer = pullback.trainer(net, "mse", pullback.optim.SGD(0.0))
    data, targets = numbers((8, 4)), numbers((8, 1))
    w = {n: v.numpy() for n, v in trainer.state_dict().items()}
    trained = (data * w["scaled.scale0"] + w["scaled.scale1"]) * 2 @ w["dense.kernel"] + w["dense.bias"]
    wanted = np.square(trained - targets).mean() + 0.1 * np.square(w["scaled.scale0"]).sum()
    for _ in range(2):
        np.testing.assert_allclose(float(trainer.update(data, targets).numpy()), wanted, rtol=1e-5)
    np.testing.assert_allclose(float(trainer.state_dict()["scaled.count"].numpy()), count + 2, rtol=1e-6)
    assert not model.get_layer("scaled")._inbound_nodes[1:], "tracing leaves no nodes in the model"


class TwoTowers(keras.Model):
    """A model that is a class."""

    def __init__(self):
        super().__init__()
        self.left, self.right = L.Dense(3, activation="relu"), L.Dense(3)
        self.norm = L.BatchNormalization()

    def call(self, x, training=None):
        return self.norm(self.left(x) + self.right(x), training=training) * K.mean(x, axis=-1, keepdims=True)


def test_models_that_are_classes_need_an_example():
    with pytest.raises(ArgumentError, match="does not say what its inputs are"):
        from_keras(TwoTowers())
    model = TwoTowers()
    x = numbers((4, 5))
    net = from_keras(model, example=x)
    np.testing.assert_allclose(interpreted(net, x)[0], np.asarray(model(x)), rtol=1e-5, atol=1e-6)
    model.compile(loss="mse", optimizer="sgd")
    trainer = pullback.trainer(net, net.loss, net.optimizer)
    y = numbers((4, 3))
    for _ in range(3):
        mine = float(trainer.update(x, y).numpy())
        np.testing.assert_allclose(mine, np.ravel(model.train_on_batch(x, y))[0], rtol=1e-4)
        model.reset_metrics()


def test_mixed_precision_computes_in_half():
    policy = keras.mixed_precision.DTypePolicy("mixed_bfloat16")
    x = keras.Input((8,))
    model = keras.Model(x, L.Dense(4, dtype="float32")(L.LayerNormalization(dtype=policy)(L.Dense(8, dtype=policy)(x))))
    net = from_keras(randomized(model))
    assert {v.dtype for v in net.parameters()} == {"float32"}
    data = numbers((5, 8))
    np.testing.assert_allclose(interpreted(net, data)[0], np.asarray(model(data)), rtol=0.05, atol=0.05)


def test_what_keras_saved_is_loaded_in_safe_mode(tmp_path):
    model = randomized(keras.Sequential([keras.Input((4,)), L.Dense(3)]))
    path = tmp_path / "model.keras"
    model.save(path)
    data = numbers((2, 4))
    np.testing.assert_allclose(interpreted(from_keras(path), data)[0], np.asarray(model(data)), rtol=1e-6)
    unsafe = keras.Sequential([keras.Input((4,)), L.Lambda(lambda x: x + 1)])
    unsafe.save(path)
    with pytest.raises(ValueError, match="safe"):
        from_keras(str(path))


# -- errors


def test_one_error_lists_all_that_cannot_be_converted():
    x = keras.Input((8, 8, 3))
    y = L.RandomFlip(name="flip")(x)
    y = L.SpectralNormalization(L.Conv2D(2, 3), name="spectral")(y)
    y = K.linalg.inv(K.mean(y, axis=-1))
    with pytest.raises(UnsupportedOps) as info:
        from_keras(keras.Model(x, y))
    assert info.value.names == ("layers.RandomFlip", "layers.SpectralNormalization", "ops.Inv")
    text = str(info.value)
    assert "flip" in text and "spectral" in text and "pullback.nn.aug" in text


class Noisy(L.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal((4,), seed=self.seed)


class Foreign(L.Layer):
    def call(self, x):
        return np.sin(x)


@pytest.mark.parametrize("kind, text", [(Noisy, "draws random numbers"), (Foreign, "cannot be traced")])
def test_layers_that_cannot_be_traced_say_why(kind, text):
    x = keras.Input((4,))
    with pytest.raises(UserError, match=text) as info:
        from_keras(keras.Model(x, kind(name="mine")(x))) if kind is Noisy else from_keras(_with(kind, x))
    assert "mine" in str(info.value)


def _with(kind, x):
    layer = kind(name="mine")
    layer.compute_output_spec = lambda x: keras.KerasTensor(x.shape, x.dtype)
    return keras.Model(x, layer(x))


def test_a_converter_of_ones_own_replaces_a_layer():
    before = dict(KERAS._table)
    try:

        @register_converter("keras", "Noisy")
        def noisy(c, x):
            return pullback.nn.functional.in_train_phase(x + R.random.normal(shape=x.shape), x)

        x = keras.Input((4,))
        net = from_keras(keras.Model(x, Noisy()(x)))
        np.testing.assert_array_equal(interpreted(net, numbers((3, 4)))[0], numbers((3, 4)))
    finally:
        KERAS._table.clear()
        KERAS._table.update(before)


class AlwaysDropping(L.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = L.Dropout(0.5)

    def call(self, x):
        return self.dropout(x, training=True)


def test_training_in_inference_is_refused():
    x = keras.Input((4,))
    with pytest.raises(UserError, match="training=True"):
        from_keras(keras.Model(x, AlwaysDropping()(x)))


def test_constraints_states_of_sequences_and_quantized_layers_are_refused():
    x = keras.Input((4,))
    with pytest.raises(UserError, match="constraints"):
        from_keras(keras.Model(x, L.Dense(3, kernel_constraint="non_neg")(x)))
    x = keras.Input(batch_shape=(2, 5, 3))
    with pytest.raises(UserError, match="stateful"):
        from_keras(keras.Model(x, L.LSTM(3, stateful=True)(x)))
    model = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    model.quantize("int8")
    with pytest.raises(UserError, match="quantized"):
        from_keras(model)


def test_the_trainer_says_how_models_of_keras_are_imported():
    model = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    model.compile(loss=keras.losses.MeanSquaredError(), optimizer="sgd")
    net = from_keras(model)
    for given, text in (
        ((model, "mse", "sgd"), r"pullback\.from_keras\(model\)"),
        ((net, model.loss, "sgd"), r"net\.loss"),
        ((net, "mse", model.optimizer), r"net\.optimizer"),
    ):
        with pytest.raises(ArgumentError, match=text):
            pullback.trainer(*given)


def test_what_is_no_model_is_refused():
    with pytest.raises(ArgumentError, match="takes a model of Keras"):
        from_keras(L.Dense(3))


def test_weights_go_back_to_models_of_the_same_layers_alone():
    def model(units):
        return keras.Sequential([keras.Input((4,)), L.Dense(units), L.Dense(2)])

    net, other = from_keras(randomized(model(3))), model(3)
    net.get_parameter(next(iter(net.held))).data = np.ones((4, 3), "float32")
    assert net.to_keras(other) is other
    np.testing.assert_array_equal(other.get_weights()[0], np.ones((4, 3)))
    np.testing.assert_array_equal(other.get_weights()[2], net.source.get_weights()[2])
    with pytest.raises(ShapeError, match="has the shape"):
        to_keras(net, model(5))
    with pytest.raises(NameNotFound, match="lacks"):
        to_keras(net, keras.Sequential([keras.Input((4,)), L.Dense(3)]))
    with pytest.raises(ArgumentError, match="what from_keras returned"):
        to_keras(pullback.nn.Linear(2, 3))


def test_nothing_of_keras_is_changed_when_a_trace_fails():
    symbolic_call, kernels = keras.Operation.symbolic_call, []
    x = keras.Input((4,))
    dense = L.Dense(3)
    model = keras.Model(x, Noisy()(K.concatenate([dense(x), x[:, :1]], axis=-1)))
    kernels.append(dense._kernel)
    with pytest.raises(UserError):
        from_keras(model)
    assert keras.Operation.symbolic_call is symbolic_call
    assert dense._kernel is kernels[0]
    model(numbers((2, 4)))  # Keras computes as ever


def test_the_table_has_a_reason_for_what_it_refuses():
    assert all(c.function is not None or c.reason for c in KERAS)
    assert len(KERAS) > 300
    assert converters.SOURCES["keras"] is KERAS
