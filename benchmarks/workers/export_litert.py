"""LiteRT's side of an exported training step: a .tflite with a training signature, written by TensorFlow."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import numpy as np

from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.workers.protocol import Cases, draw_model, mapped_bytes, need, serve, versions_of

PACKAGES = ("tensorflow-cpu==2.21.0", "ai-edge-litert==2.3.0")
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
ABOUT: dict[str, Any] = {}


def load() -> dict[str, str]:
    need(*PACKAGES)
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import ai_edge_litert.interpreter  # noqa: F401
    import tensorflow  # noqa: F401

    return versions_of("tensorflow-cpu", "ai-edge-litert")


def prepare(name: str) -> Cases:
    from ai_edge_litert.interpreter import Interpreter

    model = MODELS[name]
    content = _converted(model)
    interpreter = Interpreter(model_content=content, num_threads=int(os.environ["OMP_NUM_THREADS"]))
    train = interpreter.get_signature_runner("train")
    x, labels = _inputs(model)
    ABOUT["optimizer"], ABOUT["same optimizer"] = model.optimizer.kind, True
    ABOUT["library bytes"], ABOUT["model bytes"] = mapped_bytes("ai_edge_litert"), len(content)
    return {"step": lambda: float(train(x=x, labels=labels)["loss"])}


def _inputs(model: Model) -> tuple[np.ndarray, np.ndarray]:
    x, labels = model.data()
    return (np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x), labels.astype(np.int32)


def _converted(model: Model) -> bytes:
    """The model's file; a NotImplementedError with the names of ops that LiteRT's kernels are lacking."""
    import tensorflow as tf

    module = _trained(model)
    with tempfile.TemporaryDirectory(prefix="pullback-litert-") as folder:
        tf.saved_model.save(module, folder, signatures={"train": module.train})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["train"])
        converter.experimental_enable_resource_variables = True
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        try:
            return converter.convert()
        except Exception as error:
            lacking = sorted(set(re.findall(r"\btf\.([A-Z]\w+)", str(error))))
            if not lacking:
                raise
            raise NotImplementedError(f"LiteRT has no kernel of {', '.join(lacking)}") from None


def _trained(model: Model) -> Any:
    """A module whose function `train` makes a step."""
    import tensorflow as tf

    x, labels = _inputs(model)
    signature = [tf.TensorSpec(x.shape, tf.float32, "x"), tf.TensorSpec(labels.shape, tf.int32, "labels")]

    class Trained(tf.Module):
        def __init__(self) -> None:
            self.values = {name: tf.Variable(_as_kept(array)) for name, array in model.parameters().items()}
            adam = model.optimizer.kind == "adam"
            self.moments = [[tf.Variable(tf.zeros_like(v)) for v in self.values.values()] for _ in BETAS if adam]
            self.steps = tf.Variable(0.0) if adam else None

        @tf.function(input_signature=signature)
        def train(self, x: Any, labels: Any) -> dict[str, Any]:
            with tf.GradientTape() as tape:
                logits = FORWARD[model.name](model, self.values, x)
                picked = tf.one_hot(labels, logits.shape[-1]) * tf.nn.log_softmax(logits)
                loss = -tf.reduce_sum(picked) / (1 if model.reduction == "sum" else len(model.data()[1]))
            values = list(self.values.values())
            UPDATES[model.optimizer.kind](model, self, values, tape.gradient(loss, values))
            return {"loss": loss}

    return Trained()


def _as_kept(array: np.ndarray) -> np.ndarray:
    """Weights of convolutions as HWIO."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


def _sgd(model: Model, module: Any, values: list[Any], gradients: list[Any]) -> None:
    rate, decay = model.optimizer.learning_rate, model.optimizer.weight_decay
    for value, gradient in zip(values, gradients, strict=True):
        value.assign(value - rate * (gradient + decay * value))


def _adam(model: Model, module: Any, values: list[Any], gradients: list[Any]) -> None:
    import tensorflow as tf

    rate, steps = model.optimizer.learning_rate, module.steps.assign(module.steps + 1.0)
    first_part, second_part = (1 - tf.pow(beta, steps) for beta in BETAS)
    for value, gradient, first, second in zip(values, gradients, *module.moments, strict=True):
        mean = first.assign(BETAS[0] * first + (1 - BETAS[0]) * gradient)
        square = second.assign(BETAS[1] * second + (1 - BETAS[1]) * gradient * gradient)
        value.assign(value - rate * (mean / first_part) / (tf.sqrt(square / second_part) + EPSILON))


UPDATES = {"sgd": _sgd, "adam": _adam}


def _relu(x: Any) -> Any:
    """As a maximum: the gradient of tf.nn.relu is an op that LiteRT's kernels lack."""
    import tensorflow as tf

    return tf.maximum(x, 0.0)


def _linears(p: dict[str, Any], x: Any) -> Any:
    import tensorflow as tf

    for layer in range(sum(name.startswith("fc") and name.endswith("_weight") for name in p)):
        x = tf.matmul(_relu(x) if layer else x, p[f"fc{layer}_weight"]) + p[f"fc{layer}_bias"]
    return x


def _mlp(model: Model, p: dict[str, Any], x: Any) -> Any:
    return _linears(p, x)


def _lenet(model: Model, p: dict[str, Any], x: Any) -> Any:
    import tensorflow as tf

    for layer, padding in enumerate(("SAME", "VALID")):
        x = tf.nn.conv2d(x, p[f"conv{layer}_weight"], 1, padding) + p[f"conv{layer}_bias"]
        x = tf.nn.max_pool2d(_relu(x), 2, 2, "VALID")
    return _linears(p, tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (len(model.data()[1]), -1)))


FORWARD = {"mlp": _mlp, "lenet": _lenet}

if __name__ == "__main__":
    serve(load, prepare, draw_model, lambda: ABOUT)
