"""Models of Keras: Sequential, functional and subclassed ones, made of its layers or of layers of one's own."""

from __future__ import annotations

from typing import Any

from pullback.relax.frontend.keras import layers, ops  # fill the table
from pullback.relax.frontend.keras.table import KERAS
from pullback.relax.frontend.keras.weights import to_keras

__all__ = ["KERAS", "from_keras", "layers", "ops", "to_keras"]


def from_keras(model: Any, example: Any = None) -> Any:
    """A model that ``pullback.trainer`` takes, from a model of Keras 3 (on any backend).

    >>> net = pullback.from_keras(keras_model)
    >>> trainer = pullback.trainer(net, "cross_entropy", "adam")

    Parameters and states have the names of the layers with dots between them, ``conv2d.kernel``, and Keras's shapes.
    Weights of layers with ``trainable=False`` are not trained. What the model was compiled with is in ``net.loss`` and
    ``net.optimizer``.

    Args:
        model: Sequential, functional, or subclassed, or the path of a ``.keras`` file, which is loaded in safe mode.
        example: an array, or a type such as ``R.Tensor(("n", 28, 28), "float32")``, for each input (several: a tuple);
            without it, inputs are as the model says, with a symbolic size wherever it says None: the batch, and each
            other one by itself, or one for each axis of all inputs where the model needs that.

    Returns:
        a model with ``.loss`` and ``.optimizer``.

    Raises:
        UnsupportedOps: listing all layers and operations that cannot be converted.
        ImportError: without Keras 3.
    """
    try:
        import keras
    except ImportError as error:
        raise ImportError("from_keras needs Keras 3 and a backend of it: pip install 'pullback[keras]'") from error
    if int(keras.__version__.partition(".")[0]) < 3:
        raise ImportError(f"from_keras needs Keras 3, there is {keras.__version__}: pip install 'pullback[keras]'")
    from pullback.relax.frontend.keras.model import KerasModel

    if isinstance(model, str) or hasattr(model, "__fspath__"):
        model = keras.saving.load_model(model, safe_mode=True)
    return KerasModel(model, example)
