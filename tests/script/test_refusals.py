"""What a script cannot say, in a few words of each message (``test_errors.py`` has whole ones)."""

from __future__ import annotations

import pytest

from pullback.ir.errors import UserError
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T

GRAPH = '@R.function\ndef main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):\n'
LOOPS = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):\n'
HOST = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32"), B: T.Buffer((), "bool")):\n'


@pytest.mark.parametrize("line, message", [
    ("return", "return needs a value"),
    ("a = b = x\n    return a", "several assignments on one line"),
    ("x[0] = y\n    return x", "only names can be assigned; values are never changed in place"),
    ("x.a: R.Tensor((2, 3)) = y\n    return x", "only names can be assigned"),
    ("return main_of_another", "the name 'main_of_another' is not defined"),
    ("a, b = 3\n    return x", "cannot unpack"),
    ("a, b = x\n    return a", "cannot unpack Tensor((2, 3), float32): it is no tuple"),
    ("a, x.b = (x, y)\n    return a", "a tuple is unpacked to plain names"),
    ("a, b = (x, y, x)\n    return a", "2 names for a tuple of 3"),
    ("a = 3\n    b = a(x)\n    return b", "a cannot be called"),
    ("R.func_attr(1)\n    return x", "func_attr takes one dictionary"),
    ("R.func_attr({}, {})\n    return x", "func_attr takes one dictionary"),
    ("with R.dataflow():\n        z = R.exp(x)\n        R.output(z + z)\n    return z", "R.output takes names of var"),
    ("with R.dataflow():\n        z = R.exp(x)\n        R.output(x)\n    return x", "'x' is not assigned in this"),
    ("with R.dataflow() as z:\n        z = R.exp(x)\n    return x", "cannot be used in @R.function"),
    ("with R.dataflow(), R.dataflow():\n        z = R.exp(x)\n    return x", "cannot be used in @R.function"),
    ("with R.dataflow():\n        z = R.exp(x)\n    return z", "'z' is a dataflow variable: it is not visible after"),
    ("R.exp(x)\n    return x", "the value of this expression is not used"),
    ("z = R.exp(x)", "function main returns nothing"),
    ("return x\n    z = x", "there is a statement after the return"),
    ("a = T.int64()\n    a = T.int32()\n    return x", "'a' is a size of dtype int64, not int32"),
    ("z: R.Tensor(ndim=3) = x\n    return z", "is declared Tensor"),
    ("z: R.Tensor(ndim=2, dtype='int32') = x\n    return z", "is declared Tensor"),
    ("z: R.Tuple(R.Tensor((2, 3)), R.Tensor((2, 3))) = (x, y, x)\n    return z", "is declared"),
    ("z: R.Tuple(R.Tensor((2, 3)), R.Tensor((2, 4))) = (x, y)\n    return z", "is declared"),
    ("return x and y", "'and' works on bool scalars, not on tensors"),
    ("return x if x else y", "a choice between tensors needs R.where"),
])  # fmt: skip
def test_graph_functions(line: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_source(f"{GRAPH}    {line}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("line", [
    "z: R.Tensor(ndim=2) = x\n    return x",
    "z: R.Tensor((2, 3), 'float32') = x\n    return x",
    "z: R.Tuple(R.Tensor(ndim=2), R.Tensor((2, 3))) = (x, y)\n    return x",
    "z: R.Object = x\n    return x",
    "_ = R.exp(x)\n    _ = R.exp(y)\n    return x",
])  # fmt: skip
def test_annotations_may_say_less(line: str) -> None:
    from_source(f"{GRAPH}    {line}\n")


