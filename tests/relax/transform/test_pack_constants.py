"""PackConstants: what kernels no longer compute of constants, with the same results, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pullback.driver.pipeline import lower_function
from pullback.ir import IRModule, structural_equal
from pullback.ir.module import GlobalVar
from pullback.relax import BlockBuilder, Var, const
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.pack_constants import PackConstants
from pullback.target import Target
from pullback.tir import Allocate, Buffer, PrimFunc, loop, seq, store
from pullback.tir.stmt import Prefetch
from pullback.tir.visitor import statements, walk
from tests.relax.transform.test_exact_passes import module_of

CPUS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def target(cpu: str) -> Target:
    return Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")


def kernels(module: IRModule) -> dict[str, PrimFunc]:
    return {name: f for name, f in module.items() if isinstance(f, PrimFunc)}


def packed(module: IRModule, *values: np.ndarray) -> IRModule:
    """The module after the pass, which computes the same."""
    after = PackConstants()(module)
    old, new = (evaluate(m, "main", list(values)) for m in (module, after))
    assert np.isfinite(old).all() and old.tobytes() == new.tobytes()
    return after


def allocated(kernel: PrimFunc) -> list[str]:
    return [n.buffer.name for n in statements(kernel.body) if isinstance(n, Allocate)]


# ---- kernels of schedules


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "conv2d": (ops.nn.conv2d, (2, 8, 10, 10), (16, 8, 5, 5)),
    "conv2d of three taps": (ops.nn.conv2d, (1, 16, 12, 12), (16, 16, 3, 3)),
    "linear": (ops.linear, (64, 40), (50, 40)),
}


@pytest.mark.parametrize(
    ("cpu", "name", "gone"),
    [
        ("x86-64-v3", "conv2d", "panels"),
        ("x86-64-v4", "linear", "panels"),
        ("x86-64-v2", "conv2d of three taps", "u"),  # by Winograd's algorithm: the transform of the weight
        ("x86-64-v3", "conv2d of three taps", "u"),
    ],
)
def test_what_is_made_of_a_weight(cpu: str, name: str, gone: str) -> None:
    product, data, weight = PRODUCTS[name]
    x, w = numbers(*data), const(numbers(*weight, seed=1))
    lowered, _ = lower_function(module_of(lambda x: product(x, w), x), "main", {}, target(cpu))
    (before,) = kernels(lowered).values()
    ((fresh, kernel),) = kernels(packed(lowered, x)).items()
    assert fresh == kernel.name == f"{before.name}_packed"
    assert gone in allocated(before) and gone not in allocated(kernel)
    assert [b.name for b in kernel.buffers] == ["x0", gone, before.buffers[-1].name]  # the weight is read no more


@pytest.mark.parametrize("cpu", CPUS)
def test_weights_that_are_trained_are_packed_in_each_call(cpu: str) -> None:
    x, w = numbers(2, 8, 10, 10), numbers(16, 8, 3, 3)
    lowered, _ = lower_function(module_of(ops.nn.conv2d, x, w), "main", {}, target(cpu))
    assert structural_equal(PackConstants()(lowered), lowered)


def test_a_weight_that_is_read_as_it_lies_stays() -> None:
    x, w = numbers(1, 40), const(numbers(50, 40, seed=1))
    lowered, _ = lower_function(module_of(lambda x: ops.linear(x, w), x), "main", {}, target("x86-64-v3"))
    assert structural_equal(packed(lowered, x), lowered)


def test_equal_kernels_stay_one() -> None:
    x = numbers(2, 16, 12, 12)
    weights = [const(numbers(16, 16, 3, 3, seed=k)) for k in range(2)]

    def network(x: Any) -> Any:
        for w in weights:
            x = ops.nn.conv2d(x, w, padding=1)
        return x

    lowered, _ = lower_function(module_of(network, x), "main", {}, target("x86-64-v3"))
    assert len(kernels(lowered)) == len(kernels(packed(lowered, x)))


def test_a_kernel_that_is_called_with_a_variable_too_stays_beside_it() -> None:
    x, v, w = numbers(2, 16, 12, 12), numbers(16, 16, 3, 3), const(numbers(16, 16, 3, 3, seed=1))

    def network(x: Any, v: Any) -> Any:
        return ops.nn.conv2d(ops.nn.conv2d(x, v, padding=1), w, padding=1)

    lowered, _ = lower_function(module_of(network, x, v), "main", {}, target("x86-64-v3"))
    assert [n.endswith("_packed") for n in kernels(packed(lowered, x, v))] == [False, True]


# ---- kernels written here

ROWS, TERMS, COLUMNS = 3, 5, 4
Parts = dict[str, Any]


def product(change: Callable[[Parts], Sequence[Any]] | None = None) -> IRModule:
    """out = x @ w, where each task copies w across. ``change``: what a test makes of the statements of a task."""
    x, w, out = Buffer("x", (ROWS, TERMS)), Buffer("w", (COLUMNS, TERMS)), Buffer("out", (ROWS, COLUMNS))
    across = Buffer("across", (TERMS, COLUMNS), "float32", "local")

    def task(i: Any) -> Any:
        def copy(factor: Any = 1.0) -> Any:
            def row(k: Any) -> Any:
                return loop("j", COLUMNS, lambda j: store(across, (k, j), w[j, k] * factor), "vectorized")

            return loop("k", TERMS, row)

        def add(k: Any) -> Any:
            def term(j: Any) -> Any:
                return store(out, (i, j), out[i, j] + x[i, k] * across[k, j])

            return loop("j", COLUMNS, term, "vectorized")

        zero = loop("j", COLUMNS, lambda j: store(out, (i, j), 0.0), "vectorized")
        parts = {"copy": copy, "zero": zero, "add": lambda: loop("k", TERMS, add)}
        parts |= {"task": i, "x": x, "w": w, "across": across, "out": out}
        chosen = [copy(), zero, parts["add"]()] if change is None else change(parts)
        return Allocate(across, seq(*chosen))

    kernel = PrimFunc("product", (x, w, out), loop("i", ROWS, task, "parallel"), {"streamed": (2,)})
    value = Var("x", value_info(numbers(ROWS, TERMS)))
    builder = BlockBuilder()
    with builder.function("main", [value]):
        with builder.dataflow():
            info = TensorStructInfo((ROWS, COLUMNS), "float32")
            result = builder.emit_output(call_tir(GlobalVar("product"), [value, const(numbers(COLUMNS, TERMS))], info))
        builder.emit_func_output(result)
    module = builder.get()
    module["product"] = kernel
    return module


def is_packed(module: IRModule) -> bool:
    return list(kernels(packed(module, numbers(ROWS, TERMS, seed=2)))) == ["product_packed"]


def test_a_copy_of_each_task() -> None:
    module = product()
    assert is_packed(module)
    (kernel,) = kernels(PackConstants()(module)).values()
    assert [b.name for b in kernel.buffers] == ["x", "across", "out"]
    assert kernel.attrs["streamed"] == (2,) and not allocated(kernel)


def test_what_is_still_read_stays() -> None:
    def change(p: Parts) -> Sequence[Any]:
        once_more = loop("j", COLUMNS, lambda j: store(p["out"], (p["task"], j), p["out"][p["task"], j] + p["w"][j, 0]))
        return [p["copy"](), p["zero"], p["add"](), once_more]

    module = product(change)
    assert is_packed(module)
    (kernel,) = kernels(PackConstants()(module)).values()
    assert [b.name for b in kernel.buffers] == ["x", "w", "across", "out"] and kernel.attrs["streamed"] == (3,)


def test_nothing_is_fetched_that_is_not_read() -> None:
    def change(p: Parts) -> Sequence[Any]:
        return [p["copy"](), p["zero"], Prefetch(p["w"], (0, 0)), Prefetch(p["across"], (0, 0)), p["add"]()]

    module = product(change)
    assert is_packed(module)
    (kernel,) = kernels(PackConstants()(module)).values()
    assert [n.buffer.name for n in walk(kernel.body) if isinstance(n, Prefetch)] == ["across"]


def test_a_copy_in_two_parts_and_what_is_made_of_it() -> None:
    def change(p: Parts) -> Sequence[Any]:
        across = p["across"]
        doubled = loop("k", TERMS, lambda k: store(across, (k, 0), across[k, 0] * 2.0))
        return [p["copy"](), doubled, p["zero"], p["add"]()]

    assert is_packed(product(change))


NOT_PACKED: dict[str, Callable[[Parts], Sequence[Any]]] = {
    "it differs from task to task": lambda p: [p["copy"](p["task"].astype("float32")), p["zero"], p["add"]()],
    "it is filled anew after it was read": lambda p: [p["copy"](), p["zero"], p["add"](), p["copy"](2.0), p["add"]()],
    "a task changes it": lambda p: [
        p["copy"](),
        loop("j", COLUMNS, lambda j: store(p["across"], (0, j), p["x"][p["task"], 0])),
        p["zero"],
        p["add"](),
    ],
    "it holds nothing of a constant": lambda p: [
        loop("k", TERMS, lambda k: loop("j", COLUMNS, lambda j: store(p["across"], (k, j), 1.0))),
        p["zero"],
        p["add"](),
    ],
}


@pytest.mark.parametrize("why", NOT_PACKED)
def test_a_copy_stays_in_the_kernel_where(why: str) -> None:
    module = product(NOT_PACKED[why])
    assert structural_equal(packed(module, numbers(ROWS, TERMS, seed=2)), module)
