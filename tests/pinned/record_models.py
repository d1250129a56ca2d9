"""Record the models' losses from PyTorch: `python -m tests.pinned.record_models` rewrites model_losses.npz.

How far float32 is from float64 is that of PyTorch's farthest run, with one thread and two, and images in both layouts:
they differ in the order of their sums alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.losses import distance, losses_of
from benchmarks.models.base import Model
from benchmarks.workers.model_torch import step_of
from tests.pinned.models import FILE, MODELS, digest


def of_torch(model: Model) -> tuple[np.ndarray, list[np.ndarray]]:
    """PyTorch's losses in float64, and those of its runs in float32."""
    layouts = (False, True) if any(a.ndim == 4 for a in model.parameters().values()) else (False,)
    runs = []
    for count in (1, 2):
        torch.set_num_threads(count)
        runs += [losses_of(step_of(model, "eager", channels_last)) for channels_last in layouts]
    return losses_of(step_of(replace(model, dtype="float64"), "eager")), runs


def main() -> None:
    arrays: dict[str, Any] = {}
    for model in MODELS:
        losses, singles = of_torch(model)
        error = max(distance(single, losses) for single in singles)
        arrays |= {f"{model.name}/losses": losses, f"{model.name}/error32": error}
        arrays[f"{model.name}/digest"] = digest(model)
        print(f"{model.title}: {losses}, float32 within {error:.1e}")
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
