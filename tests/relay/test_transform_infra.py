"""Passes over functions of relay, written by users, and real ones in sequences and contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule, assert_structural_equal
from pullback.ir.errors import ArgumentError, CallError, UserError
from pullback.ir.transform import PassContext, PassInfo, pass_instrument
from pullback.relay import transform
from pullback.relay.expr import Call, Function, GlobalVar, const
from pullback.relay.expr import call_op as op
from pullback.relay.ty import TensorType
from pullback.relay.visitor import post_order
from tests.relay.dataflow import free, ops_in, ran, same_values, typed


def log_of(function: Function) -> Function:
    return Function(function.params, op("log", function.body))


def test_a_function_as_a_pass() -> None:
    seen = []

    @transform.function_pass(opt_level=1)
    def logs(function: Function, module: IRModule, context: PassContext) -> Function:
        seen.append((module, context))
        return log_of(function)

    assert isinstance(logs, transform.FunctionPass)
    assert logs.info == PassInfo(1, "logs")
    assert str(logs) == "Run Function pass: logs at the optimization level 1"
    x = free("x", 3)
    after = ran(logs, Function((x,), op("exp", x)))
    assert_structural_equal(after, typed(Function((x,), op("log", op("exp", x)))))
    assert after.body.checked_type == TensorType((3,))  # types are inferred after it
    assert isinstance(seen[0][0], IRModule) and isinstance(seen[0][1], PassContext)


def test_a_class_as_a_pass() -> None:
    @transform.function_pass(opt_level=2, name="times", required=["InferType"])
    class Times:
        """Multiplies."""

        def __init__(self, number: float) -> None:
            self.number = number

        def transform_function(self, function: Function, module: IRModule, context: PassContext) -> Function:
            return Function(function.params, op("multiply", function.body, const(self.number)))

    times = Times(3.0)
    assert isinstance(times, transform.FunctionPass) and (times.number, times.info.name) == (3.0, "times")
    assert Times.__doc__ == "Multiplies."
    x = free("x", 3)
    assert ran(times, x).body.args[1].data.numpy() == 3


def test_every_function_of_a_module() -> None:
    x, y = free("x", 3), free("y", 3)
    module = IRModule({"f": Function((x,), op("exp", x)), "main": Function((y,), GlobalVar("f")(y))})
    after = transform.function_pass(lambda f, m, c: log_of(f), opt_level=0)(module)
    assert [ops_in(after[name]) for name in ("f", "main")] == [["exp", "log"], ["log"]]
    assert ops_in(module["f"]) == ["exp"]


@pytest.mark.parametrize("attrs", [{"SkipOptimization": 1}, {"Compiler": "other"}])
def test_functions_to_leave_alone(attrs: dict[str, Any]) -> None:
    x = free("x", 3)
    marked = Function((x,), op("add", const(1.0), const(2.0))).with_attr(attrs)
    assert ops_in(ran(transform.FoldConstant(), marked)) == ["add"]


def test_passes_on_some_functions() -> None:
    def body() -> Function:
        return Function((), op("add", const(1.0), const(2.0)))

    module = IRModule({"main": body(), "f1": body(), "f2": body()})
    step = transform.ApplyPassToFunction(transform.FoldConstant(), "f[12]")
    after = step(module)
    assert [len(ops_in(after[n])) for n in ("main", "f1", "f2")] == [1, 0, 0]
    assert "SkipOptimization" not in after["main"].attrs
    with pytest.raises(UserError, match="no function's name matches 'g'"):
        transform.ApplyPassToFunction(transform.FoldConstant(), "g", True)(module)
    transform.ApplyPassToFunction(transform.FoldConstant(), "g")(module)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: transform.function_pass(name="x"), ArgumentError, "Please provide opt_level"),
        (lambda: transform.function_pass(opt_level=0, required=3), CallError, "Required is expected to be"),
        (lambda: transform.function_pass(3, opt_level=0), CallError, "must be a callable"),
        (lambda: transform.function_pass(opt_level=0)(int), CallError, "class int has no method transform_function"),
        (
            lambda: ran(transform.function_pass(lambda f, m, c: f.body, opt_level=0), free("x", 3)),
            UserError,
            r"must return a relay\.Function, got Var",
        ),
    ],
)
def test_refusals(make: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def program() -> Function:
    """A convolution and constants, in which each of four passes has something to do."""
    x, w = free("x", 1, 16, 6, 6), free("w", 16, 16, 3, 3)
    c = const(np.full((1, 16, 4, 4), 2.0, "float32"))
    y = op("nn.conv2d", x, w, channels=16, kernel_size=(3, 3))
    y = op("add", y, op("multiply", op("add", c, c), c))
    return Function((x, w), op("add", op("add", y, const(1.0)), op("add", y, const(1.0))))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"opt_level": 3}, 4),
        ({"opt_level": 2}, 5),
        ({"opt_level": 1}, 7),
        ({"opt_level": 1, "required_pass": ["EliminateCommonSubexpr"]}, 6),
        ({"opt_level": 3, "disabled_pass": ["FoldConstant"]}, 6),
    ],
)
def test_sequences(options: dict[str, Any], count: int) -> None:
    steps = [transform.InferType(), transform.FoldConstant(), transform.EliminateCommonSubexpr()]
    after = ran(transform.Sequential(steps), program(), **options)
    assert len(ops_in(after)) == count


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ConvertLayout", "ConvertLayout takes arguments, so it cannot be required by its name"),
        ("PassContext", "mine requires the pass 'PassContext', which does not exist"),
        ("Vanish", "mine requires the pass 'Vanish', which does not exist"),
    ],
)
def test_passes_that_cannot_be_required(name: str, message: str) -> None:
    mine = transform.function_pass(lambda f, m, c: f, opt_level=0, name="mine", required=[name])
    with pytest.raises(UserError, match=message):
        ran(transform.Sequential([mine]), free("x", 3))


def test_what_instruments_see() -> None:
    seen: list[str] = []

    @pass_instrument
    class Note:
        def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
            seen.append(info.name)

    steps = [transform.FoldConstant(), transform.FastMath()]
    ran(transform.Sequential(steps), program(), opt_level=4, instruments=[Note()])
    before, required, after = "InferType", "InferType", "InferType"
    assert seen == [before, "sequential", "FoldConstant", after, required, "FastMath", after]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (2, ["nn.conv2d", "add", "add", "add"]),
        (3, ["nn.conv2d", "add", "multiply"]),
    ],
)
def test_standard_passes(level: int, expected: list[str]) -> None:
    function = program()
    with PassContext(opt_level=level):
        module, params = relay.optimize(function)
    assert params == {} and ops_in(module["main"]) == expected
    same_values(function, module["main"])


def test_parameters_that_become_constants() -> None:
    x, w, s = free("x", 2, 4), free("w", 3, 4), free("s", 4)
    function = Function((x, w, s), op("nn.dense", op("multiply", x, s), w))
    given = {"w": np.ones((3, 4), "float32"), "s": np.arange(4, dtype="float32")}
    with PassContext(opt_level=3):
        module, _ = relay.optimize(function, params=given)
    assert ops_in(module["main"]) == ["nn.dense"] and len(module["main"].params) == 1


def test_build_config() -> None:
    seen: list[Any] = []

    def trace(module: IRModule, info: PassInfo, is_before: bool) -> None:
        seen.append((info.name, is_before))

    with transform.build_config(opt_level=3, disabled_pass=["FoldConstant"], trace=trace) as context:
        transform.Sequential([transform.FoldConstant(), transform.CanonicalizeOps()])(IRModule())
    assert context.opt_level == 3 and context is not PassContext.current()
    types = [("InferType", True), ("InferType", False)]  # required, and after the pass
    inner = [*types, ("CanonicalizeOps", True), *types, ("CanonicalizeOps", False)]
    assert seen == [("sequential", True), *inner, ("sequential", False)]


def test_annotate_spans() -> None:
    after = ran(transform.AnnotateSpans(), program())
    assert_structural_equal(after, typed(program()))
    spans = [node.span for node in post_order(after) if isinstance(node, Call)]
    assert all(span is not None and span.file == "GeneratedSource" for span in spans)
    assert len({span.line for span in spans if span is not None}) > 3


def test_printing(capfd: pytest.CaptureFixture[str]) -> None:
    ran(transform.Sequential([transform.PrintIR("here"), transform.FoldConstant()]), program())
    shown = capfd.readouterr().err
    assert shown.startswith("PrintIR(here):") and "nn.conv2d" in shown


@pytest.mark.parametrize("name", transform.__all__)
def test_all_names_exist(name: str) -> None:
    assert getattr(transform, name) is not None
