"""Collectives as ops: their values against NumPy, their gradients, their types, and what they become.

Ranks are threads here (``run_local``); each meaning is computed from what all ranks gave, another way than by the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir.depth import deep
from pullback.ir.errors import DifferentiationError, ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Tuple, TupleGetItem, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.runtime.ranks import RankError, current, run_local
from tests.helpers import round_trip

TARGETS = ["debug", "llvm"]


def module_of(write: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> IRModule:
    """A module whose ``main`` returns what ``write`` makes of its parameters."""
    params = [Var(f"x{k}", TensorStructInfo(shape, dtype)) for k, shape in enumerate(shapes)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = write(*params)
            several = list(made) if isinstance(made, (list, tuple)) else [made]
            if isinstance(made, Expr) and isinstance(made.struct_info, TupleStructInfo):
                whole = builder.emit(made)
                several = [TupleGetItem(whole, k) for k in range(len(made.struct_info.fields))]
            outs = [builder.emit_output(e) for e in several]
        builder.emit_func_output(Tuple(tuple(outs)))
    return builder.get()


def run(
    module: IRModule, target: str, ranks: int, inputs: Callable[[int], list[np.ndarray]], name: str = "main"
) -> Any:
    """What each rank returns, as arrays."""
    executable = pullback.compile(module, target)

    def on(rank: int) -> list[np.ndarray]:
        vm = relax.VirtualMachine(executable, pullback.cpu())
        found = vm[name](*[pullback.tensor(a) for a in inputs(rank)])
        return [t.numpy().copy() for t in (found if isinstance(found, tuple) else (found,))]

    return run_local(ranks, on)


def given(rank: int, shape: tuple[int, ...] = (4, 3), dtype: str = "float32") -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 10 * rank + 1).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_values(target: str, ranks: int) -> None:
    shape = (2 * ranks, 3)
    module = module_of(
        lambda x: [
            ops.ccl.allreduce(x), ops.ccl.allreduce(x, op_type="max"), ops.ccl.allreduce(x, op_type="min"),
            ops.ccl.allreduce(x, op_type="prod"), ops.ccl.allreduce(x, op_type="avg"), ops.ccl.allgather(x, ranks),
            ops.ccl.reduce_scatter(x, ranks), ops.ccl.broadcast(x, root=ranks - 1), ops.ccl.all_to_all(x, ranks),
            ops.ccl.scatter_from_worker0(x, ranks), ops.ccl.piece(x, ranks), ops.ccl.rank(),
        ],
        shape,
    )  # fmt: skip
    arrays = [given(r, shape) for r in range(ranks)]
    total = np.sum(arrays, axis=0)
    for rank, found in enumerate(run(module, target, ranks, lambda r: [arrays[r]])):
        rows = slice(2 * rank, 2 * rank + 2)
        wanted = [
            total, np.max(arrays, axis=0), np.min(arrays, axis=0), np.prod(arrays, axis=0), total / ranks,
            np.concatenate(arrays), total[rows], arrays[-1], np.concatenate([a[rows] for a in arrays]),
            arrays[0][rows], arrays[rank].ravel()[6 * rank : 6 * rank + 6], np.int64(rank),
        ]  # fmt: skip
        for own, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_pieces_of_what_cannot_be_divided_evenly(target: str) -> None:
    module = module_of(lambda x, y: ops.ccl.reduce_pieces([x, y], 3), (5,), (2, 2))
    whole = [np.arange(5, dtype=np.float32) * 6, np.full((2, 2), 6, np.float32)]
    found = run(module, target, 3, lambda r: [w * (r + 1) / 6 for w in whole])
    for k, (elements, length) in enumerate(((5, 2), (4, 2))):
        joined = np.concatenate([f[k] for f in found])
        assert joined.shape == (3 * length,) and not joined[elements:].any()
        np.testing.assert_allclose(joined[:elements], whole[k].ravel())
    back = module_of(lambda x, y: ops.ccl.gather_pieces([x, y], 3, [(5,), (2, 2)]), (2,), (2,))
    for own in run(back, target, 3, lambda r: found[r]):
        np.testing.assert_allclose(own[0], whole[0])
        np.testing.assert_allclose(own[1], whole[1])


@pytest.mark.parametrize("target", TARGETS)
def test_scatter_along_another_axis(target: str) -> None:
    module = module_of(lambda x: ops.ccl.scatter_from_worker0(x, 2, axis=1), (3, 4))
    x = given(0, (3, 4))
    for rank, (own,) in enumerate(run(module, target, 2, lambda r: [x * (1 - r)])):
        np.testing.assert_array_equal(own, x[:, 2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("target", TARGETS)
def test_shards_of_a_rank_are_added_as_ranks_are(target: str) -> None:
    """Bit for bit: 4 ranks, 2 with two shards each, 1 with four."""
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(37) * 10.0 ** rng.integers(-3, 4)).astype(np.float32) for _ in range(4)]
    results = []
    for ranks in (4, 2, 1):
        shards = 4 // ranks
        module = module_of(lambda *x, s=shards: ops.ccl.reduce(list(x), shards=s), *[(37,)] * shards)
        found = run(module, target, ranks, lambda r, s=shards: arrays[r * s : (r + 1) * s])
        results += [own[0] for own in found]
    assert all(np.array_equal(r, results[0]) for r in results)
    assert not np.array_equal(results[0], ((arrays[0] + arrays[1]) + arrays[2]) + arrays[3])  # the order is another
    np.testing.assert_array_equal(results[0], (arrays[0] + arrays[1]) + (arrays[2] + arrays[3]))


def loss_of(write: Callable[[Any], Any], shape: tuple[int, ...]) -> IRModule:
    """``main(x, w)``: Σ w · write(x), with the gradient of x."""
    made: Any = write(Var("x", TensorStructInfo(shape, "float32")))
    x, w = Var("x", TensorStructInfo(shape, "float32")), Var("w", made.struct_info)
    builder = BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(ops.sum(ops.multiply(builder.emit(write(x)), w)))
        builder.emit_func_output(out)
    return relax.transform.Gradient("main", require_grads=x)(builder.get())


@pytest.mark.parametrize(
    "write",
    [
        lambda x: ops.ccl.allreduce(x),
        lambda x: ops.ccl.allreduce(x, op_type="avg"),
        lambda x: ops.ccl.allgather(x, 2),
        lambda x: ops.ccl.reduce_scatter(x, 2),
        lambda x: ops.ccl.broadcast(x, root=1),
        lambda x: ops.ccl.all_to_all(x, 2),
        lambda x: ops.ccl.scatter_from_worker0(x, 2),
        lambda x: ops.ccl.gather_pieces([ops.ccl.reduce_pieces([x], 2)], 2, [(4, 3)]),
    ],
    ids=["allreduce", "average", "allgather", "reduce_scatter", "broadcast", "all_to_all", "scatter", "pieces"],
)
@pytest.mark.parametrize("target", TARGETS)
def test_gradients_are_those_of_the_sum_of_all_losses(write: Callable[[Any], Any], target: str) -> None:
    """All of these are linear: the numeric derivative of Σ over ranks of their losses is exact."""
    module = loss_of(write, (4, 3))
    info = module["main"].params[1].struct_info
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2)]
    ws = [rng.standard_normal(info.shape).astype(np.float32) for _ in range(2)]
    executable = pullback.compile(module, target)

    def on(rank: int, inputs: list[np.ndarray]) -> Any:
        vm = relax.VirtualMachine(executable, pullback.cpu())
        return vm["main_adjoint"](pullback.tensor(inputs[rank]), pullback.tensor(ws[rank]))

    gradients = [found[1][0].numpy() for found in run_local(2, lambda r: on(r, xs))]

    def total(inputs: list[np.ndarray]) -> float:
        return sum(float(found[0].numpy()) for found in run_local(2, lambda r: on(r, inputs)))

    base = total(xs)
    for rank in range(2):
        for place in ((0, 0), (1, 2), (3, 1)):
            changed = [x.copy() for x in xs]
            changed[rank][place] += 1
            np.testing.assert_allclose(gradients[rank][place], total(changed) - base, rtol=1e-3, atol=1e-4)


def test_gradients_of_extrema_are_refused() -> None:
    with pytest.raises(DifferentiationError, match="op_type='max' has no gradient"):
        loss_of(lambda x: ops.ccl.allreduce(x, op_type="max"), (2,))


def test_types_are_refused() -> None:
    x = Var("x", TensorStructInfo((5, 2), "float32"))
    with pytest.raises(ShapeError, match="5 rows cannot be divided evenly among 2 ranks"):
        _ = ops.ccl.reduce_scatter(x, 2).struct_info
    with pytest.raises(UserError, match="op_type must be one of"):
        _ = ops.ccl.allreduce(x, op_type="mean").struct_info
    with pytest.raises(UserError, match="num_workers must be at least 1"):
        _ = ops.ccl.allgather(x, 0).struct_info
    with pytest.raises(ShapeError, match="a scalar has no rows"):
        _ = ops.ccl.all_to_all(Var("s", TensorStructInfo((), "float32")), 2).struct_info
    with pytest.raises(UserError, match="one dtype"):
        _ = ops.ccl.reduce([x, Var("y", TensorStructInfo((2,), "float64"))]).struct_info


@pytest.mark.parametrize("target", TARGETS)
def test_another_number_of_ranks_is_refused(target: str) -> None:
    module = module_of(lambda x: ops.ccl.allgather(x, 2), (4, 3))
    with pytest.raises(UserError, match=r"is for 2 ranks, but there are 3"):
        run(module, target, 3, given_list)


def given_list(rank: int) -> list[np.ndarray]:
    return [given(rank)]


def test_a_rank_that_fails_ends_the_others() -> None:
    def on(rank: int) -> None:
        if rank == 1:
            raise ValueError("no more")
        current().barrier()

    with pytest.raises(ValueError, match="no more"):
        run_local(3, on)
    seen = []

    def watched(rank: int) -> None:
        try:
            on(rank)
        except RankError as error:
            seen.append(str(error))
            raise

    with pytest.raises(ValueError, match="no more"):
        run_local(3, watched)
    assert len(seen) == 2 and all("rank 1 failed: ValueError: no more" in text for text in seen)


def test_scripts_print_and_parse() -> None:
    module = module_of(
        lambda x, y: [
            ops.ccl.allreduce(x, op_type="max"), ops.ccl.allgather(x, 2), ops.ccl.broadcast(x),
            *(ops.ccl.reduce([x, y, x, y], shards=2)[k] for k in range(2)), ops.ccl.rank(),
        ],
        (4, 3), (4, 3),
    )  # fmt: skip
    round_trip(module)


def test_constants_are_not_folded_over_ranks() -> None:
    """One rank's value is no constant of the program."""
    module = module_of(lambda x: ops.add(x, ops.ccl.allreduce(relax.const(np.float32(1)))), ())
    for own in run(module, "llvm", 3, lambda r: [np.float32(0)]):
        assert own[0] == 3


def test_ranks_are_known_in_deep_recursion() -> None:
    """What recurses deeply goes on in another thread, which is the same rank."""

    def depth(n: int) -> int:
        return current().rank if n == 0 else depth(n - 1)

    assert run_local(2, lambda _: deep(depth)(20_000)) == [0, 1]
