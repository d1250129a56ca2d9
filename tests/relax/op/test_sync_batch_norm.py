"""Batch norm over all ranks' rows: what one process gives for all of them, and PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Tuple, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import (
    CanonicalizeBindings,
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    EliminateCommonSubexpr,
    Gradient,
    RebatchInputs,
)
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.ranks import run_local
from tests.relax.op.test_gradients import check, first_module, second_module
from tests.samples import Case

CHANNELS = 3
NORMAL = {k: v for k, v in Op.get("nn.sync_batch_norm").signature.attrs.items() if k != "num_workers"}
FORMS = ["op", "decomposed", "native"]
PARAMETERS = ("gamma", "beta", "moving_mean", "moving_var")


def module_of(shape: tuple[Any, ...], dtype: str, num_workers: int, moves: bool = False, **attrs: Any) -> IRModule:
    """``main_adjoint``: (loss, new moving_mean, new moving_var), and the adjoints of data and all parameters. The loss
    is Σ weight·sin(out), and with ``moves`` also depends on the moving statistics; of them a rank adds its share."""
    wide = "float64" if dtype == "float64" else "float32"
    params = [Var("x", TensorStructInfo(shape, dtype))]
    params += [Var(n, TensorStructInfo((CHANNELS,), wide)) for n in PARAMETERS]
    weight, share = Var("weight", TensorStructInfo(shape, wide)), Var("share", TensorStructInfo((), wide))
    builder = BlockBuilder()
    with builder.function("main", [*params, weight, share]):
        with builder.dataflow():
            call = builder.emit(ops.nn.sync_batch_norm(*params, num_workers=num_workers, **attrs))
            loss = ops.sum(ops.sin(ops.astype(call[0], wide)) * weight)
            if moves:
                loss = loss + share * ops.sum(ops.square(call[1]) + ops.sin(call[2]))
            results = [builder.emit_output(r) for r in (loss, call[1], call[2])]
        builder.emit_func_output(Tuple(tuple(results)))
    return Gradient("main", params)(builder.get())


def data(shape: tuple[int, ...], channel: int) -> tuple[np.ndarray, ...]:
    """Data far from 0, whose channels differ, parameters, and weights."""
    rng = np.random.default_rng(7)
    along = [CHANNELS if a == channel else 1 for a in range(len(shape))]
    x = rng.normal(size=shape) * np.arange(1, 4).reshape(along) + np.array([5.0, -3.0, 0.5]).reshape(along)
    gamma, beta, mean = rng.normal(size=(3, CHANNELS))
    return x, gamma, beta, mean, rng.uniform(0.5, 2.0, CHANNELS), rng.normal(size=shape)


def by_torch(arrays: Any, channel: int, momentum: float, moves: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Loss and new moving statistics, and the adjoints, of one process with all rows."""
    torch = pytest.importorskip("torch")
    x, gamma, beta, mean, var, weight = (torch.tensor(a, dtype=torch.float64) for a in arrays)
    given = [t.requires_grad_() for t in (x, gamma, beta, mean, var)]
    front = x.movedim(channel, 1) if x.ndim > 2 else x
    out = torch.nn.functional.batch_norm(front, None, None, gamma, beta, training=True)
    others = [a for a in range(x.ndim) if a != channel]
    new_mean = (1 - momentum) * mean + momentum * x.mean(others)
    new_var = (1 - momentum) * var + momentum * x.var(others, correction=1)
    loss = (torch.sin(out.movedim(1, channel) if x.ndim > 2 else out) * weight).sum()
    if moves:
        loss = loss + (new_mean**2 + torch.sin(new_var)).sum()
    adjoints = torch.autograd.grad(loss, given, allow_unused=True)
    zeros = [torch.zeros_like(t) if a is None else a for a, t in zip(adjoints, given, strict=True)]
    return [t.detach().numpy() for t in (loss, new_mean, new_var)], [a.numpy() for a in zeros]


def runner(module: IRModule, form: str) -> Callable[..., Any]:
    """What runs ``main_adjoint``: the interpreter on the op, or on what it decomposes to, or native code."""
    if form == "native":
        function = pullback.compile(module)["main_adjoint"]
        return lambda arguments: to_numpy(function(*arguments))
    module = DecomposeOpsForTraining()(module) if form == "decomposed" else module
    return lambda arguments: evaluate(module, "main_adjoint", arguments)


