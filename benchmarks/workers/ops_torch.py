"""PyTorch's side of single ops: eager. A gradient is the value with its graph, and then autograd's.

Results own their memory, as ours do: one that lies in the memory of an argument (a view of it, or the argument itself)
is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

        def results() -> object:
            with torch.no_grad():
                return call(torch, *arguments)

    else:
        wanted = [arguments[k].requires_grad_() for k in case.wanted()]
        value = _first(call(torch, *arguments))
        dy = torch.from_numpy(out_gradient(tuple(value.shape))).to(value.dtype)
        arguments.append(dy)

        def results() -> object:
            return torch.autograd.grad(_first(call(torch, *arguments[:-1])), wanted, dy)

    result = results()
    borrowed = [k for k, r in enumerate(_all(result)) if _shares_memory(r, arguments)]

    def run() -> None:
        found = _all(results())
        for k in borrowed:
            found[k].clone(memory_format=torch.contiguous_format)

    return Timed(wall_clock(run), _first(result).detach().double().numpy())


def _shares_memory(result: Any, arguments: list[Any]) -> bool:
    """Whether a result lies in the memory of an argument."""
    import torch

    places = [v.untyped_storage().data_ptr() for v in (result, *arguments) if isinstance(v, torch.Tensor)]
    return isinstance(result, torch.Tensor) and places[0] in places[1:]


def _all(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else (result,)


def _first(result: Any) -> Any:
    return _all(result)[0]


if __name__ == "__main__":
    serve(load, prepare)
