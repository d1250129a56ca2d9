"""The matrix products that all sides compute."""

from __future__ import annotations

import numpy as np

SHAPES = {  # name: (m, n, k, transpose a, transpose b)
    "512 NN": (512, 512, 512, False, False),
    "512 NT": (512, 512, 512, False, True),
    "512 TN": (512, 512, 512, True, False),
    "512 TT": (512, 512, 512, True, True),
    "509x383x517": (509, 383, 517, False, False),
}


def operands(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The stored operands of a case: a is (k, m) when it is to be transposed, b is (n, k)."""
    m, n, k, transpose_a, transpose_b = SHAPES[name]
    generator = np.random.default_rng(0)
    a = generator.standard_normal((k, m) if transpose_a else (m, k), dtype=np.float32)
    b = generator.standard_normal((n, k) if transpose_b else (k, n), dtype=np.float32)
    return a, b


def check(name: str, result: np.ndarray) -> None:
    """Compare one result with the product in float64: a fast wrong product is no product."""
    _, _, k, transpose_a, transpose_b = SHAPES[name]
    a, b = (array.astype(np.float64) for array in operands(name))
    a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
    bound = 4 * k * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b))
    if result.shape != bound.shape or not (np.abs(result - a @ b) <= bound).all():
        raise ArithmeticError(f"{name}: the result is not the matrix product")


def flops(name: str) -> int:
    m, n, k, _, _ = SHAPES[name]
    return 2 * m * n * k
