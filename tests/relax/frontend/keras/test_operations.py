"""Operations of keras.ops in functional models compute what Keras computes."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from keras import ops as K  # noqa: E402

from tests.relax.frontend.keras.models import check_forward, numbers  # noqa: E402

# of x (3, 4, 6), all of normal numbers
ONE = {
    "elementwise": lambda x: [
        K.abs(x), K.negative(x), K.sign(x), K.square(x), K.exp(x), K.expm1(x), K.exp2(x), K.sin(x), K.cos(x),
        K.tan(x), K.sinh(x), K.cosh(x), K.tanh(x), K.arctan(x), K.arcsinh(x), K.erf(x), K.floor(x), K.ceil(x),
        K.round(x), K.round(x, 2), K.trunc(x), K.sinc(x), K.deg2rad(x), K.rad2deg(x), K.cbrt(x), K.reciprocal(x),
    ],
    "of positive numbers": lambda x: [
        f(K.abs(x) + 0.1) for f in (K.log, K.log1p, K.log2, K.log10, K.sqrt, K.rsqrt, K.arccosh) if f is not K.arccosh
    ] + [K.arccosh(K.abs(x) + 1.1), K.arcsin(K.tanh(x)), K.arccos(K.tanh(x)), K.arctanh(0.9 * K.tanh(x))],
    "with numbers": lambda x: [
        x + 1, 2 - x, x * 3, x / 4, x**2, x**3, K.abs(x) ** 0.5, x // 0.3, x % 0.7, K.maximum(x, 0), K.minimum(x, 1),
        K.power(K.abs(x) + 0.5, x), K.arctan2(x, x + 1), K.hypot(x, x + 1), K.clip(x, -0.5, 0.5),
        K.divide_no_nan(x, K.floor(x)), K.logaddexp(x, 2 * x), K.nan_to_num(x),
    ],
    "comparisons": lambda x: [
        x > 0, x >= 0.5, x < 0.1, x <= 0, K.equal(x, x), K.not_equal(x, 0), K.logical_and(x > 0, x < 1),
        K.logical_or(x > 1, x < 0), K.logical_not(x > 0), K.logical_xor(x > 0, x > 1), K.isnan(x), K.isfinite(x),
        K.isinf(x), K.where(x > 0, x, -1.0), K.isclose(x, x + 1e-9), K.select([x > 1, x > 0], [x, 2 * x], 0.0),
    ],
    "reductions": lambda x: [
        K.sum(x), K.sum(x, axis=1), K.mean(x, axis=(0, 2), keepdims=True), K.max(x, axis=-1), K.min(x, axis=1),
        K.amax(x, axis=1), K.prod(x, axis=2), K.std(x, axis=1), K.var(x, axis=1), K.logsumexp(x, axis=-1),
        K.any(x > 1, axis=1), K.all(x > -2, axis=1), K.argmax(x, axis=-1), K.argmin(x, axis=1), K.ptp(x, axis=1),
        K.count_nonzero(x > 0, axis=1), K.average(x, axis=1),
        *K.moments(x, axes=[1]), K.cumsum(x, axis=1), K.cumprod(x, axis=2), K.max(x, axis=1, initial=0.5),
    ],
    "order": lambda x: [
        K.sort(x), K.sort(x, axis=1), K.argsort(x), *K.top_k(x, 2), K.digitize(x, np.array([-0.5, 0.0, 0.5])),
        K.flip(x, axis=1), K.roll(x, 2, axis=1), K.diff(x, axis=1), K.searchsorted(K.convert_to_tensor([0.0, 1.0]), x),
    ],
    "shapes": lambda x: [
        K.reshape(x, (-1, 24)), K.reshape(x, (-1, 8, 3)), K.transpose(x, (0, 2, 1)), K.swapaxes(x, 1, 2),
        K.moveaxis(x, 1, 2), K.expand_dims(x, 1), K.squeeze(x[:, :1], 1), K.concatenate([x, 2 * x], axis=1),
        K.stack([x, x], axis=1), *K.split(x, 2, axis=2), *K.split(x, [1, 3], axis=1), *K.unstack(x, axis=1),
        K.tile(x, (1, 2, 1)), K.repeat(x, 2, axis=1), K.pad(x, ((0, 0), (1, 2), (0, 1))), K.pad(x, 1, mode="reflect"),
        K.pad(x, ((0, 0), (1, 1), (1, 0)), constant_values=2.0), K.hstack([x, x]), K.append(x, x, axis=2),
        K.ravel(x), *K.array_split(x, 4, axis=2), K.rot90(x, axes=(1, 2)), K.fliplr(x), K.triu(x), K.tril(x, -1),
        K.diagonal(x, axis1=1, axis2=2), K.zeros_like(x), K.ones_like(x), K.full_like(x, 3.0),
        K.broadcast_to(x[:1, :1], (3, 4, 6)), K.trace(x, axis1=1, axis2=2),
    ],
    "parts": lambda x: [
        x[:, 0], x[:, 1:3], x[..., -1], x[:, ::2], x[:, None, 1], K.take(x, [0, 2], axis=1), K.take(x, -1, axis=2),
        K.take_along_axis(x, K.argsort(x, axis=-1), axis=-1), K.slice(x, (0, 1, 2), (3, 2, 3)),
    ],
    "products": lambda x: [
        K.matmul(x, K.transpose(x, (0, 2, 1))), K.einsum("abc,abd->acd", x, x), K.dot(x, K.ones((6, 2))),
        K.tensordot(x, K.ones((6, 5)), axes=1), K.inner(x, K.ones((6,))), K.outer(x[0, 0], x[0, 1]),
        K.vdot(x[0], x[1]), K.cross(x[..., :3], x[..., 3:]),
    ],
    "network": lambda x: [
        K.relu(x), K.relu6(x), K.sigmoid(x), K.silu(x), K.softplus(x), K.softsign(x), K.elu(x), K.selu(x), K.gelu(x),
        K.gelu(x, approximate=False), K.leaky_relu(x), K.hard_sigmoid(x), K.hard_silu(x), K.log_sigmoid(x),
        K.softmax(x), K.softmax(x, axis=1), K.log_softmax(x), K.celu(x), K.glu(x), K.hard_tanh(x), K.hard_shrink(x),
        K.soft_shrink(x), K.tanh_shrink(x), K.squareplus(x), K.sparse_sigmoid(x), K.threshold(x, 0.1, -1.0),
        K.normalize(x, axis=-1), K.normalize(x, axis=1, order=1), K.layer_normalization(x), K.rms_normalization(x),
    ],
    "casts": lambda x: [
        K.cast(x, "int32"), K.cast(K.cast(x, "int32"), "float32") / 2, K.cast(x > 0, "int32") + 1,
        K.stop_gradient(x), K.cast(x, "bool"), K.cast(x, "float16"), K.cast(x > 0, "int32") * x,
    ],
    "updates": lambda x: [
        K.slice_update(x, (0, 1, 2), K.ones((3, 2, 3))), K.scatter_update(x[0], [[0, 1], [2, 3]], [9.0, 8.0]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_operations_compute_what_keras_computes(name):
    x = keras.Input(batch_shape=(3, 4, 6))
    check_forward(keras.Model(x, ONE[name](x)), numbers((3, 4, 6)), rtol=1e-4, atol=1e-5)


def test_operations_of_integers():
    x, y = keras.Input((5,), dtype="int32"), keras.Input((5,), dtype="int32")
    outputs = [
        x + y, x * y, x - 2, x // (y + 1), x % (y + 1), x / (y + 1), K.mean(x, axis=1), K.sum(x, axis=1), K.sqrt(x),
        K.bitwise_and(x, y), K.bitwise_xor(x, y), K.left_shift(x, 2), K.one_hot(x, 6), K.multi_hot(x, 6), x > y,
        K.maximum(x, 2), K.abs(-x), K.cast(x, "float32") + y, K.power(x, 2), K.logical_and(x, y), K.max(x, axis=1),
        K.take(K.ones((5, 2)), x, axis=0), x + 0.5, K.square(x), K.cumsum(x, axis=1),
    ]  # fmt: skip
    check_forward(keras.Model([x, y], outputs), numbers((4, 5), "int32"), numbers((4, 5), "int32", seed=1))


def test_operations_of_images():
    x = keras.Input((8, 6, 3))
    outputs = [
        K.image.resize(x, (4, 5)), K.image.resize(x, (16, 7), interpolation="nearest"), K.image.rgb_to_grayscale(x),
        K.image.extract_patches(x, (2, 3)), K.image.extract_patches(x, 3, strides=2, padding="same"),
        K.max_pool(x, 2, strides=2), K.average_pool(x, 3, strides=1, padding="same"),
        K.conv(x, np.ones((3, 3, 3, 2), "float32")),
        K.depthwise_conv(x, np.ones((3, 3, 3, 2), "float32"), padding="same"), K.space_to_depth(x, 2),
        K.depth_to_space(K.concatenate([x, x, x, x], axis=-1), 2),
    ]  # fmt: skip
    check_forward(keras.Model(x, outputs), numbers((2, 8, 6, 3)))


def test_attention_as_an_operation():
    q, k, v = (keras.Input(batch_shape=(2, n, 4, 8)) for n in (5, 6, 6))
    mask = np.random.default_rng(0).random((2, 1, 5, 6)) < 0.7
    outputs = [
        K.dot_product_attention(q, k, v), K.dot_product_attention(q, k, v, mask=mask, scale=0.3),
        K.dot_product_attention(q, k[:, :5], v[:, :5], is_causal=True),
    ]  # fmt: skip
    data = [numbers((2, n, 4, 8), seed=n + s) for s, n in enumerate((5, 6, 6))]
    check_forward(keras.Model([q, k, v], outputs), *data)
