"""`python -m pullback opt`: passes and stages by name, what is printed, that it can be read again, and mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullback.command import opt
from pullback.command.passes import GRAPH, RELAY, find, parsed, table
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule, NameNotFound, ScriptError, UserError, structural_equal
from pullback.ir.passes import Pass
from pullback.script import from_source
from pullback.target import Target
from tests.command.pass_samples import SAMPLES, graph, relay
from tests.test_cli import call

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"
MODEL = """\
from pullback.script import ir as I, relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")):
        y = R.multiply(R.matmul(x, w), R.const(1.0))
        return R.nn.relu(y)
"""
PLAIN = """\
from pullback.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        w: R.Tensor((3, 4), "float32"),
    ) -> R.Tensor((2, 4), "float32"):
        gv = R.matmul(x, w)
        y = R.multiply(gv, R.const(1.0, "float32"))
        gv_1 = R.nn.relu(y)
        return gv_1
"""
NOT_IN_TEXT = {  # no text shows what these do
    "AlterOpLayout": "it asks functions that are registered for operators",
    "AnnotateSpans": "it changes the places of nodes",
    "AppendLoss": "it takes a function",
    "InferType": "types are inferred when a text is read",
    "Legalize": "it asks functions that are registered for operators",
    "MergeComposite": "it takes patterns",
    "Normalize": "a text is in normal form when it has been read",
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "model.txt"
    file.write_text(MODEL)
    return str(file)


def title(name: str, language: str) -> str:
    """As the samples name a pass."""
    return f"{name} of {language}" if sum(entry.name == name for entry in table()) > 1 else name


# ---- the table


def test_all_passes_of_the_package_are_in_the_table() -> None:
    def below(kind: type) -> set[type]:
        return {kind, *(k for sub in kind.__subclasses__() for k in below(sub))}

    known = {entry.make for entry in table()}
    kinds = below(Pass) - {Pass, *known}
    others = {k.__name__ for k in kinds if k.__module__.startswith("pullback.") and not k.__name__.startswith("_")}
    bases = {"EffectPass", "FunctionPass", "KernelPass", "WrittenFunctionPass"}
    assert others == bases | {"ApplyPassToFunction", "ModulePass", "PrintIR", "Sequential"}


def test_each_pass_has_a_line_and_types_of_its_options() -> None:
    for entry in table():
        assert entry.about and "\n" not in entry.about, entry.name
        assert set(entry.options) <= set(entry.kinds)


def test_every_pass_has_a_sample_or_a_reason() -> None:
    assert set(SAMPLES) | set(NOT_IN_TEXT) == {title(entry.name, entry.language) for entry in table()}
    assert not set(SAMPLES) & set(NOT_IN_TEXT)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_pass_makes_is_read_again(name: str, tmp_path: Path) -> None:
    passes, text = SAMPLES[name]
    file = tmp_path / "module.txt"
    file.write_text(text)
    module = opt.read(str(file), None, pytest.fail)
    opt.check(module)
    states = list(opt.after_passes(module, parsed(passes, opt.language(module), Target(TARGET))))
    assert states[-1].diff
    file.write_text(opt.text_of(states[-1].module))
    again = opt.read(str(file), None, pytest.fail)
    opt.check(again)
    assert structural_equal(again, states[-1].module)
    assert opt.text_of(again) == file.read_text()


# ---- what is printed


def test_a_module_is_printed_as_it_is(model: str) -> None:
    assert call("opt", model).stdout == PLAIN


def test_passes(model: str) -> None:
    lines = PLAIN.splitlines()
    body = """\
        with R.dataflow():
            gv = R.matmul(x, w)
            gv_1 = R.nn.relu(gv)
            R.output(gv_1)
        return gv_1
"""
    expected = "\n".join(lines[:10]) + f"\n{body}"
    assert call("opt", model, "--passes", "Simplify, CanonicalizeBindings").stdout == expected


def test_the_diff_tells_of_passes_that_change_something(model: str) -> None:
    assert (
        call("opt", model, "-p", "EliminateCommonSubexpr, Simplify, FoldConstant", "--diff").stdout
        == """\
--- before Simplify
+++ after Simplify
@@ -9,6 +9,6 @@
         w: R.Tensor((3, 4), "float32"),
     ) -> R.Tensor((2, 4), "float32"):
         gv = R.matmul(x, w)
-        y = R.multiply(gv, R.const(1.0, "float32"))
+        y = gv
         gv_1 = R.nn.relu(y)
         return gv_1
