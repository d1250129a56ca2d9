"""PyTorch's side of a training step of a model of PyTorch.

Variants: `eager`; `compile`, forward and loss compiled. With `-channels-last` images and the weights of convolutions
are kept channels-last; with `-pullback` our backend compiles. Optimizers are the fused ones, the fastest of PyTorch's
three forms.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from benchmarks.imported_cases import CASES
from benchmarks.workers.protocol import Cases, need, serve, start_watching_memory, versions_of

CHANNELS_LAST, PULLBACK = "-channels-last", "-pullback"


def load() -> dict[str, str]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return versions_of("torch")


def prepare(name: str, variant: str) -> Cases:
    import torch

    if variant.endswith(PULLBACK):
        import pullback.relax.frontend.torch  # noqa: F401  registers the backend, where the package is not installed

    case = CASES[name]
    need(*case.needs)
    module, inputs, targets = case.made()
    x, y = {key: torch.from_numpy(value) for key, value in inputs.items()}, torch.from_numpy(targets)
    if variant.endswith(CHANNELS_LAST):
        module = module.to(memory_format=torch.channels_last)
        x = {k: v.contiguous(memory_format=torch.channels_last) if v.ndim == 4 else v for k, v in x.items()}

    def loss_of(x: dict[str, Any], y: Any) -> Any:
        found = module(**x) if case.output else module(*x.values())
        logits = found[case.output] if case.output else found
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    backend = "pullback" if variant.endswith(PULLBACK) else "inductor"
    function = torch.compile(loss_of, backend=backend) if variant.startswith("compile") else loss_of
    parameters = list(module.parameters())
    optimizer = (
        torch.optim.SGD(parameters, case.learning_rate, momentum=0.9, fused=True)
        if case.optimizer == "sgd"
        else torch.optim.AdamW(parameters, case.learning_rate, fused=True)
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = function(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    gc.collect()
    start_watching_memory()
    return {"step": step}


if __name__ == "__main__":
    serve(load, prepare)
