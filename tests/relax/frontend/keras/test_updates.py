"""What was trained as low-rank updates goes back to Keras as part of the weights."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import pullback  # noqa: E402
from pullback import nn, optim  # noqa: E402
from pullback.ir.errors import UserError  # noqa: E402


@pytest.fixture
def model():
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((6,)), dense(5, activation="relu", name="first"), dense(3, name="second")])


def test_updates_are_part_of_the_weights(model):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((8, size)).astype("float32") for size in (6, 3))
    lora = nn.LoRA(rank=2, targets=["*kernel*"], fan_in_fan_out=True)
    trainer = pullback.trainer(pullback.from_keras(model), "mse", optim.Adam(lr=1e-2), adapt=lora)
    before = model.predict(x, verbose=0)
    trainer.fit(x, y, epochs=3, batch_size=4, verbose=0)
    after = trainer.to_keras().predict(x, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, trainer.predict(x), atol=1e-6)


def test_adapters_behind_layers_are_no_part_of_any_weight(model):
    net = pullback.from_keras(model)
    trainer = pullback.trainer(net, "mse", "sgd", adapt=nn.Adapter(2, targets=["first"]))
    with pytest.raises(UserError, match="the adapters behind first cannot be part of a weight"):
        trainer.to_keras()