"""
    )


def test_the_diff_of_relay(tmp_path: Path) -> None:
    file = tmp_path / "model.rly"
    file.write_text(relay("def @main(%x: Tensor[(3), float32]) { tanh(exp(%x)) }"))
    assert (
        call("opt", str(file), "-p", "FastMath", "--diff").stdout
        == """\
--- before FastMath
+++ after FastMath
@@ -1,5 +1,5 @@
 #[version = "0.0.5"]
 def @main(%x: Tensor[(3), float32]) -> Tensor[(3), float32] {
-  %0 = exp(%x) /* ty=Tensor[(3), float32] */;
-  tanh(%0) /* ty=Tensor[(3), float32] */
+  %0 = fast_exp(%x) /* ty=Tensor[(3), float32] */;
+  fast_tanh(%0) /* ty=Tensor[(3), float32] */
 }
"""
    )


def test_a_kernel_alone(tmp_path: Path) -> None:
    file = tmp_path / "kernel.txt"
    file.write_text("""
@T.prim_func
def square(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[i] * x[i]
""")
    assert (
        call("opt", str(file), "-p", 'AdjointKernel("square", wanted=["x"])', "--diff").stdout
        == """\
--- before AdjointKernel
+++ after AdjointKernel
@@ -7,3 +7,22 @@
     def square(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
         for i in range(4):
             y[i] = x[i] * x[i]
+
+    @T.prim_func
+    def square_adjoint(
+        x: T.Buffer((4,), "float32"),
+        dy_in: T.Buffer((4,), "float32"),
+        dx: T.Buffer((4,), "float32"),
+    ):
+        d_y = T.alloc_buffer((4,), "float32", scope="workspace")
+        for i0 in T.vectorized(4):
+            d_y[i0] = dy_in[i0]
+        for i0 in T.vectorized(4):
+            dx[i0] = T.float32(0.0)
+        part0 = T.alloc_buffer((4,), "float32")
+        for i in T.vectorized(4):
+            d: T.float32 = d_y[i]
+            d_y[i] = T.float32(0.0)
+            part0[i] = d * x[i]
+        for i in T.vectorized(4):
+            dx[i] = dx[i] + part0[i] + part0[i]
"""
    )


def test_the_standard_input_and_the_output(model: str, tmp_path: Path) -> None:
    file = tmp_path / "after.txt"
    result = call("opt", "-", "-p", "Simplify", "-o", str(file), "--diff", input=MODEL)
    assert result.stdout.startswith("--- before Simplify\n")
    assert not structural_equal(from_source(file.read_text()), from_source(MODEL))
    assert call("opt", str(file)).stdout == file.read_text()
    assert call("opt", model, "-p", "Simplify", "-o", str(file)).stdout == ""


def test_there_are_colours_in_a_terminal_alone(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["opt", model, "-p", "Simplify", "--diff"]
    plain = call(*command).stdout
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = call(*command).stdout
    assert re.search(r"\x1b\[\d+m\+ .*y = gv", coloured)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


# ---- files


def test_a_python_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL + MODEL.replace("Model", "Other").replace("relu", "gelu"))
    assert "gelu" in call("opt", str(file), "--name", "Other").stdout
    assert "defines several modules: Model, Other" in call("opt", str(file), code=1).stderr
    file.write_text("""
from pullback.script import relax as R, tir as T

@R.function
def f(x: R.Tensor((3,), "float32")):
    return R.exp(x)

@T.prim_func
def k(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        y[i] = x[i]
""")
    assert list(from_source(call("opt", str(file)).stdout)) == ["f", "k"]
    assert list(from_source(call("opt", str(file), "--name", "k").stdout)) == ["k"]


def test_of_several_definitions_in_a_text_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text(MODEL + "\n\n@R.function\ndef f(x: R.Tensor((3,), 'float32')):\n    return x\n")
    assert list(from_source(call("opt", str(file), "--name", "f").stdout)) == ["f"]
    assert "name" in call("opt", str(file), code=1).stderr


def test_the_place_of_a_mistake_in_the_file(model: str, tmp_path: Path) -> None:
    Path(model).write_text(MODEL.replace("R.matmul", "R.matmull"))
    assert f"{model}:8:" in call("opt", model, code=1).stderr
    assert "did you mean" in call("opt", "-", code=1, input=MODEL.replace("R.matmul", "R.matmull")).stderr
    file = tmp_path / "model.rly"
    file.write_text(relay("def @main(%x: Tensor[(3), float32]) {\n  exq(%x)\n}"))
    assert f"{file}:3:3" in call("opt", str(file), code=1).stderr
    file.write_text("def @main(%x: float32) { %x }")
    assert "expected the version of the text" in call("opt", str(file), code=1).stderr
    file.write_bytes(b"\xff\xfe\x00")
    assert "is no text" in call("opt", str(file), code=1).stderr
    assert "No such file" in call("opt", str(tmp_path / "none"), code=1).stderr


# ---- passes that refuse, and modules that are not well-formed


def test_the_place_where_a_pass_refuses(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text(
        graph("""
        def main(x: {3}):
            y = R.exp(x)
            return y
    """)
    )
    error = call("opt", str(file), "-p", 'Simplify, Gradient("main")', code=1).stderr
    assert error.startswith("error: Gradient: ")
    file.write_text(
        graph("""
        def main(x: {64, 3}):
            y = R.reshape(x, (64, 3, 1))
            return y
    """)
    )
    error = call("opt", str(file), "-p", 'RebatchInputs(32, "main")', code=1).stderr
    assert error.startswith("error: RebatchInputs: ")
    assert f"{file}:8:13\n    y = R.reshape(x, (64, 3, 1))\n" in error


def test_a_pass_where_it_is_not_meant_to_run(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text(MODEL.replace("(2, 3)", '("n", 3)'))
    error = call("opt", str(file), "-p", "LowerToTir", code=1).stderr
    assert error.startswith("error: LowerToTir: ") and "pullback opt --explain LowerToTir says" in error


def test_what_is_not_well_formed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = graph("""
        @T.prim_func
        def k(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
            for i in range(4):
                y[i] = x[0]
    """)
    file = tmp_path / "model.txt"
    file.write_text(text)
    assert "index 3 is outside" in call("opt", str(file), code=1).stderr
    assert "range(4)" in call("opt", str(file), "--no-verify").stdout

    class Break(Pass):
        def run(self, module: IRModule) -> IRModule:
            return from_source(text)

    right = from_source(text.replace("range(4)", "range(3)"))
    with pytest.raises(UserError, match=r"Break made a module that is not well-formed: .*index 3"):
        list(opt.after_passes(right, [Break()]))
    (state,) = opt.after_passes(right, [Break()], verify=False)
    assert "range(4)" in state.diff


# ---- the list of passes


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("Simplfy", "there is no pass 'Simplfy': did you mean Simplify?"),
        ("SimplifyExpr", "SimplifyExpr is a pass over modules of relay"),
        ("Gradient", "Gradient needs func_name"),
        ("Gradient(3)", "func_name of Gradient cannot be 3"),
        ("Gradient('main', required_grads=['x'])", "no option 'required_grads': did you mean require_grads?"),
        ("Simplify(1)", "Simplify does not take these options"),
        ("Simplify(x=1)", "Simplify has no option 'x'\nhint: it has no options"),
        ("FuseOps(machine=1)", "--target says for which machine"),
        ("Gradient(main)", "this is no literal"),
        ("Gradient(open('x'))", "there is no open"),
        ("Gradient(**{})", "** cannot stand here"),
        ("Simplify,,Simplify", "this is no list of passes"),
        ("Simplify Simplify", "this is no list of passes"),
        ("'Simplify'", "this is no pass"),
        ("Simplify]+[Simplify", "this is no list of passes"),
        ("SetupTrainer(MSELoss(nothing=1), SGD(0.1), [])", "nothing"),
        ("RebatchInputs(True)", "batch of RebatchInputs cannot be True"),
        ("\x00", "this is no list of passes"),
    ],
)
def test_mistakes_in_the_list(passes: str, message: str, model: str) -> None:
    result = call("opt", model, "--passes", passes, code=1)
    assert message in result.stderr and result.stdout == ""


def test_a_mistake_in_the_list_is_shown_where_it_is() -> None:
    with pytest.raises(ScriptError) as caught:
        parsed('Simplify, Gradient("main", target_index=-x)', GRAPH, Target(TARGET))
    span = caught.value.span
    assert span is not None
    assert span.text[span.column : span.end_column] == "-x"


def test_options_of_all_kinds() -> None:
    text = 'BindSizes({"n": 3}), VMap("f", in_axes=(0, None)), Gradient(func_name="f", require_grads=["x", "y"])'
    sizes, vmap, gradient = parsed(text, GRAPH, Target(TARGET))
    assert (sizes.sizes, vmap.in_axes, gradient.require_grads) == ({"n": 3}, (0, None), ["x", "y"])
    assert parsed("FuseOps(fuse_opt_level=0)", RELAY, Target(TARGET))[0].fuse_opt_level == 0
    assert parsed("", GRAPH, Target(TARGET)) == parsed(" \n ", GRAPH, Target(TARGET)) == []
    (fuse,) = parsed("FuseOps", GRAPH, Target(TARGET))
    assert fuse.machine.vector_bytes == 32
    with pytest.raises(NameNotFound):
        find("Nothing", RELAY)


# ---- stages


def test_stages_are_those_of_the_compiler(model: str) -> None:
    module = from_source(MODEL)
    target = Target(TARGET)
    lowered, _ = lower_function(prepare(module), "main", {}, target)
    *_, last = opt.at_stage(module, "lowered", True, None, {}, target)
    assert structural_equal(last.module, lowered)
    text = call("opt", model, "--after", "planned", "--target", TARGET).stdout
    assert "T.kernel(" in text and list(from_source(text)) == ["main", "fused_matmul_relu"]


def test_before_a_stage_and_after_it_are_a_pass_apart(model: str) -> None:
    def printed(*options: str) -> str:
        return call("opt", model, "--target", TARGET, *options).stdout

    assert printed("--before", "fused", "-p", "FuseOps") == printed("--after", "fused")
    assert printed("--after", "FuseOps") == printed("--after", "fused") == printed("--before", "laid_out")
    assert printed("--after", "source") == printed() == printed("--before", "raised")
    assert printed("--before", "CanonicalizeBindings") == printed("--after", "decomposed")
    diff = printed("--after", "simplified", "--diff")
    assert re.findall(r"^--- before (\w+)", diff, re.MULTILINE) == ["CanonicalizeBindings", "Simplify"]
    assert printed("--before", "fused", "-p", "FuseOps", "--diff").count("--- before") == 1


def test_all_stages_are_read_again(model: str) -> None:
    for stage, _ in opt.stages_of():
        text = call("opt", model, "--after", stage, "--target", TARGET).stdout
        assert call("opt", "-", input=text).stdout == text


def test_checks_of_lowered_functions_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text(
        graph("""
        def main(x: {2, 3}):
            return R.sort(x)
    """)
    )
    text = call("opt", str(file), "--after", "lowered", "--target", TARGET).stdout
    assert "R.check(" in text
    assert call("opt", "-", input=text).stdout == text


def test_mistakes_about_stages(model: str, tmp_path: Path) -> None:
    assert "there is no stage 'fusd': did you mean fused?" in call("opt", model, "--after", "fusd", code=1).stderr
    assert "nothing is before the source" in call("opt", model, "--before", "source", code=1).stderr
    assert "no function 'f'" in call("opt", model, "--after", "fused", "--function", "f", code=1).stderr
    assert "one of them" in call("opt", model, "--after", "fused", "--before", "fused", code=2).stderr
    assert "are for --before" in call("opt", model, "--size", "n=3", code=2).stderr
    assert "name a file" in call("opt", code=2).stderr
    assert "unknown target kind" in call("opt", model, "--target", "gpu", code=1).stderr
    file = tmp_path / "model.rly"
    file.write_text(relay("def @main(%x: float32) { exp(%x) }"))
    assert "those of a module of the graph IR" in call("opt", str(file), "--after", "fused", code=1).stderr


def test_symbolic_sizes_are_bound(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text(MODEL.replace("(2, 3)", '("n", 3)'))
    error = call("opt", str(file), "--after", "inlined", code=1).stderr
    assert "main has the symbolic sizes n; got none\nhint: write --size n=64" in error
    text = call("opt", str(file), "--after", "inlined", "--size", "n=5").stdout
    assert "R.Tensor((5, 3)" in text
    assert '"n"' in call("opt", str(file), "--after", "joined").stdout


# ---- lists


def test_the_list_has_all() -> None:
    text = call("opt", "--list").stdout
    for entry in table():
        assert re.search(rf"^ *{entry.name}\b", text, re.MULTILINE), entry.name
    for stage, passes in opt.stages_of():
        assert re.search(rf"^ *{stage}\b.*{re.escape(passes[:40])}", text, re.MULTILINE)


def test_explain() -> None:
    text = call("opt", "--explain", "Gradient").stdout
    assert text.startswith("Gradient(func_name, require_grads=None, target_index=0)\n\nGradient: reverse-mode")
    both = call("opt", "--explain", "FuseOps").stdout
    assert both.count("It is a pass over modules of") == 2
    assert "did you mean Simplify?" in call("opt", "--explain", "Simplfy", code=1).stderr
