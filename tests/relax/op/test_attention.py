"""Attention compiled: one kernel each way, equal to the interpreter and to PyTorch, the same bits with any threads."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime import get_num_threads, set_num_threads
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from tests.relax.op.backends import to_numpy

TORCH = importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class Problem:
    """Sizes as in the documentation of nn.attention; ``bias``: its shape."""

    b: int
    s: int
    t: int
    n: int
    m: int
    h: int
    v: int
    causal: str | None = None
    bias: tuple[int, ...] | None = None
    scale: float | None = None

    def operands(self, dtype: str) -> list[np.ndarray]:
        """Query, key, value, perhaps the bias, and the weight of the result in the loss."""
        rng = np.random.default_rng(0)
        shapes = [(self.b, self.s, self.n, self.h), (self.b, self.t, self.m, self.h), (self.b, self.t, self.m, self.v)]
        shapes += [] if self.bias is None else [self.bias]
        return [rng.standard_normal(s).astype(dtype) for s in (*shapes, (self.b, self.s, self.n, self.v))]

    def module(self, values: list[np.ndarray]) -> IRModule:
        """``main`` returns Σ attention · weight and the attention."""
        params = [Var(f"x{k}", value_info(x)) for k, x in enumerate(values)]
        builder = BlockBuilder()
        with builder.function("main", params):
            out = builder.emit(ops.nn.attention(*params[:-1], scale=self.scale, causal_mask=self.causal))
            builder.emit_func_output((ops.sum(out * params[-1]), out))
        return Gradient("main", params[:-1])(builder.get())


PROBLEMS = [
    Problem(1, 1, 1, 1, 1, 1, 1),
    Problem(1, 3, 5, 2, 2, 8, 8),
    Problem(2, 17, 17, 3, 3, 64, 64, "TopLeft"),
    Problem(1, 129, 129, 2, 2, 16, 16, "TopLeft"),
    Problem(1, 129, 70, 2, 1, 8, 24, "BottomRight"),
    Problem(1, 33, 300, 2, 2, 5, 80, "BottomRight"),
    Problem(1, 256, 600, 1, 1, 8, 8),
    Problem(1, 300, 520, 2, 2, 8, 8, "BottomRight"),
    Problem(2, 40, 24, 4, 2, 8, 3, scale=0.3),
    Problem(1, 20, 30, 2, 2, 8, 8, bias=(2, 20, 30)),
    Problem(2, 18, 19, 4, 2, 8, 8, "TopLeft", bias=(2, 1, 1, 19)),
    Problem(1, 3, 80, 2, 2, 80, 80),
]
IDS = [f"{p.b}-{p.s}-{p.t}-{p.n}-{p.m}-{p.h}-{p.v}-{p.causal}-{p.bias}" for p in PROBLEMS]


def plan_of(problem: Problem) -> Plan:
    module = prepare(problem.module(problem.operands("float32")))
    return plan_function(module, "main_adjoint", {}, Target("llvm"))


def run(module: IRModule, values: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The attention and the adjoints of its operands, compiled."""
    (_, out), adjoints = to_numpy(pullback.compile(module).function("main_adjoint")(*values))
    return out, list(adjoints)


def close(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_as_the_interpreter(problem: Problem, dtype: str, tolerance: float) -> None:
    values = problem.operands(dtype)
    module = problem.module(values)
    (_, expected), adjoints = evaluate(module, "main_adjoint", values)
    out, got = run(module, values)
    close(out, expected, tolerance)
    for a, b in zip(got, adjoints, strict=True):
        close(a, b, tolerance)


def pytorch(problem: Problem, values: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The attention and the adjoints of its operands, by PyTorch."""
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in values[:-1]]
    q, k, v = (x.transpose(1, 2) for x in tensors[:3])
    shape = (problem.s, problem.t)
    offset = abs(problem.s - problem.t) if problem.causal == "BottomRight" else 0
    mask: Any = torch.zeros(shape, dtype=q.dtype)
    if problem.causal is not None:
        mask = mask.masked_fill(~torch.ones(shape, dtype=torch.bool).tril(offset), float("-inf"))
    if problem.bias is not None:
        mask = mask + tensors[3].expand(problem.b, problem.n, *shape)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=problem.scale, enable_gqa=True)
    out = out.transpose(1, 2)
    (out * torch.tensor(values[-1])).sum().backward()
    return out.detach().numpy(), [x.grad.numpy() for x in tensors]


if TORCH:

    @pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
    def test_as_pytorch(problem: Problem) -> None:
        values = problem.operands("float64")
        out, adjoints = run(problem.module(values), values)
        expected, gradients = pytorch(problem, values)
        close(out, expected, 1e-9)
        for a, b in zip(adjoints, gradients, strict=True):
            close(a, b, 1e-9)

    def test_rows_that_see_nothing_as_pytorch() -> None:
        """All logits -inf: 0, and no adjoint."""
        problem = Problem(1, 20, 30, 2, 2, 8, 8, bias=(20, 30))
        values = problem.operands("float64")
        values[3][[0, 7, 19]] = -np.inf
        values[3][3, :29] = -np.inf
        out, adjoints = run(problem.module(values), values)
        expected, gradients = pytorch(problem, values)
        assert not expected[:, 7].any()
        close(out, expected, 1e-9)
        for a, b in zip(adjoints[:3], gradients[:3], strict=True):
            close(a, b, 1e-9)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.bias is None], ids=lambda p: f"{p.s}-{p.t}-{p.h}")
def test_one_kernel_each_way(problem: Problem) -> None:
    """Of single elements all is one elementwise kernel."""
    plan = plan_of(problem)
    is_single = (problem.b, problem.s, problem.t, problem.n, problem.h, problem.v) == (1,) * 6
    assert len([step for step in plan.steps if "attention" in step]) == (1 if is_single else 2)


def test_memory_grows_with_the_length_not_its_square() -> None:
    arenas = [plan_of(Problem(2, s, s, 8, 8, 8, 8, "TopLeft")).arena_bytes for s in (1024, 2048)]
    assert arenas[1] < 2.1 * arenas[0]
    assert arenas[1] < 4 * 2 * 8 * 2048 * 2048 / 20  # the scores, in bytes


@pytest.mark.parametrize("problem", [PROBLEMS[3], PROBLEMS[4], PROBLEMS[7]], ids=lambda p: f"{p.s}-{p.t}")
def test_same_bits_with_any_threads(problem: Problem) -> None:
    values = problem.operands("float32")
    module = problem.module(values)
    before = get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            out, adjoints = run(module, values)
            results.append([x.tobytes() for x in (out, *adjoints)])
    finally:
        set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_float32(dtype: str) -> None:
    problem = Problem(1, 40, 40, 2, 2, 8, 8, "TopLeft")
    values = [x.astype(numpy_dtype(dtype)) for x in problem.operands("float32")]
    params = [Var(f"x{k}", value_info(x)) for k, x in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        out = ops.nn.attention(*params[:-1], causal_mask="TopLeft")
        builder.emit_func_output(builder.emit(out))
    got = pullback.compile(builder.get()).function("main")(*values).numpy()
    wide = [x.astype(np.float32) for x in values]
    (_, expected), _ = evaluate(problem.module(wide), "main_adjoint", wide)
    assert got.dtype == numpy_dtype(dtype)
    close(got.astype(np.float32), np.asarray(expected), float(ml_dtypes.finfo(got.dtype).eps))
