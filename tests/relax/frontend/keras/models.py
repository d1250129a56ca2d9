"""What the tests of imported Keras models share: models of one layer, and what both sides compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.nn.export import export
from pullback.relax.convention import OUTPUT, Convention
from pullback.relax.frontend.keras import from_keras
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import DeadCodeElimination, DecomposeOpsForInference


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, high: int = 5) -> np.ndarray:
    """Inputs of a test: of the normal distribution, or integers below ``high``."""
    generator = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return generator.random(shape) < 0.6
    if "int" in dtype:
        return generator.integers(0, high, shape).astype(dtype)
    return generator.normal(size=shape).astype(dtype)


def randomized(model: Any) -> Any:
    """The model with weights of which none is 0 or 1 throughout."""
    generator = np.random.default_rng(7)
    values = []
    for variable in model.weights:
        value = generator.normal(scale=0.5, size=tuple(variable.shape))
        positive = "variance" in variable.name or "gamma" in variable.name
        values.append((np.abs(value) + 0.5 if positive else value).astype(on_host(variable).dtype))
    model.set_weights(values)
    return model


def interpreted(net: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """What the interpreter says that an imported model predicts."""
    exported = export(net, inputs, any_batch=False)
    module = DeadCodeElimination()(DecomposeOpsForInference("backbone")(exported))
    values = [np.asarray(v.data) for v in (*net.parameters(), *(b for b in net.buffers() if b.persistent))]
    params = module["backbone"].params
    given = [np.asarray(v, p.struct_info.dtype) for v, p in zip([*inputs, *values], params, strict=True)]
    found = evaluate(module, "backbone", given)
    found = found if isinstance(found, tuple) else (found,)
    return [found[i] for i in Convention.of(exported)["backbone"].returned(OUTPUT)]


def on_host(tensor: Any) -> np.ndarray:
    """A tensor of any backend of Keras as an array."""
    from keras import ops

    return np.asarray(ops.convert_to_numpy(tensor))


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [v for key in sorted(value) for v in flat(value[key])]
    return [v for item in value for v in flat(item)] if isinstance(value, (list, tuple)) else [value]


def check_forward(model: Any, *inputs: np.ndarray, rtol: float = 2e-5, atol: float = 2e-5) -> Any:
    """Both sides predict the same; returns the imported model."""
    net = from_keras(randomized(model))
    wanted = flat(model(list(inputs) if len(inputs) > 1 else inputs[0], training=False))
    found = interpreted(net, *inputs)[: net.outputs]  # what it adds to the loss comes behind
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        reference = on_host(theirs)
        assert mine.shape == reference.shape
        np.testing.assert_allclose(mine, reference, rtol=rtol, atol=atol)
    return net
