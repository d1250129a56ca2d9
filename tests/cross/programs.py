"""What is tried on other machines: every op on its samples, and kernels of each kind at sizes around vectors and tiles.

A program is a function of a module with arguments; the graph IR's interpreter says what it computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

import pullback
from pullback.ir import IRModule
from pullback.relax import BlockBuilder, Expr, TensorStructInfo, TupleStructInfo, Var, const
from pullback.relax.op.namespace import ops
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import Adam, MomentumSGD
from pullback.relax.transform import Gradient
from pullback.relax.transform.raise_ops import RaiseOps
from tests.driver import test_control_native
from tests.driver.models import mlp_trainer_module, step_arguments
from tests.relax.op.backends import arguments, module_of
from tests.relax.op.test_values import assert_close
from tests.samples import Case, all_ops, cases, dtypes_of

Check = Callable[[int, np.ndarray, np.ndarray], None]  # number of the result, got, expected
Build = Callable[..., Expr]


@dataclass(frozen=True, eq=False)
class Program:
    """``check`` raises an AssertionError for a result that is not close to the expected one."""

    name: str
    module: IRModule
    function: str
    arguments: tuple[np.ndarray, ...]
    check: Check

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """The results that are not donated, then the inputs that donated results overwrite."""
        function = pullback.compile(self.module, "debug").function(self.function)
        call = function.bind([pullback.tensor(a, copy=True) for a in self.arguments])
        fresh = call()
        return [t.numpy() for t in [*fresh, *(call.flat[i] for i in function.donated)]]


def close(number: int, got: np.ndarray, expected: np.ndarray) -> None:
    """Within rounding of the largest result."""
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
        return
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=256 * eps, atol=256 * eps * scale
    )


def samples(dtypes: Sequence[str]) -> Iterator[Program]:
    """Every op on its samples, in its own dtypes of these (or in its last one, when it has none of them)."""
    for op in all_ops():
        own = dtypes_of(op)
        for dtype in [d for d in own if d in dtypes] or own[-1:]:
            calls = list(cases(op, dtype))
            yield Program(f"{op.short} {dtype}", module_of(calls), "main", tuple(arguments(calls)), _of_samples(calls))


def _of_samples(calls: Sequence[Case]) -> Check:
    owners = [case for case in calls for _ in range(_results(case))]

    def check(number: int, got: np.ndarray, expected: np.ndarray) -> None:
        assert_close(owners[number], got, expected)

    return check


def _results(case: Case) -> int:
    from tests.relax.op.backends import call_of

    info = call_of(case)[1].struct_info
    return len(info.fields) if isinstance(info, TupleStructInfo) else 1


# -- kernels of each kind


def kernel(name: str, build: Build, *shapes: Any, integers: int = 0) -> Iterator[Program]:
    """``build`` of float32 arrays of the shapes (a shape beginning with "i": int64 below ``integers``), and its adjoint
    along random weights of the results."""
    rng = np.random.default_rng(len(name))
    values = [
        rng.integers(0, integers, s[1:]) if s[:1] == ("i",) else rng.standard_normal(s, np.float32) for s in shapes
    ]
    params = [Var(f"p{k}", TensorStructInfo(v.shape, v.dtype.name)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(build(*params))
        builder.emit_func_output(result)
    yield Program(name, builder.get(), "main", tuple(values), close)
    info = result.struct_info
    assert isinstance(info, TensorStructInfo)
    weight = rng.standard_normal(info.shape, np.float32)  # type: ignore[arg-type]
    w = Var("w", TensorStructInfo(weight.shape, "float32"))
    builder = BlockBuilder()
    with builder.function("main", [*params, w]):
        builder.emit_func_output(ops.sum(ops.multiply(builder.emit(build(*params)), w)))
    floats = [p for p in params if p.dtype == "float32"]
    yield Program(f"{name}: adjoint", Gradient("main", floats)(builder.get()), "main_adjoint", (*values, weight), close)


def matmuls() -> Iterator[Program]:
    for m, n, k in (
        (1, 1, 1),
        (3, 5, 7),
        (17, 33, 9),
        (31, 8, 65),
        (64, 100, 50),
        (1, 77, 40),
        (50, 1, 30),
        (7, 9, 3000),
    ):
        yield from kernel(f"matmul {m} {n} {k}", lambda a, b: ops.matmul(a, b), (m, k), (k, n))
        yield from kernel(
            f"matmul {m} {n} {k} of both transposed",
            lambda a, b: ops.matmul(ops.permute_dims(a), ops.permute_dims(b)), (k, m), (n, k),
        )  # fmt: skip
    yield from kernel("batched matmul", lambda a, b: ops.matmul(a, b), (5, 13, 21), (5, 21, 11))
    yield from kernel(
        "matmul, bias, gelu", lambda a, b, c: ops.nn.gelu(ops.matmul(a, b) + c), (19, 40), (40, 37), (37,)
    )


def half_products() -> Iterator[Program]:
    """Products of half types, summed in float32: not their adjoints, whose roundings may fall on either side."""

    def build(a: Expr, b: Expr, dtype: str) -> Expr:
        return ops.matmul(ops.astype(a, dtype), ops.astype(b, dtype), out_dtype="float32")

    for dtype, (m, n, k) in itertools.product(
        ("bfloat16", "float16"), ((17, 33, 9), (31, 8, 64), (6, 100, 50), (40, 5, 300))
    ):
        product, _ = kernel(f"matmul {m} {n} {k} {dtype}", lambda a, b, d=dtype: build(a, b, d), (m, k), (k, n))
        turned, _ = kernel(
            f"matmul {m} {n} {k} {dtype} of both transposed",
            lambda a, b, d=dtype: build(ops.permute_dims(a), ops.permute_dims(b), d), (k, m), (n, k),
        )  # fmt: skip
        yield from (product, turned)


def convolutions() -> Iterator[Program]:
    forms: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ("3x3", (2, 5, 9, 11), (7, 5, 3, 3), {"padding": 1}),
        ("3x3 wide", (2, 16, 10, 10), (32, 16, 3, 3), {"padding": 1}),
        ("5x5, one channel", (3, 1, 14, 14), (6, 1, 5, 5), {"padding": 2}),
        ("strided", (2, 6, 11, 9), (8, 6, 3, 3), {"strides": 2, "padding": 1}),
        ("strided 1x1", (2, 8, 8, 8), (16, 8, 1, 1), {"strides": 2}),
        ("dilated", (1, 4, 12, 12), (5, 4, 3, 3), {"dilation": 2}),
        ("grouped", (2, 8, 7, 7), (12, 4, 3, 3), {"groups": 2, "padding": 1}),
        ("depthwise", (2, 10, 9, 9), (10, 1, 3, 3), {"groups": 10, "padding": 1}),
        ("depthwise, strided", (2, 6, 9, 9), (6, 1, 3, 3), {"groups": 6, "padding": 1, "strides": 2}),
    ]
    for name, data, weight, window in forms:
        yield from kernel(f"conv2d {name}", lambda x, w, a=window: ops.nn.conv2d(x, w, **a), data, weight)
        n, c, h, w = data
        last = {**window, "data_layout": "NHWC"}
        yield from kernel(f"conv2d {name}, NHWC", lambda x, w, a=last: ops.nn.conv2d(x, w, **a), (n, h, w, c), weight)
    yield from kernel("conv1d", lambda x, w: ops.nn.conv1d(x, w, padding=2), (3, 4, 21), (6, 4, 5))
    transposed = {"strides": 2, "padding": 1}
    yield from kernel(
        "conv2d_transpose", lambda x, w: ops.nn.conv2d_transpose(x, w, **transposed), (2, 5, 6, 6), (5, 7, 4, 4)
    )


def reductions() -> Iterator[Program]:
    for shape in ((1, 1), (5, 17), (33, 129), (3, 1000)):
        yield from kernel(f"softmax {shape}", lambda x: ops.nn.softmax(x), shape)
        yield from kernel(f"log_softmax {shape}", lambda x: ops.nn.log_softmax(x), shape)
        yield from kernel(
            f"layer_norm {shape}", lambda x, g, b: ops.nn.layer_norm(x, g, b), shape, shape[1:], shape[1:]
        )
        yield from kernel(f"rms_norm {shape}", lambda x, g: ops.nn.rms_norm(x, g), shape, shape[1:])
        rows, classes = shape
        yield from kernel(
            f"cross_entropy {shape}", lambda x, t: ops.nn.cross_entropy(x, t), shape, ("i", rows), integers=classes
        )
    for shape in ((7, 5), (100, 33), (3000, 3), (3, 20000)):
        yield from kernel(f"column sums {shape}", lambda x: ops.sum(x, axis=0), shape)
        yield from kernel(f"row sums {shape}", lambda x: ops.sum(x, axis=1), shape)
        yield from kernel(f"column maxima {shape}", lambda x: ops.max(x, axis=0), shape)
        yield from kernel(f"whole sum {shape}", lambda x: ops.sum(x), shape)
        yield from kernel(f"variance {shape}", lambda x: ops.variance(x), shape)
    window = {"pool_size": 2, "strides": 2}
    overlapping = {"pool_size": 3, "strides": 2, "padding": 1}
    for name, options in (("2x2", window), ("3x3", overlapping)):
        yield from kernel(f"max_pool2d {name}", lambda x, o=options: ops.nn.max_pool2d(x, **o), (2, 5, 12, 10))
        yield from kernel(f"avg_pool2d {name}", lambda x, o=options: ops.nn.avg_pool2d(x, **o), (2, 5, 12, 10))


def elementwise() -> Iterator[Program]:
    for name in ("nn.gelu", "nn.gelu_tanh", "nn.silu", "exp", "tanh", "erf", "sigmoid", "sin", "cos", "log1p", "sqrt"):
        function = getattr(ops.nn, name[3:]) if name.startswith("nn.") else getattr(ops, name)
        for size in (1, 7, 4099):
            yield from kernel(f"{name} {size}", lambda x, f=function: f(ops.abs(x) + x * x), (size,))
    state = const(np.array([3, 7], np.uint64))
    for shape in ((5, 7), (40, 128), (3, 4099)):
        yield from kernel(f"dropout {shape}", lambda x: ops.dropout(x, state, 0.3), shape)
    yield from kernel(
        "dropout, permuted", lambda x: ops.permute_dims(ops.dropout(x, state, 0.3), axes=(0, 2, 1)), (3, 32, 64)
    )
    yield from kernel(
        "matmul, bias, dropout",
        lambda a, b, c: ops.dropout(ops.matmul(a, b) + c, state, 0.3),
        (19, 40),
        (40, 64),
        (64,),
    )
    yield from kernel("take", lambda x, i: ops.take(x, i, axis=0), (20, 13), ("i", 37), integers=20)
    yield from kernel("take from columns", lambda x, i: ops.take(x, i, axis=1), (9, 20), ("i", 37), integers=20)
    yield from kernel("permute_dims", lambda x: ops.permute_dims(x, axes=(2, 0, 1)), (9, 17, 23))


def attention() -> Iterator[Program]:
    forms: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("plain", (2, 9, 9, 2, 2, 5), {}),
        ("causal", (1, 33, 33, 4, 4, 16), {"causal_mask": "TopLeft"}),
        ("grouped", (2, 20, 300, 4, 2, 8), {"causal_mask": "BottomRight"}),
    ]
    for name, (b, s, t, n, m, h), options in forms:
        yield from kernel(
            f"attention {name}", lambda q, k, v, o=options: ops.nn.attention(q, k, v, **o),
            (b, s, n, h), (b, t, m, h), (b, t, m, h),
        )  # fmt: skip


# -- whole training steps


def steps() -> Iterator[Program]:
    for name, optimizer in (("momentum", MomentumSGD(0.05, 0.9)), ("Adam", Adam(0.01))):
        module = RaiseOps()(mlp_trainer_module((50, 33, 17, 5), 12, optimizer))
        yield Program(f"training step, MLP, {name}", module, "__step", _values(module), close)
    for name, build in (("convolutions", _network), ("a transformer's block", _block)):
        module = build()
        yield Program(f"training step, {name}", module, "__step", _values(module), close)


def _values(module: IRModule) -> tuple[np.ndarray, ...]:
    return tuple(
        np.abs(t.numpy()) * 0.5 if t.ndim and t.dtype == "float32" else t.numpy() for t in step_arguments(module)
    )


def _trainer(shapes: Sequence[tuple[int, ...]], rows: int, classes: int, build: Build) -> IRModule:
    names = ["x", *(f"w{k}" for k in range(len(shapes) - 1))]
    params = [Var(n, TensorStructInfo(s, "float32")) for n, s in zip(names, shapes, strict=True)]
    builder = BlockBuilder()
    with builder.function("backbone", params):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        builder.emit_func_output(out)
    module = builder.get().with_attrs({"param_num": len(shapes) - 1, "state_num": 0})
    infos = [TensorStructInfo((rows, classes), "float32"), TensorStructInfo((rows,), "int64")]
    return SetupTrainer(CrossEntropyLoss("mean"), Adam(0.01), infos, legalize=False)(module)


def _network() -> IRModule:
    def build(x: Expr, w0: Expr, b0: Expr, w1: Expr, w2: Expr) -> Expr:
        y = ops.nn.max_pool2d(ops.nn.relu(ops.nn.conv2d(x, w0, padding=1) + b0), pool_size=2, strides=2)
        y = ops.nn.relu(ops.nn.conv2d(y, w1, strides=2))
        return ops.matmul(ops.reshape(y, (6, -1)), w2)

    return _trainer([(6, 3, 14, 14), (8, 3, 3, 3), (8, 1, 1), (12, 8, 3, 3), (108, 5)], 6, 5, build)


def _block() -> IRModule:
    def build(x: Expr, gamma: Expr, beta: Expr, wq: Expr, wk: Expr, wv: Expr, up: Expr, down: Expr) -> Expr:
        y = ops.nn.layer_norm(x, gamma, beta)
        q, k, v = (ops.reshape(ops.matmul(y, w), (2, 10, 2, 8)) for w in (wq, wk, wv))
        y = x + ops.reshape(ops.nn.attention(q, k, v, causal_mask="TopLeft"), (2, 10, 16))
        y = y + ops.matmul(ops.nn.gelu(ops.matmul(y, up)), down)
        return ops.reshape(y, (20, 16))

    return _trainer([(2, 10, 16), (16,), (16,), *[(16, 16)] * 3, (16, 40), (40, 16)], 20, 16, build)


def loops() -> Iterator[Program]:
    """Branches and loops of every kind, in each other and side by side."""
    for name in test_control_native.PROGRAMS:
        module, values = test_control_native.program(name)
        yield Program(f"loop {name}", module, "main", tuple(values), close)


def all_programs(dtypes: Sequence[str]) -> Iterator[Program]:
    for family in (matmuls, half_products, convolutions, reductions, elementwise, attention, steps, loops):
        yield from family()
    yield from samples(dtypes)
