"""Operators of PyTorch beside their conversions: exported, replayed, run by the interpreter, and differentiated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.relax import op
from pullback.relax.convention import BACKBONE
from pullback.relax.expr import const
from pullback.relax.frontend.torch.program import TorchModel
from pullback.relax.frontend.torch.replay import Replay, check_graph
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import AddRandomState, Gradient

aten = torch.ops.aten
_PRECISION = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
_numbers = np.random.default_rng(7)


@dataclass(frozen=True)
class Sample:
    """A call: of ``f`` on tensors of these values. ``batch``: the first axis of all inputs is symbolic.
    ``drawn``: results are random, so only their types are compared. ``rtol``: where PyTorch computes with less
    precision."""

    f: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    batch: bool = False
    drawn: bool = False
    rtol: float = 1e-9


def case(f: Callable[..., Any], *inputs: Any, **options: Any) -> Sample:
    return Sample(f, tuple(np.asarray(i) for i in inputs), **options)


def R(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "float64") -> np.ndarray:  # noqa: N802
    """Real numbers, apart from each other and from 0."""
    count = int(np.prod(shape, dtype=int))
    values = low + (high - low) * (np.arange(count) + 0.3) / max(count, 1)
    return _numbers.permutation(values).reshape(shape).astype(dtype)


def P(*shape: int) -> np.ndarray:  # noqa: N802
    """Positive numbers."""
    return R(*shape, low=0.2, high=3.0)


def U(*shape: int) -> np.ndarray:  # noqa: N802
    """Numbers between -1 and 1."""
    return R(*shape, low=-0.9, high=0.9)


def I(*shape: int, low: int = -4, high: int = 5, dtype: str = "int64") -> np.ndarray:  # noqa: N802, E743
    return _numbers.integers(low, high, shape).astype(dtype)


def B(*shape: int) -> np.ndarray:  # noqa: N802
    return _numbers.random(shape) < 0.5


class _Together(torch.nn.Module):
    """Several samples as one program."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, *inputs: Any) -> Any:
        results, rest = [], iter(inputs)
        for sample in self.samples:
            results += flat(sample.f(*(next(rest) for _ in sample.inputs)))
        return tuple(results)


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    elif value is not None:
        yield value


def exported(samples: Sequence[Sample]) -> Any:
    inputs = [torch.tensor(i) for s in samples for i in s.inputs]
    batched = [s.batch for s in samples for _ in s.inputs]
    sizes = tuple({0: torch.export.Dim.DYNAMIC} if b else None for b in batched)
    return torch.export.export(_Together(samples), tuple(inputs), dynamic_shapes=(sizes,))


class _Weighted(nn.Module):
    """The results of a model, after the sum of those that are floats, each times a weight."""

    def __init__(self, model: TorchModel, counted: Sequence[bool]) -> None:
        self.model, self.counted = model, counted

    def forward(self, *inputs: Any) -> Any:
        results = list(flat(self.model(*inputs)))
        total = const(0.0, "float64")
        for result, is_counted in zip(results, self.counted, strict=True):
            if is_counted:
                numbers = op.arange(0, math.prod(result.shape), 1, "float64")
                total = total + op.sum(op.astype(result.flatten(), "float64") * (op.cos(numbers) * 0.5 + 1.0))
        return total, *results


def _with_random_state(module: Any, values: list[Any]) -> tuple[Any, list[Any]]:
    """The program with the state of its random numbers among the inputs."""
    known = {p.name for p in module[BACKBONE].params}
    module, rest = AddRandomState(BACKBONE)(module), iter(values)
    state = np.array([3, 0], np.uint64)
    return module, [next(rest) if p.name in known else state for p in module[BACKBONE].params]


class AsWritten(nn.Module):
    """Calls of operators as they stand in the samples, without an export."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.graph = torch.fx.symbolic_trace(_Flat(samples)).graph
        self.example = [TensorStructInfo(i.shape, i.dtype.name) for s in samples for i in s.inputs]

    def forward(self, *inputs: Any) -> Any:
        (name,) = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        check_graph(self.graph)
        return Replay(self.graph, {name: inputs}).run()


class _Flat(torch.nn.Module):
    """Several samples, whose results stay in their tuples."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, *inputs: Any) -> Any:
        numbers = itertools.count()
        return [s.f(*(inputs[next(numbers)] for _ in s.inputs)) for s in self.samples]


