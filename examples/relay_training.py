"""The story of the thread "Training in Relay": a model of Keras gets a loss, is differentiated, compiled, and trained
by a program in C++, on a machine that need not have Python.

The model tells points inside of a circle from those outside. python examples/relay_training.py STEPS; needs Keras 3
with a backend (KERAS_BACKEND=jax, or torch) and a C++ compiler.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from pullback import relay
from pullback.relay import aot

BATCH, RATE = 64, 0.2


def points(count, seed):
    """Points of the square, and 1 where they lie in the circle."""
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype("float32")
    return x, (np.square(x).sum(1, keepdims=True) < 0.6).astype("float32")


def with_loss(func):
    """Binary cross-entropy on top of a model whose output is a probability."""
    y = relay.var("y", shape=(BATCH, 1))
    y_hat = relay.clip(func.body, 1e-6, 1 - 1e-6)
    loss = -(y * relay.log(y_hat) + (relay.const(1.0) - y) * relay.log(relay.const(1.0) - y_hat))
    return relay.Function([y, *func.params], relay.mean(loss))


def training_step(loss):
    """One step of gradient descent: of labels, data and weights, the loss and new weights."""
    params = [relay.var(p.name_hint, p.type_annotation) for p in loss.params]
    found = relay.Call(relay.transform.gradient(loss), params)
    gradients = relay.TupleGetItem(found, 1)
    rate = relay.const(RATE)
    new = [p - rate * relay.TupleGetItem(gradients, k) for k, p in enumerate(params) if k >= 2]  # not of y and data
    return relay.Function(params, relay.Tuple([relay.TupleGetItem(found, 0), *new]))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((2,), name="data"),
        keras.layers.Dense(16, activation="tanh"),
        keras.layers.Dense(16, activation="tanh"),
        keras.layers.Dense(1, activation="sigmoid"),
    ])  # fmt: skip
    mod, params = relay.frontend.from_keras(model, {"data": (BATCH, 2)})
    step = training_step(with_loss(mod["main"]))
    print(relay.transform.InferType()(type(mod).from_expr(step))["main"].checked_type)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        aot.compile(step).export_c(folder, "circle_step")
        np.concatenate([p.numpy().ravel() for p in params.values()]).tofile(folder / "weights.bin")
        compiler = shutil.which("c++") or shutil.which("g++") or sys.exit("this example needs a C++ compiler")
        source = Path(__file__).with_name("relay_training.cpp")
        command = [compiler, "-std=c++17", "-O2", f"-I{folder}", source, folder / "libcircle_step.a"]
        subprocess.run([*command, "-lpthread", "-lm", "-o", folder / "train"], check=True)
        subprocess.run([folder / "train", folder / "weights.bin", str(steps)], check=True)
        trained = np.fromfile(folder / "weights.bin", "float32")

    x, y = points(2000, seed=1)
    before = np.mean((np.asarray(model(x)) > 0.5) == y)
    places = np.cumsum([p.size for p in params.values()])[:-1]
    weights = [part.reshape(p.shape) for part, p in zip(np.split(trained, places), params.values(), strict=True)]
    order = [int(name.removeprefix("_param_")) - 1 for name in params]  # of Keras's weights
    model.set_weights([w for _, w in sorted(zip(order, weights, strict=True), key=lambda item: item[0])])
    print(f"accuracy in Keras: {before:.3f} before, {np.mean((np.asarray(model(x)) > 0.5) == y):.3f} after")


if __name__ == "__main__":
    main()
