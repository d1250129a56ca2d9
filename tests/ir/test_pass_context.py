"""Which passes run in which context, what instruments see, and passes made of functions and classes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pullback import ir, relax
from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError, CallError, NameNotFound, NoAttribute, UserError
from pullback.ir.passes import set_pass_of_name
from pullback.ir.transform import (
    DumpIR,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintIR,
    Sequential,
    module_pass,
    pass_instrument,
)


def noted(name: str, level: int = 0, required: list[str] | None = None) -> Pass:
    """A pass that adds its name to the module's attribute ``ran``."""

    def run(module: IRModule, context: PassContext) -> IRModule:
        return module.with_attr("ran", (*module.get_attr("ran", ()), name))

    return module_pass(run, opt_level=level, name=name, required=required)


def ran(passes: Pass, **options: Any) -> tuple[str, ...]:
    with PassContext(**options):
        return passes(IRModule()).get_attr("ran", ())


FOUR = Sequential([noted(f"level{level}", level) for level in range(4)])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "012"),
        ({"opt_level": 0}, "0"),
        ({"opt_level": 3}, "0123"),
        ({"opt_level": 1, "required_pass": ["level3"]}, "013"),
        ({"opt_level": 3, "disabled_pass": ["level1", "level2"]}, "03"),
        ({"required_pass": ["level1"], "disabled_pass": ["level1"]}, "02"),
    ],
)
def test_levels(options: dict[str, Any], expected: str) -> None:
    assert ran(FOUR, **options) == tuple(f"level{c}" for c in expected)


def test_a_pass_that_is_called_itself_runs_at_any_level() -> None:
    assert ran(noted("high", 3), opt_level=0) == ("high",)


def test_inner_sequences_have_a_level_of_their_own() -> None:
    nested = Sequential([noted("a"), Sequential([noted("b", 0), noted("c", 3)], opt_level=2), noted("d", 1)])
    assert ran(nested, opt_level=3) == ("a", "b", "c", "d")
    assert ran(nested, opt_level=2) == ("a", "b", "d")
    assert ran(nested, opt_level=1) == ("a", "d")


def test_plain_functions_always_run() -> None:
    assert ran(Sequential([noted("a"), lambda m: m.with_attr("ran", "f")]), opt_level=0) == "f"


def test_contexts_nest() -> None:
    outer, inner = PassContext(opt_level=1), PassContext(opt_level=3, config={"testing.immutable_module": True})
    assert PassContext.current().opt_level == 2
    with outer:
        assert PassContext.current() is outer
        with inner as entered, outer:
            assert entered is inner and PassContext.current() is outer
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2
    assert inner.option("testing.immutable_module", False) is True
    assert outer.option("testing.immutable_module", 7) == 7


def test_options() -> None:
    assert PassContext.list_configs()["tir.disable_vectorize"] == {"type": "bool"}
    assert "testing.immutable_module" in PassContext.list_config_names()
    assert PassContext(config={"tir.disable_vectorize": 1}).option("tir.disable_vectorize", False) == 1


def test_info() -> None:
    info = noted("x", 3, ["InferType"]).info
    assert info == PassInfo(3, "x", ("InferType",))
    assert (info.opt_level, info.name, info.required) == (3, "x", ("InferType",))
    assert relax.transform.Simplify().info == PassInfo(0, "Simplify")
    assert Sequential([], opt_level=2, name="all").info == PassInfo(2, "all")


def test_required_passes_run_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from pullback.ir import passes

    monkeypatch.setattr(passes, "_pass_of_name", passes._pass_of_name)
    set_pass_of_name({"before": noted("before")}.get)
    assert ran(Sequential([noted("a", 0, ["before"]), noted("b")])) == ("before", "a", "b")
    with pytest.raises(NameNotFound, match="a requires the pass 'else', which does not exist"):
        ran(Sequential([noted("a", 0, ["else"])]))


