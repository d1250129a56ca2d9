"""PyTorch's side of single ops: eager. A gradient is the value with its graph, and then autograd's."""

from __future__ import annotations

import numpy as np

from benchmarks.kernels.ops import NONE, OpCase, out_gradient
from benchmarks.workers.kernels_torch import load, wall_clock
from benchmarks.workers.protocol import Cases, Timed, serve, told


def prepare(labels: str) -> Cases:
    return told([OpCase.of(label) for label in labels.split(",")], timed)


def timed(case: OpCase) -> Timed | str:
    import torch

    call = case.row.theirs
    if call is None:
        return NONE
    arguments = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in case.arguments()]
    if case.kind == "forward":
        with torch.no_grad():
            result = call(torch, *arguments)

        def run() -> None:
            with torch.no_grad():
                call(torch, *arguments)

    else:
        wanted = [arguments[k].requires_grad_() for k in case.wanted()]
        value = _first(call(torch, *arguments))
        dy = torch.from_numpy(out_gradient(tuple(value.shape))).to(value.dtype)

        def run() -> tuple[torch.Tensor, ...]:
            return torch.autograd.grad(_first(call(torch, *arguments)), wanted, dy)

        result = run()
    return Timed(wall_clock(run), _first(result).detach().double().numpy())


def _first(result: object) -> object:
    return result[0] if isinstance(result, (list, tuple)) else result


if __name__ == "__main__":
    serve(load, prepare)