def groups(named: Mapping[str, Sequence[Sample]], size: int = 8) -> list[Any]:
    """The operators by several, since most of an export's time is the same for any program."""
    names = list(named)
    parts = [names[k : k + size] for k in range(0, len(names), size)]
    return [pytest.param({n: named[n] for n in part}, id=f"{part[0]}-{part[-1]}") for part in parts]


def native(module: Any, name: str, values: Sequence[Any]) -> Any:
    """What ``evaluate`` gives, by machine code."""
    return _arrays(pullback.compile(module).function(name)(*values))


def _arrays(value: Any) -> Any:
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else value.numpy()


def operators_of(model: Any) -> set[str]:
    """The names of the operators that a model's graph calls."""
    found = (n.target.name() for n in model.graph.nodes if hasattr(n.target, "_schema"))
    return {name.split("::")[1].split(".")[0] for name in found}


def as_exported(samples: Sequence[Sample]) -> Any:
    """The module of the exported program of samples."""
    model = TorchModel(exported(samples))
    model.graph = model.program.graph
    return model


def compare(
    named: Mapping[str, Sequence[Sample]],
    run: Callable[..., Any] = evaluate,
    model_of: Callable[[Sequence[Sample]], Any] = as_exported,
) -> set[str]:
    """One program of the samples of several operators: results are PyTorch's, of integers and bools exactly, of floats
    to 1e-9; so are the adjoints of a weighted sum of them by all float64 inputs. The names of its operators."""
    samples = [s for found in named.values() for s in found]
    labels = [f"{name}, sample {k}" for name, found in named.items() for k in range(len(found))]
    inputs = [[torch.tensor(i, requires_grad=i.dtype == np.float64) for i in s.inputs] for s in samples]
    expected = [list(flat(s.f(*tensors))) for s, tensors in zip(samples, inputs, strict=True)]
    places = [label for label, results in zip(labels, expected, strict=True) for _ in results]
    rtols = [s.rtol for s, results in zip(samples, expected, strict=True) for _ in results]
    drawn = [s.drawn for s, results in zip(samples, expected, strict=True) for _ in results]
    theirs = [r for results in expected for r in results]
    counted = [r.is_floating_point() and not d for r, d in zip(theirs, drawn, strict=True)]
    model = model_of(samples)
    module = _Weighted(model, counted).export(*model.example)
    values = [i for s in samples for i in s.inputs]
    floats = [p.name for p in module[BACKBONE].params[: len(values)] if p.dtype == "float64"]
    if any(drawn):
        module, values = _with_random_state(module, values)
    tracked = [t for tensors in inputs for t in tensors if t.requires_grad]
    total = sum(
        (r.double().flatten() * (torch.arange(r.numel()).double().cos() * 0.5 + 1.0)).sum()
        for r, is_counted in zip(theirs, counted, strict=True)
        if is_counted
    )
    if floats and isinstance(total, torch.Tensor) and total.requires_grad:
        module = Gradient(BACKBONE, floats)(module)
        (_, *ours), adjoints = run(module, f"{BACKBONE}_adjoint", values)
        total.backward()
    else:
        _, *ours = run(module, BACKBONE, values)
        adjoints = ()
    for mine, other, any_value, rtol, place in zip(ours, theirs, drawn, rtols, places, strict=True):
        array = other.detach().float().numpy() if other.dtype == torch.bfloat16 else other.detach().numpy()
        assert str(mine.dtype) == str(other.dtype).partition(".")[2], place
        assert mine.shape == array.shape, place
        if not any_value:
            least = max(_PRECISION.get(str(mine.dtype), 0.0), rtol) if other.is_floating_point() else 0.0
            values, atol = np.asarray(mine, array.dtype), 1e-12 if least <= 1e-9 else least
            np.testing.assert_allclose(values, array, rtol=least, atol=atol, err_msg=place)
    known = [(s.rtol, f"{label}, adjoint {k}") for s, label in zip(samples, labels, strict=True)
             for k, i in enumerate(s.inputs) if i.dtype == np.float64]  # fmt: skip
    for mine, tensor, (rtol, place) in zip(adjoints, tracked, known, strict=False):
        gradient = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy(force=True)
        np.testing.assert_allclose(mine, gradient, rtol=rtol, atol=1e-11, err_msg=place)
    return operators_of(model)
