"""Record the models' losses from PyTorch: `python -m tests.pinned.record_models` rewrites model_losses.npz."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.losses import distance, of_torch
from tests.pinned.models import FILE, MODELS, digest


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
