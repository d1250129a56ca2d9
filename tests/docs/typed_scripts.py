"""Modules and functions in script as mypy has them: tests/docs/test_types.py checks this file, and nothing runs it.

``# error: …`` is what mypy says of that line. Of scripts it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pullback
from pullback import optim, relax, tir
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T

if TYPE_CHECKING:
    from typing_extensions import assert_type


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function(private=True)
    def one() -> R.Tensor((), "float32"):
        return R.const(1.0)

    @R.function
    def backbone(x: R.Tensor(("n", 4)), w: R.Param((4, 3))) -> R.Tensor(("n", 3)):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y

    @T.prim_func
    def double(A: T.Buffer((4, "n"), "float32"), B: T.Buffer((4, "n"), "float32"), n: T.int64):
        for i, j in T.grid(4, n):
            x: T.float32 = A[i, j]
            B[i, j] = x + x


@I.ir_module()
class Empty:
    pass


modules: list[pullback.IRModule] = [Model, Empty, relax.transform.Simplify()(Model)]
assert_type(Model.with_attr("answer", 42), pullback.IRModule)
assert_type(Model.functions, "dict[str, object]")  # error: Expression is of type "dict[str, Any]"
trainer = pullback.trainer(Model, "cross_entropy", optim.SGD(lr=0.1))
program = pullback.compile(Model)
text, backbone = Model.script(), Model["backbone"]
missing = Model.not_there  # error: has no attribute "not_there"
wrong = Model + 1  # error: Unsupported operand types for +


@R.function
def steps(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    for i in R.range(3):
        x += R.astype(i, "float32")
    while x > 1.0:
        x = R.sqrt(x)
    return x


@R.function(private=True)
def inner(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    return R.nn.relu(x)


@T.prim_func
def double(A: T.Buffer((4, "n"), "float32"), B: T.Buffer((4, "n"), "float32"), n: T.int64):
    for i, j in T.grid(4, n):
        x: T.float32 = A[i, j]
        B[i, j] = x + x


@T.prim_func(private=True)
def nothing():
    T.evaluate(0)


assert_type(steps, relax.Function)
assert_type(inner, relax.Function)
assert_type(double, tir.PrimFunc)
assert_type(nothing, tir.PrimFunc)
number: int = steps  # error: Incompatible types in assignment


def made(n: int) -> tuple[pullback.IRModule, Callable[..., object]]:
    @I.ir_module
    class Inside:
        @R.function
        def main(x: R.Tensor((n, 4))):
            return x

    @R.function
    def doubled(x: R.Tensor((n, 4))):
        for _ in R.range(n):
            x = x + x
        return x

    assert_type(doubled, relax.Function)
    return Inside, n.name  # error: "int" has no attribute "name"
