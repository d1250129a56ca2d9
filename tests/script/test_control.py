"""If, loops and functions inside of graph functions: what they are made of, and how they print."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

from pullback.ir import IRModule, ScriptError
from pullback.relax.expr import Call, DataflowVar, Function, If, VarBinding
from pullback.relax.interpreter import evaluate
from pullback.relax.transform.inline_functions import inline_calls
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip

HEAD = 'def main(a: R.Tensor((), "float64"), c: R.Tensor((), "bool"), xs: R.Tensor(("n", 2), "float64")):\n'


def read(body: str) -> Function:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return from_source(f"@R.function\n{HEAD}{lines}")


def run(function: Function, a: float = 2.0, c: bool = True, rows: int = 3) -> list[np.ndarray]:
    found = evaluate(IRModule({"main": function}), "main", [np.array(a), np.array(c), np.ones((rows, 2))])
    return list(found) if isinstance(found, tuple) else [found]


PRINTED = """\
from pullback.script import relax as R


@R.function
def main(
    a: R.Tensor((), "float64"),
    c: R.Tensor((), "bool"),
    d: R.Tensor((), "bool"),
    xs: R.Tensor((3,), "float64"),
) -> R.Tuple(R.Tensor((), "float64"), R.Tensor((), "float64")):
    if c:
        h = R.exp(a)
        k = a
    elif d:
        h = R.sin(a)
        k = R.cos(h)
    else:
        h = a
        k = R.const(0.5, "float64")
    def step(h: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        h = R.multiply(h, a)
        return h
    def body(
        h: R.Tensor((), "float64"),
        x: R.Tensor((), "float64"),
    ) -> R.Tuple(R.Tuple(R.Tensor((), "float64")), R.Tuple(R.Tensor((), "float64"))):
        h = step(h)
        return ((h,), (x,))
    ((h,), (ys,)) = R.scan(body, (h,), (xs,), reverse=True)
    total = R.sum(ys)
    h = R.add(h, total)
    return (h, k)
"""

CLOSED = """\
from pullback.script import relax as R


@R.function
def main(
    a: R.Tensor((), "float64"),
    c: R.Tensor((), "bool"),
) -> R.Tuple(R.Tuple(R.Tensor((), "float64")), R.Tuple(), R.Tensor((), "int64")):
    @R.region
    def body(
        k: R.Tensor((), "int64"),
        a: R.Tensor((), "float64"),
        c: R.Tensor((), "bool"),
    ) -> R.Tuple(R.Tuple(R.Tensor((), "float64")), R.Tuple()):
        @R.region
        def then(a: R.Tensor((), "float64")) -> R.Tuple(R.Tensor((), "float64")):
            a = R.exp(a)
            return (a,)
        @R.region
        def otherwise(a: R.Tensor((), "float64")) -> R.Tuple(R.Tensor((), "float64")):
            return (a,)
        a = R.branch(c, (a,), then=then, otherwise=otherwise)
        a = a[0]
        return ((a,), R.tuple())
    a = R.loop(None, (a,), (), (c,), body=body, length=4)
    return a
"""


@pytest.mark.parametrize("text", [PRINTED, CLOSED], ids=["open", "closed"])
def test_golden(text: str) -> None:
    function = from_source(text)
    assert function.script() == text
    round_trip(function)
    module = IRModule({"main": function})
    assert round_trip(module).count("@R.function") == 1
    page = html.unescape(re.sub("<[^>]+>", "", module._repr_html_()))
    assert text.partition("@R.function\n")[2].strip() in page


def test_one_result_is_the_value_of_the_if() -> None:
    function = read("if c:\n    y = R.exp(a)\nelse:\n    y = a\nreturn y")
    (binding,) = function.bindings
    assert isinstance(binding, VarBinding)
    assert isinstance(binding.value, If)
    assert binding.value.otherwise.body is function.params[0]
    assert function.body.body is binding.var


def test_a_name_that_nobody_reads_is_no_result() -> None:
    function = read("if c:\n    t = R.exp(a)\n    y = t * t\nelse:\n    t = a\n    y = t\nt = R.sin(y)\nreturn t")
    assert sum(isinstance(b.value, If) for b in function.bindings) == 1
    assert len(list(function.bindings)) == 2


def test_returns_in_branches() -> None:
    function = read("if c:\n    return R.exp(a)\nelif a > 1.0:\n    return a\nelse:\n    return -a")
    for a, c, wanted in ((2.0, True, np.exp(2.0)), (2.0, False, 2.0), (0.5, False, -0.5)):
        np.testing.assert_allclose(run(function, a, c), wanted)
    round_trip(function)


def test_a_condition_of_python_chooses_when_the_text_is_read() -> None:
    text = f"@R.function\n{HEAD}    if FLAG:\n        return R.exp(a)\n    x = -a\n    return x\n"
    for flag, op in ((True, "exp"), (False, "negative")):
        function = from_source(text, extra_vars={"FLAG": flag})
        (binding,) = function.bindings
        assert binding.value.op.short == op


def test_the_carries_of_a_loop() -> None:
    """Names that a later step or the program reads: not those that a step assigns before it reads them."""
    function = read("h = a\nt = a\nfor i in R.range(3):\n    t = h * 0.5\n    h = t + 1.0\nt = h\nreturn t")
    (loop,) = (b.value for b in function.bindings if isinstance(b.value, Call) and b.value.op.short == "fori_loop")
    assert len(loop.args[2].fields) == 1
    np.testing.assert_allclose(run(function), 2.0)  # the fixed point of h / 2 + 1


def test_counts_of_loops() -> None:
    for bounds, wanted in (("n", [0, 1, 2]), ("1, n", [1, 2]), ("n, 5", [3, 4]), ("3, 1", []), ("2, 4", [2, 3])):
        body = f's = a\nfor i in R.range({bounds}):\n    s += R.astype(i, "float64")\nreturn s'
        function = read(body)
        np.testing.assert_allclose(run(function, 0.0), sum(wanted))
        round_trip(function)
    count = 'm = R.astype(a, "int64")\ns = a\nfor i in R.range(m, max_steps=9):\n    s = s + 1.0\nreturn s'
    np.testing.assert_allclose(run(read(count), 4.0), 8.0)
    assert "max_steps=9" in round_trip(read(count))


def test_names_in_dataflow_blocks() -> None:
    """The last value of an output leaves the block; the others are local to it."""
    function = read("with R.dataflow():\n    h = R.exp(a)\n    h = R.sin(h)\n    R.output(h)\nreturn h")
    kinds = [isinstance(b.var, DataflowVar) for b in function.bindings]
    assert kinds == [True, False]
    assert "        h = R.exp(a)\n        h = R.sin(h)\n        R.output(h)\n" in round_trip(function)


def test_functions_inside_read_what_is_around_them() -> None:
    body = """
w = a * a
def f(x: R.Tensor((), "float64"), g: R.Callable([R.Tensor((), "float64")], R.Tensor((), "float64"))):
    return g(x) + w
def double(x: R.Tensor((), "float64")):
    return x * 2.0
return f(a, double)
"""
    function = read(body)
    np.testing.assert_allclose(run(function), 8.0)
    round_trip(function)
    closed = inline_calls(function, IRModule({"main": function}))
    np.testing.assert_allclose(run(closed), 8.0)


def test_recursion_is_read_and_run() -> None:
    body = """
def f(x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
    if x > 10.0:
        return x
    else:
        return f(x * a)
return f(a)
"""
    function = read(body)
    np.testing.assert_allclose(run(function), 16.0)
    round_trip(function)


def test_functions_are_called_with_what_python_would_find() -> None:
    late = "w = a\ndef f(x: R.Tensor((), 'float64')):\n    return x + w\n{}\nreturn f(a)"
    np.testing.assert_allclose(run(read(late.format("v = a"))), 4.0)
    for again in ("w = a * a", "for i in R.range(2):\n    w = w * f(a)", "if c:\n    w = a * a"):
        with pytest.raises(ScriptError, match="'f' reads 'w', which is assigned again"):
            read(late.format(again))


def test_the_result_of_an_if_that_nobody_reads() -> None:
    round_trip(read("if c:\n    y = R.exp(a)\n    y = y\nelse:\n    y = a\nreturn a"))


@I.ir_module
class Logic:
    @R.function
    def main(x: R.Tensor((), "float64"), y: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        while 0.5 < x < 9.0 and not y > 4.0:
            x = x * 1.5
            y = y + 1.0
        if x > 9.0 or y > 4.0:
            x = x + 100.0
        return x


@pytest.mark.parametrize(("x", "y", "wanted"), [(1.0, 0.0, 1.0 * 1.5**5 + 100), (8.0, 0.0, 112.0), (0.1, 0.0, 0.1)])
def test_conditions_are_pythons(x, y, wanted):
    """``and``, ``or``, ``not`` and chains of comparisons of bool scalars."""
    assert evaluate(Logic, "main", [np.array(x), np.array(y)]) == wanted
