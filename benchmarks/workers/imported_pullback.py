"""Pullback's side of a training step of a model of PyTorch: imported, and trained by a trainer."""

from __future__ import annotations

import gc
from typing import Any

from benchmarks.imported_cases import CASES
from benchmarks.workers.protocol import Cases, need, serve, start_watching_memory, versions_of


def load() -> dict[str, str]:
    import torch  # noqa: F401

    import pullback

    return {"pullback": getattr(pullback, "__version__", "this tree"), **versions_of("torch")}


def prepare(name: str) -> Cases:
    import pullback

    trainer, inputs, targets = trainer_of(name)
    x, y = [pullback.nd.array(array) for array in inputs.values()], pullback.nd.array(targets)
    trainer.update(x, y)
    gc.collect()
    start_watching_memory()
    return {"step": lambda: float(trainer.update(x, y).numpy())}


def trainer_of(name: str) -> tuple[Any, Any, Any]:
    """A trainer of the imported model, and its batch."""
    import torch

    import pullback
    from pullback import optim
    from pullback.nn import functional as F

    case = CASES[name]
    need(*case.needs)
    module, inputs, targets = case.made()
    example = {key: torch.from_numpy(value) for key, value in inputs.items()}
    model = pullback.from_torch(module, example, outputs=case.output, dynamic_shapes=())  # of just this batch

    def loss(logits: Any, y: Any) -> Any:
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    optimizer = (
        optim.SGD(lr=case.learning_rate, momentum=0.9)
        if case.optimizer == "sgd"
        else optim.AdamW(lr=case.learning_rate)
    )
    return pullback.trainer(model, loss, optimizer, targets=targets), inputs, targets


if __name__ == "__main__":
    serve(load, prepare)
