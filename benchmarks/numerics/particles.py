"""Many points that see each other: gravity and clusters, in NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks.numerics.kernel import Arrays, Kernel

Array = np.ndarray
SOFTENING, DT = 0.1, 0.02


def draw_bodies(rng: np.random.Generator, n: int, steps: int) -> Arrays:
    return {
        "mass": np.full(n, 20.0 / n) * rng.uniform(0.5, 1.5, n),
        "pos": rng.standard_normal((3, n)),
        "vel": rng.standard_normal((3, n)),
        "c": rng.standard_normal((2, 3, n)),
    }


def draw_points(rng: np.random.Generator, n: int, d: int, k: int, steps: int) -> Arrays:
    centres = 3.0 * rng.standard_normal((k, d))
    return {"x": centres[rng.integers(0, k, n)] + rng.standard_normal((n, d)), "start": centres}


def accelerations(mass: Array, pos: Array) -> Array:
    apart = pos[:, None, :] - pos[:, :, None]
    square = (apart * apart).sum(0) + SOFTENING**2
    return (apart * (mass / (square * np.sqrt(square)))).sum(2)


def nbody(mass: Array, pos: Array, vel: Array, c: Array, n: int, steps: int) -> float:
    """Bodies under gravity, by leapfrog; a weighted sum of the last positions and velocities."""
    acc = accelerations(mass, pos)
    for _ in range(steps):
        vel = vel + acc * (DT / 2)
        pos = pos + vel * DT
        acc = accelerations(mass, pos)
        vel = vel + acc * (DT / 2)
    return (pos * c[0]).sum() + (vel * c[1]).sum()


def kmeans(x: Array, start: Array, n: int, d: int, k: int, steps: int) -> float:
    """Lloyd's steps, and the sum of squared distances to the nearest centre after them. Which centre a point belongs
    to has no derivative; centres move with their points."""
    centres = start
    for _ in range(steps + 1):
        apart = ((x[:, None, :] - centres[None]) ** 2).sum(2)
        nearest = apart.argmin(1)
        value = apart.min(1).sum()
        member = (nearest[:, None] == np.arange(k)).astype(float)
        centres = (member.T @ x) / np.maximum(member.sum(0), 1.0)[:, None]
    return value


KERNELS = (
    Kernel(
        "nbody", "n-body, leapfrog", draw_bodies, nbody, ("mass", "pos", "vel"),
        {"tiny": {"n": 4, "steps": 3}, "S": {"n": 25, "steps": 40}, "M": {"n": 50, "steps": 250}},
    ),
    Kernel(
        "kmeans", "k-means", draw_points, kmeans, ("x",),
        {
            "tiny": {"n": 12, "d": 3, "k": 2, "steps": 2},
            "S": {"n": 1000, "d": 16, "k": 8, "steps": 10},
            "M": {"n": 10000, "d": 32, "k": 16, "steps": 10},
        },
    ),
)  # fmt: skip
