"""Iterated maps and differential equations, two of them with a number of steps that depends on values; in NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks.numerics.kernel import Arrays, Kernel

Array = np.ndarray
RK4_DT = 0.005
HORIZON = 256.0  # of |z|²
UNTIL, FIRST_STEP, ABSOLUTE, RELATIVE = 8.0, 0.05, 1e-7, 1e-6  # of the adaptive steps: the end, tolerances
SAFETY, LEAST, MOST = 0.9, 0.2, 5.0


def draw_window(rng: np.random.Generator, n: int, max_steps: int) -> Arrays:
    """A square beside the set: every point escapes."""
    return {"centre": np.array([0.42, 0.42]), "width": np.array(0.06), "c": rng.standard_normal((n, n))}


def draw_state(rng: np.random.Generator, n: int, steps: int) -> Arrays:
    return {"x": 8.0 + rng.standard_normal(n), "forcing": np.full(n, 8.0), "c": rng.standard_normal(n)}


def draw_species(rng: np.random.Generator, n: int, max_steps: int) -> Arrays:
    effects = 2.0 * rng.standard_normal((n, n)) / np.sqrt(n)
    return {
        "y": rng.uniform(0.2, 1.0, n),
        "growth": rng.uniform(0.5, 1.5, n),
        "effects": (effects - effects.T) / 2 - np.eye(n),
        "c": rng.standard_normal(n),
    }


def mandelbrot(centre: Array, width: Array, c: Array, n: int, max_steps: int) -> float:
    """A weighted sum of smooth escape counts: how many steps z ↦ z² + c stays near, and a fraction by its last size."""
    grid = np.linspace(-0.5, 0.5, n)
    a, b = centre[0] + width * grid[None, :], centre[1] + width * grid[:, None]
    re, im, count = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    steps = 0
    while (near := re * re + im * im <= HORIZON).any():
        assert steps < max_steps
        re, im = np.where(near, re * re - im * im + a, re), np.where(near, 2.0 * re * im + b, im)
        count = np.where(near, count + 1.0, count)
        steps += 1
    return ((count - np.log2(np.log2(re * re + im * im))) * c).sum()


def rk4(x: Array, forcing: Array, c: Array, n: int, steps: int) -> float:
    """Lorenz' model of 1996 by the classical Runge-Kutta method; a weighted sum of the last state."""

    def rate(x: Array) -> Array:
        return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + forcing

    for _ in range(steps):
        k1 = rate(x)
        k2 = rate(x + k1 * (RK4_DT / 2))
        k3 = rate(x + k2 * (RK4_DT / 2))
        k4 = rate(x + k3 * RK4_DT)
        x = x + (k1 + 2.0 * k2 + 2.0 * k3 + k4) * (RK4_DT / 6)
    return x @ c


def adaptive(y: Array, growth: Array, effects: Array, c: Array, n: int, max_steps: int) -> float:
    """Species that eat each other, by the method of Bogacki and Shampine: steps are as long as the error allows, and
    those with too large an error are made again. A weighted sum of the last state."""

    def rate(y: Array) -> Array:
        return y * (growth + effects @ y)

    t, h, steps = 0.0, FIRST_STEP, 0
    while t < UNTIL * (1 - 1e-12):
        assert steps < max_steps
        h = min(h, UNTIL - t)
        k1 = rate(y)
        k2 = rate(y + k1 * (h * 0.5))
        k3 = rate(y + k2 * (h * 0.75))
        new = y + (k1 * 2.0 + k2 * 3.0 + k3 * 4.0) * (h / 9.0)
        error = (k1 * -5.0 + k2 * 6.0 + k3 * 8.0 + rate(new) * -9.0) * (h / 72.0)
        share = error / (ABSOLUTE + RELATIVE * np.abs(y))
        size = np.sqrt((share * share).mean())
        if size <= 1.0:
            t, y = t + h, new
        h = h * min(max(SAFETY * size ** (-1 / 3), LEAST), MOST)
        steps += 1
    return y @ c


KERNELS = (
    Kernel(
        "mandelbrot", "Mandelbrot, smooth escape counts", draw_window, mandelbrot, ("centre", "width"),
        {"tiny": {"n": 5, "max_steps": 60}, "S": {"n": 125, "max_steps": 60}, "M": {"n": 250, "max_steps": 100}},
        step=1e-6,
    ),
    Kernel(
        "rk4", "Runge-Kutta, Lorenz 96", draw_state, rk4, ("x", "forcing"),
        {"tiny": {"n": 7, "steps": 3}, "S": {"n": 40, "steps": 200}, "M": {"n": 1000, "steps": 500}},
    ),
    Kernel(
        "adaptive", "Runge-Kutta, adaptive steps", draw_species, adaptive, ("y", "growth", "effects"),
        {"tiny": {"n": 4, "max_steps": 250}, "S": {"n": 10, "max_steps": 250}, "M": {"n": 100, "max_steps": 250}},
    ),
)  # fmt: skip