def to_numpy(value: Any) -> Any:
    return tuple(map(to_numpy, value)) if isinstance(value, tuple) else value.numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(
    "rows, rest, axis",
    [
        ((9,), (3,), 1),
        ((4, 4), (3, 5), 1),
        ((1, 1), (3,), 1),  # a rank's own variance is 0
        ((1, 4, 2), (3, 4, 2), 1),
        ((3, 2, 2), (4, 4, 3), -1),
        ((2, 1, 1, 3), (3, 16, 20), 1),  # images of their own moments
        ((20, 30), (3, 2), 1),  # sums beside the first element
    ],
)
def test_ranks_have_the_statistics_of_all_rows(rows, rest, axis, moves, form):
    shape, channel = (sum(rows), *rest), axis % (1 + len(rest))
    arrays = data(shape, channel)
    expected, adjoints = by_torch(arrays, channel, 0.1, moves)
    ends = np.cumsum([0, *rows])
    runs = [runner(module_of((r, *rest), "float64", len(rows), moves, axis=axis), form) for r in rows]

    def run(rank: int) -> Any:
        x, *parameters, weight = arrays
        own = slice(ends[rank], ends[rank + 1])
        share = np.array(rows[rank] / sum(rows))
        return runs[rank]([x[own], *parameters, weight[own], share])

    found = run_local(len(rows), run)
    np.testing.assert_allclose(sum(f[0][0] for f in found), expected[0], rtol=1e-9)
    for k in (1, 2):
        np.testing.assert_allclose(found[0][0][k], expected[k], rtol=1e-9)
        for other in found[1:]:
            np.testing.assert_array_equal(other[0][k], found[0][0][k])
    np.testing.assert_allclose(np.concatenate([f[1][0] for f in found]), adjoints[0], rtol=1e-6, atol=1e-9)
    for k in range(1, 5):
        np.testing.assert_allclose(sum(f[1][k] for f in found), adjoints[k], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype, tolerance", [("float16", 4e-3), ("bfloat16", 3e-2), ("float32", 1e-5)])
def test_half_precision_is_rounded_once(dtype, tolerance, form):
    arrays = data((7, 3, 4), 1)
    kind = numpy_dtype(dtype)
    x = arrays[0].astype(kind)
    arrays = (x.astype("float64"), *arrays[1:])
    expected, adjoints = by_torch(arrays, 1, 0.1, False)
    narrow = [a.astype("float32") for a in arrays[1:]]
    runs = [runner(module_of((rows, 3, 4), dtype, 2), form) for rows in (3, 4)]

    def run(rank: int) -> Any:
        own = slice(0, 3) if rank == 0 else slice(3, 7)
        return runs[rank]([x[own], *narrow[:4], narrow[4][own], np.array(0, "float32")])

    found = run_local(2, run)
    for k in (1, 2):  # float32 all the way
        np.testing.assert_allclose(found[1][0][k], expected[k], rtol=1e-5, atol=1e-5)
    dx = np.concatenate([f[1][0] for f in found])
    assert dx.dtype == kind
    np.testing.assert_allclose(dx.astype("float64"), adjoints[0], rtol=tolerance, atol=tolerance)


def test_biased_and_without_parameters():
    """unbiased=False, center=False, scale=False, momentum and epsilon are nn.batch_norm's."""
    x, gamma, beta, mean, var, _ = data((6, 3), 1)
    attrs = {"epsilon": 0.3, "momentum": 0.7, "center": False, "scale": False, "unbiased": False}

    def both(rank: int) -> Any:
        own = slice(4 * rank, 4 + 2 * rank)
        infos = [
            Var(n, TensorStructInfo(a.shape, "float64")) for n, a in zip("xgbmv", (x[own], *(gamma,) * 4), strict=True)
        ]
        builder = BlockBuilder()
        with builder.function("main", infos):
            builder.emit_func_output(builder.emit(ops.nn.sync_batch_norm(*infos, num_workers=2, **attrs)))
        module = builder.get()
        return [
            evaluate(m, "main", [x[own], gamma, beta, mean, var]) for m in (module, DecomposeOpsForTraining()(module))
        ]

    for found in zip(*run_local(2, both), strict=True):
        out = np.concatenate([f[0] for f in found])
        np.testing.assert_allclose(out, (x - x.mean(0)) / np.sqrt(x.var(0) + 0.3), rtol=1e-10)
        np.testing.assert_allclose(found[0][1], 0.3 * mean + 0.7 * x.mean(0), rtol=1e-10)
        np.testing.assert_allclose(found[1][2], 0.3 * var + 0.7 * x.var(0), rtol=1e-10)


def test_a_step_sends_two_messages():
    """Forward and backward part share what the ranks have gathered."""
    module = DecomposeOpsForTraining()(module_of((4, 3, 5), "float32", 2))
    module = EliminateCommonSubexpr()(CanonicalizeBindings()(module))
    names = [b.value.op.short for b in module["main_adjoint"].bindings if getattr(b.value, "op", None) is not None]
    assert [n for n in names if n.startswith("ccl.")] == ["ccl.allgather", "ccl.allreduce"]


def test_in_inference_nothing_is_sent():
    """Alone, and made for four."""
    x, gamma, beta, mean, var, weight = data((6, 3), 1)
    module = DecomposeOpsForInference("main")(module_of((6, 3), "float64", 4))
    loss = evaluate(module, "main", [x, gamma, beta, mean, var, weight, np.array(0.0)])[0]
    y = (x - mean) / np.sqrt(var + 1e-5) * gamma + beta
    np.testing.assert_allclose(loss, (np.sin(y) * weight).sum(), rtol=1e-10)


def test_any_number_of_rows():
    """Of a symbolic size, and of a module made for another."""
    x, *parameters, weight = data((6, 3, 2), 1)
    expected, adjoints = by_torch((x, *parameters, weight), 1, 0.1, False)
    symbolic = module_of((tir.Var("n", "int64"), 3, 2), "float64", 2)
    other = RebatchInputs(3, "main", 1, ["weight"])(module_of((5, 3, 2), "float64", 2))
    other = Gradient("main", list(other["main"].params[:5]))(other)
    for compute in (*(runner(symbolic, form) for form in FORMS), runner(other, "op")):

        def run(rank: int, compute: Callable[..., Any] = compute) -> Any:
            own = slice(3 * rank, 3 + 3 * rank)
            return compute([x[own], *parameters, weight[own], np.array(0.5)])

        found = run_local(2, run)
        np.testing.assert_allclose(found[0][0][2], expected[2], rtol=1e-9)
        np.testing.assert_allclose(np.concatenate([f[1][0] for f in found]), adjoints[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape, attrs", [((5, 3), {}), ((2, 3, 4), {"unbiased": False, "center": False})])
def test_first_and_second_derivatives_of_one_rank(shape, attrs):
    """Against numeric differences: the collectives' own adjoints, too."""
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s) for s in (shape, *[(CHANNELS,)] * 3)] + [rng.uniform(0.5, 2.0, CHANNELS)]
    case = Case(Op.get("nn.sync_batch_norm"), "training", tuple(arrays), {"num_workers": 1, **NORMAL, **attrs})
    module, weights = first_module(case, rng)
    values = [*arrays, *weights]
    directions = [rng.standard_normal(v.shape) for v in values]
    check(module, "main", values, directions)
    check(second_module(module, directions), "second", values, [rng.standard_normal(v.shape) for v in values])


def test_errors():
    with pytest.raises(UserError, match="num_workers must be an int of at least 1, got 0"):
        module_of((4, 3), "float32", 0)
    with pytest.raises(ShapeError, match=r"nn.sync_batch_norm: gamma must have the shape \(4,\)"):
        module_of((3, 4), "float32", 2)
    x, *parameters, weight = data((1, 3), 1)
    arguments = [x, *parameters, weight, np.array(1.0)]
    with pytest.raises(ShapeError, match=r"nn\.sync_batch_norm in training needs more than one value"):
        DecomposeOpsForTraining()(module_of((1, 3), "float64", 1))
    with pytest.raises(ArgumentError, match=r"nn\.sync_batch_norm in training needs more than one value"):
        evaluate(module_of((1, 3), "float64", 1), "main", arguments)
    with pytest.raises(ArgumentError, match="is for 2 ranks, but there is 1"):
        evaluate(module_of((1, 3), "float64", 2), "main", arguments)
