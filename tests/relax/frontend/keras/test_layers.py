"""Each layer of Keras predicts what the imported one predicts."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from keras import layers as L  # noqa: E402
from keras import ops as K  # noqa: E402

from tests.relax.frontend.keras.models import check_forward, numbers  # noqa: E402

IMAGE, SEQUENCE, VOLUME, ROW = (8, 7, 3), (6, 4), (5, 4, 6, 2), (5,)

# name: (the shape of one row of the input, the layer)
ONE = {
    "dense": (ROW, lambda: L.Dense(3)),
    "dense relu": (ROW, lambda: L.Dense(3, activation="relu")),
    "dense without bias": (SEQUENCE, lambda: L.Dense(3, use_bias=False, activation="tanh")),
    "einsum dense": (SEQUENCE, lambda: L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d")),
    "activation softmax": (SEQUENCE, lambda: L.Activation("softmax")),
    "conv1d": (SEQUENCE, lambda: L.Conv1D(3, 3)),
    "conv1d causal": (SEQUENCE, lambda: L.Conv1D(3, 3, padding="causal", dilation_rate=2)),
    "conv1d same": (SEQUENCE, lambda: L.Conv1D(3, 4, strides=2, padding="same")),
    "conv2d": (IMAGE, lambda: L.Conv2D(4, 3, activation="relu")),
    "conv2d same strides": (IMAGE, lambda: L.Conv2D(4, (3, 2), strides=(2, 3), padding="same")),
    "conv2d same dilation": (IMAGE, lambda: L.Conv2D(4, 3, dilation_rate=2, padding="same")),
    "conv2d groups": ((6, 5, 4), lambda: L.Conv2D(6, 3, groups=2, use_bias=False)),
    "conv3d": (VOLUME, lambda: L.Conv3D(3, 2, strides=2, padding="same")),
    "separable conv1d": (SEQUENCE, lambda: L.SeparableConv1D(3, 3, depth_multiplier=2, padding="same")),
    "separable conv2d": (IMAGE, lambda: L.SeparableConv2D(4, 3, depth_multiplier=2, strides=2)),
    "depthwise conv1d": (SEQUENCE, lambda: L.DepthwiseConv1D(3, depth_multiplier=2)),
    "depthwise conv2d": (IMAGE, lambda: L.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2)),
    "conv1d transpose": (SEQUENCE, lambda: L.Conv1DTranspose(3, 3, strides=2)),
    "conv2d transpose": (IMAGE, lambda: L.Conv2DTranspose(4, 3, strides=2, padding="same")),
    "conv2d transpose even": (IMAGE, lambda: L.Conv2DTranspose(2, 4, strides=2, padding="same")),
    "conv2d transpose small": (IMAGE, lambda: L.Conv2DTranspose(2, 2, strides=3)),
    "conv2d transpose output padding": (
        IMAGE, lambda: L.Conv2DTranspose(2, 3, strides=2, padding="same", output_padding=1),
    ),
    "conv3d transpose": (VOLUME, lambda: L.Conv3DTranspose(2, 3, strides=2, padding="same")),
    "max pooling 1d": (SEQUENCE, lambda: L.MaxPooling1D(2)),
    "max pooling 2d": (IMAGE, lambda: L.MaxPooling2D(3, strides=2, padding="same")),
    "max pooling 3d": (VOLUME, lambda: L.MaxPooling3D(2)),
    "average pooling 1d": (SEQUENCE, lambda: L.AveragePooling1D(3, strides=2, padding="same")),
    "average pooling 2d": (IMAGE, lambda: L.AveragePooling2D((2, 3), padding="same")),
    "average pooling 3d": (VOLUME, lambda: L.AveragePooling3D(2, strides=1)),
    "global average 1d": (SEQUENCE, lambda: L.GlobalAveragePooling1D()),
    "global average 2d": (IMAGE, lambda: L.GlobalAveragePooling2D(keepdims=True)),
    "global average 3d": (VOLUME, lambda: L.GlobalAveragePooling3D()),
    "global max 1d": (SEQUENCE, lambda: L.GlobalMaxPooling1D()),
    "global max 2d": (IMAGE, lambda: L.GlobalMaxPooling2D()),
    "global max 3d": (VOLUME, lambda: L.GlobalMaxPooling3D(keepdims=True)),
    "adaptive average 1d": (SEQUENCE, lambda: L.AdaptiveAveragePooling1D(3)),
    "adaptive average 2d": (IMAGE, lambda: L.AdaptiveAveragePooling2D((3, 2))),
    "adaptive max 2d": (IMAGE, lambda: L.AdaptiveMaxPooling2D((3, 2))),
    "adaptive max 1d": (SEQUENCE, lambda: L.AdaptiveMaxPooling1D(4)),
    "batch normalization": (IMAGE, lambda: L.BatchNormalization()),
    "batch normalization plain": (ROW, lambda: L.BatchNormalization(center=False, scale=False, epsilon=0.1)),
    "batch normalization axis": (IMAGE, lambda: L.BatchNormalization(axis=1)),
    "layer normalization": (SEQUENCE, lambda: L.LayerNormalization()),
    "layer normalization axes": (IMAGE, lambda: L.LayerNormalization(axis=[1, 3], epsilon=1e-2, center=False)),
    "group normalization": ((4, 3, 6), lambda: L.GroupNormalization(3)),
    "instance normalization": ((4, 3, 6), lambda: L.GroupNormalization(-1)),
    "unit normalization": (SEQUENCE, lambda: L.UnitNormalization()),
    "rms normalization": (SEQUENCE, lambda: L.RMSNormalization()),
    "dropout": (ROW, lambda: L.Dropout(0.5)),
    "spatial dropout": (SEQUENCE, lambda: L.SpatialDropout1D(0.5)),
    "gaussian dropout": (ROW, lambda: L.GaussianDropout(0.5)),
    "gaussian noise": (ROW, lambda: L.GaussianNoise(0.5)),
    "alpha dropout": (ROW, lambda: L.AlphaDropout(0.5)),
    "identity": (ROW, lambda: L.Identity()),
    "reshape": (SEQUENCE, lambda: L.Reshape((3, -1, 2))),
    "flatten": (IMAGE, lambda: L.Flatten()),
    "permute": (IMAGE, lambda: L.Permute((3, 1, 2))),
    "repeat vector": (ROW, lambda: L.RepeatVector(3)),
    "cropping 1d": (SEQUENCE, lambda: L.Cropping1D((1, 2))),
    "cropping 2d": (IMAGE, lambda: L.Cropping2D(((1, 2), (0, 1)))),
    "cropping 3d": (VOLUME, lambda: L.Cropping3D(1)),
    "zero padding 1d": (SEQUENCE, lambda: L.ZeroPadding1D(2)),
    "zero padding 2d": (IMAGE, lambda: L.ZeroPadding2D(((1, 0), (2, 1)))),
    "zero padding 3d": (VOLUME, lambda: L.ZeroPadding3D(1)),
    "up sampling 1d": (SEQUENCE, lambda: L.UpSampling1D(2)),
    "up sampling 2d": (IMAGE, lambda: L.UpSampling2D((2, 3))),
    "up sampling 2d bilinear": (IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "up sampling 3d": (VOLUME, lambda: L.UpSampling3D(2)),
    "relu layer": (SEQUENCE, lambda: L.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)),
    "relu layer 6": (SEQUENCE, lambda: L.ReLU(6.0)),
    "leaky relu layer": (SEQUENCE, lambda: L.LeakyReLU(0.2)),
    "prelu": (IMAGE, lambda: L.PReLU(shared_axes=[1, 2])),
    "elu layer": (SEQUENCE, lambda: L.ELU(0.7)),
    "softmax layer": (SEQUENCE, lambda: L.Softmax(axis=1)),
    "softmax layer axes": (IMAGE, lambda: L.Softmax(axis=(1, 2))),
    "simple rnn": (SEQUENCE, lambda: L.SimpleRNN(3)),
    "simple rnn backwards": (SEQUENCE, lambda: L.SimpleRNN(3, go_backwards=True, return_sequences=True)),
    "lstm": (SEQUENCE, lambda: L.LSTM(3)),
    "lstm all": (SEQUENCE, lambda: L.LSTM(3, return_sequences=True, return_state=True)),
    "lstm other activations": (
        SEQUENCE, lambda: L.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False),
    ),
    "lstm by gates": (SEQUENCE, lambda: L.LSTM(3, recurrent_dropout=0.2, dropout=0.1)),
    "gru": (SEQUENCE, lambda: L.GRU(3, return_sequences=True, return_state=True)),
    "gru reset before": (SEQUENCE, lambda: L.GRU(3, reset_after=False)),
    "gru backwards": (SEQUENCE, lambda: L.GRU(3, go_backwards=True, use_bias=False)),
    "bidirectional lstm": (SEQUENCE, lambda: L.Bidirectional(L.LSTM(3))),
    "bidirectional gru": (SEQUENCE, lambda: L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="sum")),
    "bidirectional states": (SEQUENCE, lambda: L.Bidirectional(L.LSTM(2, return_state=True), merge_mode="ave")),
    "stacked cells": (SEQUENCE, lambda: L.RNN([L.LSTMCell(3), L.GRUCell(2)], return_state=True)),
    "rnn of a cell": (SEQUENCE, lambda: L.RNN(L.SimpleRNNCell(3), return_sequences=True, go_backwards=True)),
    "conv lstm 1d": ((3, 5, 2), lambda: L.ConvLSTM1D(3, 2, return_sequences=True)),
    "conv lstm 2d": ((3, 4, 5, 2), lambda: L.ConvLSTM2D(2, 2, padding="same")),
    "time distributed": (SEQUENCE, lambda: L.TimeDistributed(L.Dense(3))),
    "time distributed conv": ((3, 5, 5, 2), lambda: L.TimeDistributed(L.Conv2D(2, 3))),
    "rescaling": (IMAGE, lambda: L.Rescaling(1 / 127.5, offset=-1)),
    "normalization": (SEQUENCE, lambda: L.Normalization(mean=[1.0, 2, 3, 4], variance=[1.0, 2, 0.5, 3])),
    "discretization": (ROW, lambda: L.Discretization([-0.5, 0.0, 0.7])),
    "resizing": (IMAGE, lambda: L.Resizing(4, 9)),
    "resizing nearest": (IMAGE, lambda: L.Resizing(4, 9, interpolation="nearest")),
    "center crop": (IMAGE, lambda: L.CenterCrop(5, 4)),
    "lambda": (SEQUENCE, lambda: L.Lambda(lambda x: K.sin(x) + K.mean(x, axis=1, keepdims=True))),
    "activity regularization": (ROW, lambda: L.ActivityRegularization(l2=0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_layers_predict_what_keras_predicts(name):
    shape, make = ONE[name]
    inputs = keras.Input(shape)
    model = keras.Model(inputs, make()(inputs))
    check_forward(model, numbers((3, *shape)))


ACTIVATIONS = [
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
    "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink",
    "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh",
    "tanh_shrink",
]  # fmt: skip


def test_activations_by_name_are_those_of_keras():
    inputs = keras.Input((3, 6))
    check_forward(keras.Model(inputs, [L.Activation(name)(inputs) for name in ACTIVATIONS]), numbers((4, 3, 6)) * 2)


MERGES = {
    "add": L.Add(), "subtract": L.Subtract(), "multiply": L.Multiply(), "average": L.Average(),
    "maximum": L.Maximum(), "minimum": L.Minimum(), "concatenate": L.Concatenate(axis=1), "dot": L.Dot(axes=2),
    "dot normalized": L.Dot(axes=(1, 1), normalize=True),
}  # fmt: skip


def test_merging_layers_are_those_of_keras():
    a, b = keras.Input((3, 4)), keras.Input((3, 4))
    model = keras.Model([a, b], [layer([a, b]) for layer in MERGES.values()])
    check_forward(model, numbers((2, 3, 4)), numbers((2, 3, 4), seed=1))


def test_embeddings_encodings_and_masks_of_integers():
    ids = keras.Input((6,), dtype="int32")
    embedded = L.Embedding(5, 4, mask_zero=True)(ids)
    outputs = [
        embedded,
        L.LSTM(3)(embedded),
        L.GRU(3, return_sequences=True, go_backwards=True)(embedded),
        L.Bidirectional(L.SimpleRNN(2, return_sequences=True))(embedded),
        L.GlobalAveragePooling1D()(embedded),
        L.CategoryEncoding(5, output_mode="multi_hot")(ids),
        L.CategoryEncoding(5, output_mode="count")(ids),
        L.CategoryEncoding(5, output_mode="one_hot")(ids),
    ]
    check_forward(keras.Model(ids, outputs), numbers((4, 6), "int32"))


def test_masking_skips_steps():
    x = keras.Input((6, 3))
    masked = L.Masking(0.0)(x)
    data = numbers((4, 6, 3))
    data[0, 3:] = 0
    data[1, :2] = 0
    data[2] = 0
    check_forward(keras.Model(x, [L.LSTM(3)(masked), L.GRU(2, return_sequences=True)(masked), masked]), data)


ATTENTIONS = {
    "attention": lambda q, v: L.Attention(use_scale=True)([q, v]),
    "attention causal": lambda q, v: L.Attention(score_mode="concat")([q, v], use_causal_mask=True),
    "additive": lambda q, v: L.AdditiveAttention()([q, v]),
    "multi head": lambda q, v: L.MultiHeadAttention(2, 4)(q, v),
    "multi head scores": lambda q, v: L.MultiHeadAttention(2, 4)(q, v, return_attention_scores=True),
    "multi head dropout": lambda q, v: L.MultiHeadAttention(2, 4, dropout=0.3, output_shape=5)(q, v),
    "multi head causal": lambda q, v: L.MultiHeadAttention(2, 4, use_bias=False)(q, q, use_causal_mask=True),
    "grouped query": lambda q, v: L.GroupQueryAttention(6, 4, 2)(q, v),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_that_of_keras(name):
    q, v = keras.Input((5, 8)), keras.Input((6, 8))
    check_forward(keras.Model([q, v], ATTENTIONS[name](q, v)), numbers((2, 5, 8)), numbers((2, 6, 8), seed=1))


def test_attention_takes_masks():
    q, v = keras.Input((5, 8)), keras.Input((6, 8))
    mask = keras.Input((5, 6), dtype="bool")
    attended = L.MultiHeadAttention(2, 4)(q, v, attention_mask=mask)
    given = numbers((2, 5, 6), "bool")
    given[0, 0] = False  # attends to nothing: to all alike, in Keras
    model = keras.Model([q, v, mask], attended)
    check_forward(model, numbers((2, 5, 8)), numbers((2, 6, 8), seed=1), given)


def test_masks_of_embeddings_reach_attention():
    ids = keras.Input((6,), dtype="int32")
    x = L.Embedding(5, 8, mask_zero=True)(ids)
    check_forward(keras.Model(ids, L.MultiHeadAttention(2, 4)(x, x)), numbers((4, 6), "int32"))


def test_recurrent_layers_take_initial_states():
    x, h, c = keras.Input((5, 3)), keras.Input((4,)), keras.Input((4,))
    both = [keras.Input((2,)) for _ in range(2)]
    lstm = L.LSTM(4, return_sequences=True)(x, initial_state=[h, c])
    two = L.Bidirectional(L.GRU(2))(x, initial_state=both)
    data = [numbers((2, 5, 3)), numbers((2, 4), seed=1), numbers((2, 4), seed=2), numbers((2, 2), seed=3)]
    check_forward(keras.Model([x, h, c, *both], [lstm, two]), *data, numbers((2, 2), seed=4))


def test_layouts_with_channels_first():
    x = keras.Input((3, 8, 7))
    first = {"data_format": "channels_first"}
    outputs = [
        L.Conv2D(4, 3, strides=2, padding="same", **first)(x),
        L.MaxPooling2D(2, **first)(x),
        L.GlobalAveragePooling2D(**first)(x),
        L.ZeroPadding2D(1, **first)(x),
        L.BatchNormalization(axis=1)(x),
        L.DepthwiseConv2D(3, **first)(x),
        L.Flatten(**first)(x),
    ]
    check_forward_of_channels_first(keras.Model(x, outputs), numbers((2, 3, 8, 7)))


def check_forward_of_channels_first(model, data):
    """Keras on JAX convolves with channels first; some backends cannot on the CPU."""
    try:
        model(data)
    except Exception as error:  # whatever a backend raises
        pytest.skip(f"this backend of Keras has no channels first: {error}")
    check_forward(model, data)


def test_each_test_of_a_layer_would_fail_for_other_weights():
    inputs = keras.Input(ROW)
    model = keras.Model(inputs, L.Dense(3)(inputs))
    net = check_forward(model, numbers((3, *ROW)))
    model.set_weights([w + 1 for w in model.get_weights()])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(net(numbers((3, *ROW))).numpy(), np.asarray(model(numbers((3, *ROW)))), rtol=1e-3)
