"""PyTorch's side of a training step.

Variants: `eager`; `eager-bfloat16`, its forward pass under `torch.autocast`; `compile`, the loss compiled;
`compile-whole`, gradient and update compiled too, in functional form. With `-channels-last` images and the weights of
convolutions are kept channels-last.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.models import MODELS, Model
from benchmarks.workers.protocol import Cases, Step, draw_model, serve, versions_of

CHANNELS_LAST = "-channels-last"


def load() -> dict[str, str]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return versions_of("torch")


def prepare(name: str, variant: str) -> Cases:
    channels_last = variant.endswith(CHANNELS_LAST)
    return {"step": step_of(MODELS[name], variant.removesuffix(CHANNELS_LAST), channels_last)}


def step_of(model: Model, variant: str, channels_last: bool = False) -> Step:
    """One step of training. Adam and SGD are the fused ones: the fastest of PyTorch's three forms."""
    import torch

    def tensor(array: np.ndarray) -> torch.Tensor:
        result = torch.from_numpy(array.copy())
        return result.contiguous(memory_format=torch.channels_last) if channels_last and array.ndim == 4 else result

    def parameter(name: str, array: np.ndarray) -> torch.Tensor:
        return tensor(array.T if array.ndim == 2 and name not in model.embeddings else array)

    x, y = map(tensor, model.data())
    parameters = {name: parameter(name, array) for name, array in model.parameters().items()}
    states = {name: tensor(array) for name, array in model.states().items()}

    def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=variant == "eager-bfloat16"):
            logits = model.torch(parameters, states, x)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        return torch.nn.functional.cross_entropy(logits, y, reduction=model.reduction)

    if variant == "compile-whole":
        return whole_step(model, loss_of, parameters, x, y)
    loss_function = torch.compile(loss_of) if variant == "compile" else loss_of
    for value in parameters.values():
        value.requires_grad_()
    settings, values = model.optimizer, list(parameters.values())
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings.kind]
    optimizer = kind(values, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(parameters, x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def whole_step(model: Model, loss_of: Callable[..., Any], parameters: dict[str, Any], x: Any, y: Any) -> Step:
    """The whole step in one `torch.compile`: functional gradient, SGD in place. The fastest form for small models."""
    import torch

    settings = model.optimizer
    if settings.kind != "sgd":
        raise NotImplementedError(f"compile-whole is written for SGD, not for {settings.kind}")

    @torch.compile
    def whole(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(parameters, x, y)
        for name, value in parameters.items():
            value.sub_(settings.learning_rate * (gradients[name] + settings.weight_decay * value))
        return loss

    return lambda: whole(parameters, x, y).item()


if __name__ == "__main__":
    serve(load, prepare, draw_model)
