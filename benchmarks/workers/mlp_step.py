"""The MLP training step that all sides run: its sizes, data, initial parameters and cost."""

from __future__ import annotations

import itertools

import numpy as np

BATCH = 64
SIZES = (784, 128, 128, 10)
LEARNING_RATE = 0.01 / BATCH
WEIGHT_DECAY = 0.01


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Inputs as float32 rows and labels as int64 class indices."""
    generator = np.random.default_rng(0)
    x = generator.random((BATCH, SIZES[0]), dtype=np.float32)
    return x, generator.integers(0, SIZES[-1], BATCH)


def initial_parameters() -> list[np.ndarray]:
    """w0, b0, w1, b1, w2, b2; the weights are (inputs, outputs), Xavier-uniform, the biases zero."""
    generator = np.random.default_rng(1)
    parameters = []
    for inputs, outputs in itertools.pairwise(SIZES):
        bound = np.sqrt(6.0 / (inputs + outputs))
        parameters.append(generator.uniform(-bound, bound, (inputs, outputs)).astype(np.float32))
        parameters.append(np.zeros(outputs, np.float32))
    return parameters


def flops() -> int:
    """Of the matrix products in one step: forward, the weights' gradients, and the activations' below the first."""
    products = [2 * BATCH * inputs * outputs for inputs, outputs in itertools.pairwise(SIZES)]
    return 3 * sum(products) - products[0]