def test_decorators() -> None:
    @module_pass(opt_level=1)
    def of_function(module: IRModule, context: PassContext) -> IRModule:
        return module.with_attr("level", context.opt_level)

    assert isinstance(of_function, ModulePass)
    assert of_function.info == PassInfo(1, "of_function")
    assert str(of_function) == "Run Module pass: of_function at the optimization level 1"
    assert of_function(IRModule()).attrs == {"level": 2}

    @module_pass(opt_level=2, name="marking", required=["InferType"])
    class Mark:
        """Sets an attribute."""

        def __init__(self, mark: str, value: int = 3) -> None:
            self.mark, self.value = mark, value

        def transform_module(self, module: IRModule, context: PassContext) -> IRModule:
            return module.with_attr(self.mark, self.value)

    mark = Mark("m", value=4)
    assert isinstance(mark, ModulePass) and isinstance(mark, Mark)
    assert (mark.info, mark.value) == (PassInfo(2, "marking", ("InferType",)), 4)
    assert (Mark.__name__, Mark.__doc__) == ("Mark", "Sets an attribute.")
    assert mark(IRModule()).attrs == {"m": 4}
    with pytest.raises(AttributeError):
        mark.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: module_pass(name="x"), ArgumentError, "Please provide opt_level"),
        (lambda: module_pass(opt_level=0, required="InferType"), CallError, "Required is expected to be"),
        (lambda: module_pass(3, opt_level=0), CallError, "must be a callable"),
        (lambda: module_pass(opt_level=0)(int), CallError, "class int has no method transform_module"),
        (lambda: module_pass(lambda m, c: None, opt_level=0)(IRModule()), UserError, "got NoneType"),
        (lambda: Sequential(noted("a")), ArgumentError, "passes must be a sequence"),
        (lambda: Sequential([3]), ArgumentError, "int is no pass"),
        (lambda: PassContext(required_pass="FoldConstant"), ArgumentError, "required_pass must be a sequence"),
        (lambda: PassContext(disabled_pass=[3]), ArgumentError, "disabled_pass has names of passes, got int"),
        (lambda: PassContext(opt_level="3"), ArgumentError, "opt_level must be an int"),
        (lambda: PassContext(instruments=[3]), ArgumentError, "int is no instrument"),
        (lambda: PassContext(config={"testing.immutable_modul": 1}), NoAttribute, "Invalid config option"),
        (lambda: PassContext(config={"testing.immutable_module": "x"}), ArgumentError, "must be a bool, got 'x'"),
    ],
)  # fmt: skip
def test_refusals(make: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()


@pytest.mark.parametrize(("given", "shown"), [("", "PrintIR():"), ("after", "PrintIR(after):")])
def test_print_ir(given: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    module = IRModule()
    assert PrintIR(given)(module) is module
    assert capfd.readouterr().err.startswith(shown)


def recorder(events: list[str], name: str, skip: str = "") -> Any:
    @pass_instrument
    class Recorder:
        def enter_pass_ctx(self) -> None:
            events.append(f"{name} enters")

        def exit_pass_ctx(self) -> None:
            events.append(f"{name} leaves")

        def should_run(self, module: IRModule, info: PassInfo) -> bool:
            return info.name != skip

        def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
            events.append(f"{name} before {info.name}")

        def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
            events.append(f"{name} after {info.name} of {len(module.get_attr('ran', ()))}")

    return Recorder()


def test_instruments_see_passes_in_order() -> None:
    events: list[str] = []
    with PassContext(instruments=[recorder(events, "x"), recorder(events, "y")]):
        noted("a")(IRModule())
    assert events == [
        "x enters", "y enters", "x before a", "y before a", "x after a of 1", "y after a of 1", "x leaves", "y leaves",
    ]  # fmt: skip


def test_instruments_keep_passes_from_running_unless_required() -> None:
    both = Sequential([noted("a"), noted("b")])
    assert ran(both, instruments=[recorder([], "x", skip="a")]) == ("b",)
    assert ran(both, instruments=[recorder([], "x", skip="a")], required_pass=["a"]) == ("a", "b")


def test_instruments_are_overridden() -> None:
    events: list[str] = []
    with PassContext(instruments=[recorder(events, "x")]) as context:
        context.override_instruments([recorder(events, "y")])
        noted("a")(IRModule())
    assert events == ["x enters", "x leaves", "y enters", "y before a", "y after a of 1", "y leaves"]


@pytest.mark.parametrize("method", ["enter_pass_ctx", "exit_pass_ctx", "run_before_pass", "run_after_pass"])
def test_errors_of_instruments_leave_the_context(method: str) -> None:
    def fail(self: Any, *arguments: Any) -> None:
        raise KeyError(method)

    events: list[str] = []
    failing = pass_instrument(type("Failing", (), {method: fail}))()
    with pytest.raises(KeyError, match=method), PassContext(instruments=[recorder(events, "x"), failing]) as context:
        noted("a")(IRModule())
    assert PassContext.current().opt_level == 2 and not PassContext.current().instruments
    assert events[0] == "x enters" and events[-1] == "x leaves"
    if method == "exit_pass_ctx":
        assert context.instruments == []


def test_an_instrument_is_a_class() -> None:
    class Named(PassInstrument):
        pass

    assert pass_instrument(Named) is Named
    with pytest.raises(CallError, match="must be a class"):
        pass_instrument(lambda: None)


def test_timings() -> None:
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        Sequential([noted("a"), Sequential([noted("b")], name="inner")], name="outer")(IRModule())
        lines = timing.render().splitlines()
    number = r"\d+us \[-?\d+us\] \(\d+\.\d\d%; \d+\.\d\d%\)"
    expected = [f"outer: {number}", f"\ta: {number}", f"\tinner: {number}", f"\t\tb: {number}"]
    assert len(lines) == 4 and all(re.fullmatch(e, line) for e, line in zip(expected, lines, strict=True))
    assert timing.render() == ""


def test_printing_instruments(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    both = Sequential([noted("a"), noted("b")])
    with PassContext(instruments=[PrintBeforeAll(), PrintAfterAll(), DumpIR(tmp_path / "d")]):
        both(IRModule())
    lines = [line for line in capsys.readouterr().out.splitlines() if "Running" in line]
    assert lines[1:5] == [f"{when} Running Pass: {name}" for name in "ab" for when in ("Before", "After")]
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["000_a.py", "001_b.py", "002_sequential.py"]
    with PassContext(instruments=[PassPrintingInstrument(["a"], ["b"])]):
        both(IRModule())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Print IR")]
    assert lines == ["Print IR before: a", "Print IR after: b"]


def test_names_stand_in_transform_of_the_graph_ir() -> None:
    for name in ("PassContext", "PassInfo", "ModulePass", "PrintIR", "Sequential", "module_pass"):
        assert getattr(relax.transform, name) is getattr(ir.transform, name)