@pytest.mark.parametrize("line, message", [
    ("a = b = A[0]", "several assignments on one line"),
    ("a, b = A[0], A[1]", "only names and elements of buffers can be assigned"),
    ("a = R.const(1.0)", "has no place in a loop function"),
    ("a: R.Tensor((2,)) = A[0]", "an annotated assignment is written name: T.float32 = value"),
    ("a: T.int32 = A[0]", "a is declared int32 but its value is float32"),
    ("a = A[0]\n    a[0] = 1.0", "only buffers have elements that can be assigned"),
    ("a = A[0]\n    a = A[1]", "'a' is assigned twice"),
    ("A[0] + 1.0", "the value of this expression is not used"),
    ("A[0] = B", "the buffer B is no scalar"),
    ("A[0, 0] = 1.0", "A has rank 1, got 2 indices"),
    ("A[0] = T.cast(1.5, 'float33')", "there is no dtype 'float33'"),
    ("A[0] = T.cast(A[0], 3)", "T.cast takes a scalar and the name of a dtype"),
    ("A[0] = T.int32(1.5)", "the constant is not an integer"),
    ("A[0] = T.exp(A[0], A[1])", "T.exp takes 1 argument, got 2"),
    ("A[0] = T.fma(A[0], A[1])", "T.fma takes 3 arguments, got 2"),
    ("if A[0] is A[1]:\n        A[0] = 1.0", "scalars of the loop IR have no identity or membership"),
    ("if A[0]:\n        A[0] = 1.0", "a condition must be bool, not float32"),
    ("for i in range(0, 4, 2):\n        A[i] = 1.0", "a loop takes (extent) or (start, stop), got 3 arguments"),
    ("for i in range(4):\n        A[i] = 1.0\n    B[i] = 1.0", "'i' is not visible here"),
    ("T.prefetch(A, 'read')", "T.prefetch takes an element of a buffer"),
    ("T.prefetch(A[0], 'often')", "T.prefetch takes an element of a buffer"),
    ("T.func_attr(3)", "func_attr takes one dictionary"),
    ("for i in range(4):\n        c = T.alloc_buffer((i,), 'float32')", "must be constant"),
    ("return A", "return cannot be used in @T.prim_func"),
    ("n = T.int64()\n    n = T.int32()", "'n' is a size of dtype int64, not int32"),
])  # fmt: skip
def test_loop_functions(line: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_source(f"{LOOPS}    {line}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("line, message", [
    ("T.kernel(A, A)", "T.kernel takes the kernel's name as a string, then buffers"),
    ("T.kernel('k', A, 3)", "T.kernel takes the kernel's name as a string, then buffers"),
    ("T.host(A)", "T.host takes the host function's name as a string"),
    ("T.host('f', A, arena=3)", "T.host takes the host function's name as a string"),
    ("T.piece('A', 3)", "T.piece takes a buffer"),
    ("T.stop('now')", "T.stop takes a status code"),
    ("T.check('B', 1)", "T.check takes a buffer of one bool, then a status code"),
    ("T.check(B, 'one')", "T.check takes a buffer of one bool, then a status code"),
])  # fmt: skip
def test_host_functions(line: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_source(f"{HOST}    {line}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("text, message", [
    ("@I.ir_module\nclass M:\n    @R.nothing\n    def f(x: R.Tensor((2,))):\n        return x\n", "R.nothing"),
    ("@I.ir_module\nclass M:\n    @print\n    def f(x: R.Tensor((2,))):\n        return x\n", "is no decorator"),
    (
        "@I.ir_module\nclass M:\n    @R.function(fast=True)\n    def f(x: R.Tensor((2,))):\n        return x\n",
        "has no option 'fast'",
    ),
    ("@I.ir_module\nclass M:\n    def f(x):\n        return x\n", "function f has no decorator"),
    ("@I.ir_module\nclass M:\n    print(3)\n", "this statement cannot be used in a module"),
    (
        "@I.ir_module\nclass M:\n" + 2 * "    @R.function\n    def f(x: R.Tensor((2,))):\n        return x\n",
        "the module has two functions named 'f'",
    ),
    ("@R.function\ndef f(x: R.Tensor((2,)), *rest):\n    return x\n", "parameters of @R.function are plain: no *"),
    ("@R.function\ndef f(x: R.Tensor((2,)) = 3):\n    return x\n", "parameters of @R.function have no default values"),
    ("@R.function\ndef f(x):\n    return x\n", "parameter 'x' has no type"),
    ("@R.function\ndef f(x: 3):\n    return x\n", "expected a type such as R.Tensor"),
    ("@R.function\ndef f(x: R.Tensor(('T',))):\n    return x\n", "'T' is not a size"),
    ("@R.function\ndef f(x: R.Tensor(('n +',))):\n    return x\n", "'n +' is not an expression"),
    ("@R.function\ndef f(x: R.Tensor((2,), 'float31')):\n    return x\n", "unknown dtype 'float31'"),
    ("@R.function\ndef f(x: R.Tensor((2,))) -> R.Tensor((3,)):\n    return x\n", "but declares Tensor((3,), float32)"),
])  # fmt: skip
def test_modules_and_signatures(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_source(text)
    assert message in str(caught.value)


def test_parts_of_scripts_mean_nothing_outside() -> None:
    for call, message in [
        (R.dataflow, "R.dataflow"), (R.output, "R.output"), (lambda: R.func_attr({}), "R.func_attr"),
        (T.scope, "T.scope"), (lambda: T.func_attr({}), "T.func_attr"),
    ]:  # fmt: skip
        with pytest.raises(UserError, match=rf"{message}\(\) means something only inside"):
            call()
    with pytest.raises(UserError, match=r"@I\.ir_module decorates a class, not 3"):
        I.ir_module(3)
    with pytest.raises(UserError, match="only Python functions can be decorated, not 3"):
        R.function(3)
    with pytest.raises(AttributeError, match=r"there is no T\.fused"):
        T.fused  # noqa: B018
    with pytest.raises(AttributeError, match=r"there is no R\.fused"):
        R.fused  # noqa: B018
