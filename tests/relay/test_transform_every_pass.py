"""Every pass on whole programs: types are found again, and values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule
from pullback.ir.transform import PassContext
from pullback.relay import transform
from pullback.relay.expr import call_op as op
from pullback.relay.prelude import Prelude
from tests.relay.dataflow import free

PASSES: dict[str, Callable[[], Any]] = {
    "BackwardFoldScaleAxis": transform.BackwardFoldScaleAxis,
    "BatchingOps": transform.BatchingOps,
    "AlterOpLayout": transform.AlterOpLayout,
    "AnnotateSpans": transform.AnnotateSpans,
    "standard_passes": transform.standard_passes,
    "CanonicalizeCast": transform.CanonicalizeCast,
    "CanonicalizeOps": transform.CanonicalizeOps,
    "CombineParallelDense": lambda: transform.CombineParallelDense(2),
    "CombineParallelDense, flat": lambda: transform.CombineParallelDense(2, to_batch=False),
    "CombineParallelConv2D": lambda: transform.CombineParallelConv2D(2),
    "ConvertLayout": lambda: transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
    "DefuseOps after FuseOps": lambda: transform.Sequential([transform.FuseOps(), transform.DefuseOps()]),
    "DynamicToStatic": transform.DynamicToStatic,
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr,
    "FastMath": transform.FastMath,
    "FlattenAtrousConv": transform.FlattenAtrousConv,
    "FoldConstant": transform.FoldConstant,
    "FoldScaleAxis": transform.FoldScaleAxis,
    "ForwardFoldScaleAxis": transform.ForwardFoldScaleAxis,
    "FuseOps": transform.FuseOps,
    "Legalize": transform.Legalize,
    "PlanDevices": transform.PlanDevices,
    "SimplifyExpr": transform.SimplifyExpr,
    "SimplifyInference": transform.SimplifyInference,
    "SplitArgs": lambda: transform.SplitArgs(2),
    "ToMixedPrecision": lambda: transform.ToMixedPrecision(missing_op_mode=2),
}
Program = tuple[IRModule, list[np.ndarray]]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def mlp() -> tuple[Any, list[np.ndarray]]:
    x, w, b, v = free("x", 2, 4), free("w", 5, 4), free("b", 5), free("v", 3, 5)
    hidden = op("nn.relu", op("nn.bias_add", op("nn.dense", x, w), b))
    loss = op(
        "sum", op("multiply", op("nn.dense", hidden, v), op("nn.dense", op("multiply", hidden, relay.const(2.0)), v))
    )
    return relay.Function([x, w, b, v], loss), [drawn(2, 4), drawn(5, 4), drawn(5), drawn(3, 5)]


def straight() -> Program:
    function, arrays = mlp()
    return IRModule.from_expr(function), arrays


def first_order() -> Program:
    function, arrays = mlp()
    module = transform.InferType()(IRModule.from_expr(function))
    return IRModule.from_expr(transform.gradient(module["main"], mode="first_order")), arrays


def higher_order() -> Program:
    function, arrays = mlp()
    module = transform.InferType()(IRModule.from_expr(function))
    return IRModule.from_expr(transform.gradient(module["main"])), arrays


def network() -> Program:
    x = free("x", 1, 3, 8, 8)
    w, u = relay.const(drawn(4, 3, 3, 3)), relay.const(drawn(4, 3, 3, 3))
    params = [relay.const(np.abs(drawn(4)) + 0.5) for _ in range(4)]
    y = op("nn.batch_norm", op("nn.conv2d", x, w, channels=4, kernel_size=(3, 3)), *params)[0]
    z = op("nn.conv2d", x, u, channels=4, kernel_size=(3, 3))
    y = op("concatenate", [op("nn.relu", y), op("nn.relu", z), op("tanh", z)], axis=1)
    y = op("nn.softmax", op("nn.batch_flatten", op("nn.avg_pool2d", y, pool_size=(2, 2))))
    return IRModule.from_expr(relay.Function([x], y)), [drawn(1, 3, 8, 8)]


def recursion() -> Program:
    """A loop, by a function that calls itself."""
    i, x = relay.var("i", shape=(), dtype="int32"), free("x", 3)

    def less(i: Any, x: Any) -> Any:
        return op("less", i, relay.const(4, "int32"))

    def body(i: Any, x: Any) -> tuple[Any, Any]:
        return i + relay.const(1, "int32"), op("add", op("multiply", x, relay.const(0.5)), op("tanh", x))

    loop = relay.loops.while_loop(less, [i, x], body)
    start = free("start", 3)
    result = relay.TupleGetItem(loop(relay.const(0, "int32"), start), 1)
    return IRModule.from_expr(relay.Function([start], result)), [drawn(3)]


def data_types() -> Program:
    """A sum over a list, by the prelude."""
    module = IRModule()
    prelude = Prelude(module)
    cons, nil = module.get_type("List")[1:]
    x = free("x", 3)
    a, e = relay.var("a"), relay.var("e")
    plus = relay.Function([a, e], op("add", op("multiply", a, relay.const(2.0)), e))
    values = cons(x, cons(op("exp", x), nil()))
    module["main"] = relay.Function([x], prelude.foldl(plus, op("zeros_like", x), values))
    return module, [drawn(3)]


def unknown_sizes() -> Program:
    x, w, b = relay.var("x", shape=(relay.Any(), 4)), relay.const(drawn(5, 4)), relay.const(drawn(5))
    y = op("nn.dense", op("multiply", x, relay.const(np.arange(1, 5, dtype="float32"))), w)
    y = op("nn.relu", op("nn.bias_add", op("multiply", y, relay.const(2.0)), b))
    y = op("concatenate", [y, op("zeros_like", y), op("nn.softmax", y)], axis=1)
    z = op("nn.dense", x, w)
    shape = op("shape_of", z, dtype="int64")
    y = op("add", op("sum", y, axis=1, keepdims=True), op("dyn.reshape", op("add", z, z), shape))
    return IRModule.from_expr(relay.Function([x], y)), [drawn(3, 4)]


def references() -> Program:
    x = free("x", 3)
    cell, ignored = relay.var("cell"), relay.var("ignored")
    doubled = op("add", relay.RefRead(cell), relay.RefRead(cell))
    after = relay.Let(ignored, relay.RefWrite(cell, doubled), relay.RefRead(cell))
    body = relay.Let(cell, relay.RefCreate(op("multiply", x, relay.const(3.0))), after)
    return IRModule.from_expr(relay.Function([x], body)), [drawn(3)]


PROGRAMS = {
    f.__name__: f
    for f in (straight, first_order, higher_order, network, recursion, data_types, references, unknown_sizes)
}


def numbers(value: Any) -> list[np.ndarray]:
    if hasattr(value, "numpy"):
        return [value.numpy()]
    return [x for field in value for x in numbers(field)]


@pytest.fixture(scope="module")
def computed() -> Callable[[str], tuple[Program, list[np.ndarray]]]:
    known: dict[str, Any] = {}

    def compute(name: str) -> tuple[Program, list[np.ndarray]]:
        if name not in known:
            program = PROGRAMS[name]()
            known[name] = program, run(*program)
        return known[name]

    return compute


def run(module: IRModule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return numbers(relay.create_executor("debug", mod=module).evaluate()(*arrays))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", PASSES)
def test_values_stay(name: str, program: str, computed: Any) -> None:
    (module, arrays), expected = computed(program)
    with PassContext(opt_level=4):
        after = PASSES[name]()(module)
    found = run(after, arrays)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        rtol, atol = {"FastMath": (2e-3, 1e-5), "ToMixedPrecision": (2e-2, 5e-2)}.get(name, (1e-4, 1e-5))
        np.testing.assert_allclose(a.astype("float32"), b, rtol=rtol, atol=atol)
