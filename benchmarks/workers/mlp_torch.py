"""PyTorch's side of the MLP step: `eager`, and `compile` (the whole step)."""

from __future__ import annotations

import os

from benchmarks.workers import mlp_step
from benchmarks.workers.protocol import Cases, Step, serve, versions_of


def load() -> dict[str, str]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return versions_of("torch")


def prepare(variant: str) -> Cases:
    if variant == "compile":
        return {"step": compiled_step()}
    return {"step": eager_step()}


def eager_step() -> Step:
    """The step as PyTorch's users write it; the fused SGD was the fastest of its three by a few percent."""
    import torch

    x, y = (torch.from_numpy(array) for array in mlp_step.batch())
    layers: list[torch.nn.Module] = []
    parameters = [torch.from_numpy(array) for array in mlp_step.initial_parameters()]
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data.copy_(weight.T)
        linear.bias.data.copy_(bias)
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    loss_function = torch.nn.CrossEntropyLoss(reduction="sum")
    optimizer = torch.optim.SGD(
        model.parameters(), lr=mlp_step.LEARNING_RATE, weight_decay=mlp_step.WEIGHT_DECAY, fused=True
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def compiled_step() -> Step:
    """The whole step in one `torch.compile`, functional gradient and update in place.

    Faster here than compiling the loss alone, or the loss with `backward` and the optimizer's `step`.
    """
    import torch

    x, y = (torch.from_numpy(array) for array in mlp_step.batch())
    parameters = [torch.from_numpy(array) for array in mlp_step.initial_parameters()]

    def loss_of(values: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        w0, b0, w1, b1, w2, b2 = values
        hidden = torch.relu(x @ w0 + b0)
        hidden = torch.relu(hidden @ w1 + b1)
        return torch.nn.functional.cross_entropy(hidden @ w2 + b2, y, reduction="sum")

    @torch.compile
    def whole(values: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(values, x, y)
        for value, gradient in zip(values, gradients, strict=True):
            value.sub_(mlp_step.LEARNING_RATE * (gradient + mlp_step.WEIGHT_DECAY * value))
        return loss

    return lambda: whole(parameters, x, y).item()


if __name__ == "__main__":
    serve(load, prepare)
