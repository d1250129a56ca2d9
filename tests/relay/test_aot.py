"""Functions compiled ahead of time: called from Python, and from C++ without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback import relay
from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError, CallError, TargetError
from pullback.relay import aot
from pullback.relay.expr import call_op
from pullback.relay.lower import NotDataflow
from tests.deploy.tools import need_program, need_zig
from tests.relay.programs import W, X, check, chosen_function, matrix, straight, tail_recursion

NEEDS_COMPILERS = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("g++") is None, reason="needs a C and a C++ compiler"
)


def loss() -> relay.Function:
    """Mean squared error of a layer; its gradient is what a program without Python trains by."""
    x, y = relay.var("x", shape=(4, 3)), relay.var("y", shape=(4, 2))
    w, b = relay.var("w", shape=(2, 3)), relay.var("b", shape=(2,))
    error = relay.nn.bias_add(relay.nn.dense(x, w), b) - y
    return relay.Function([x, y, w, b], relay.mean(error * error))


class TestPython:
    def test_positions_and_keywords(self):
        function = aot.compile(straight(), IRModule(), pullback.cpu(), "llvm")
        for result in (function(X, W), function(X, w=W), function(w=W, x=X)):
            check(result, np.tanh(X * W) + 1)

    def test_a_function_of_the_module(self):
        module = IRModule.from_expr(straight())
        for which in ("main", module.get_global_var("main"), module["main"]):
            check(aot.compile(which, module)(X, W), np.tanh(X * W) + 1)

    def test_mistakes(self):
        with pytest.raises(CallError, match="lacks the arguments w"):
            aot.compile(straight())(X)
        with pytest.raises(ArgumentError, match="a function is compiled, not Constant"):
            aot.compile(relay.const(1.0))
        with pytest.raises(TargetError, match="unknown target kind"):
            aot.compile(straight(), tgt="cuda")
        with pytest.raises(NotDataflow, match='the executor "aot" runs dataflow only'):
            aot.compile(chosen_function())
        with pytest.raises(ArgumentError, match="must be one of C"):
            aot.compile(straight()).library("a name")


@NEEDS_COMPILERS
class TestC:
    def run(self, folder, name: str, source: str, static: bool = False) -> list[str]:
        """What a C++ program prints that is linked with the library."""
        (folder / "main.cpp").write_text(source)
        library = [f"lib{name}.a", "-pthread", "-lm"] if static else ["-L.", f"-l{name}", "-Wl,-rpath,."]
        command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "main.cpp", *library, "-o", "main"]
        for step in (command, ["./main"]):
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def test_training_in_cpp_is_training_in_numpy(self, tmp_path):
        gradient = relay.transform.gradient(loss())
        aot.compile(gradient).export_c(tmp_path, "mse")
        rng = np.random.default_rng(3)
        x, w, b = rng.standard_normal((4, 3)), rng.standard_normal((2, 3)), rng.standard_normal(2)
        y = rng.standard_normal((4, 2))
        x, y, w, b = (np.asarray(v, "float32") for v in (x, y, w, b))

        def array(name, values):
            return f"float {name}[] = {{{', '.join(f'{v:.9g}f' for v in values.reshape(-1))}}};"

        source = f"""
#include <cstdio>
#include "mse.h"
int main() {{
    {array("x", x)} {array("y", y)} {array("w", w)} {array("b", b)}
    float loss, dx[12], dy[8], dw[6], db[2];
    for (int step = 0; step < 20; step++) {{
        if (mse(x, y, w, b, &loss, dx, dy, dw, db) != 0) return 1;
        for (int k = 0; k < 6; k++) w[k] -= 0.1f * dw[k];
        for (int k = 0; k < 2; k++) b[k] -= 0.1f * db[k];
    }}
    std::printf("%.9g", loss);
    for (float v : w) std::printf(" %.9g", v);
    for (float v : b) std::printf(" %.9g", v);
}}
"""
        found = np.array(self.run(tmp_path, "mse", source), "float64")
        x, y, w, b = (v.astype("float64") for v in (x, y, w, b))
        for _ in range(20):
            error = x @ w.T + b - y
            value = (error**2).mean()
            slope = 2 * error / error.size
            w, b = w - 0.1 * slope.T @ x, b - 0.1 * slope.sum(0)
        np.testing.assert_allclose(found, [value, *w.reshape(-1), *b], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("static", [False, True])
    def test_errors_constants_and_threads(self, tmp_path, static):
        x = matrix("double")  # a word of C
        function = relay.Function([x], relay.Tuple([x * relay.const(W), relay.sum(x)]))
        aot.compile(function).export_c(tmp_path / "made", "scaled")
        source = """
#include <cstdio>
#include "scaled.h"
int main() {
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6], sum;
    if (scaled_set_threads(0) == 0 || scaled_set_threads(2) != 0) return 1;
    std::printf("%s ", *scaled_error() ? "said" : "silent");
    if (scaled(nullptr, y, &sum) == 0 || scaled(x, nullptr, &sum) == 0) return 2;
    if (scaled(x, y, &sum) != 0) return 3;
    if (scaled_set_threads(1) == 0) return 4;
    for (float v : y) std::printf("%.9g ", v);
    std::printf("%.9g", sum);
}
"""
        said, *numbers = self.run(tmp_path / "made", "scaled", source, static)
        assert said == "said"
        values = np.arange(1, 7, dtype="float32")
        np.testing.assert_allclose(np.array(numbers, "float64"), [*(values * W.reshape(-1)), 21], rtol=1e-6)
        header = (tmp_path / "made" / "scaled.h").read_text()
        assert "int scaled(const float *double_, float *output0, float *output1);" in header

    def test_loops_and_integers(self, tmp_path):
        aot.compile(tail_recursion()).export_c(tmp_path, "halving")
        source = """
#include <cstdio>
#include "halving.h"
int main() {
    float x[6] = {1, -2, 3, 4, 5, -6}, y[6];
    int32_t steps;
    if (halving(x, y, &steps) != 0) return 1;
    std::printf("%d %.9g", steps, y[5]);
}
"""
        steps, last = self.run(tmp_path, "halving", source)
        assert int(steps) == 13
        assert float(last) == -6 / 2**13

    def test_a_recursion_takes_memory_while_it_runs(self, tmp_path):
        from tests.relay.programs import recursion

        aot.compile(recursion()).export_c(tmp_path, "fibonacci")
        source = """
#include <cstdio>
#include "fibonacci.h"
int main() {
    int32_t n = 12, result;
    if (fibonacci(&n, &result) != 0) return 1;
    std::printf("%d", result);
}
"""
        assert self.run(tmp_path, "fibonacci", source) == ["144"]

    def test_a_value_that_is_refused(self, tmp_path):
        x, index = matrix("x"), relay.var("index", relay.TensorType((1,), "int64"))
        taken = relay.Call(relay.op.get("relax.take"), [x, index], {"axis": 0})
        aot.compile(relay.Function([x, index], taken)).export_c(tmp_path, "row")
        source = """
#include <cstdio>
#include "row.h"
int main() {
    float x[6] = {1, 2, 3, 4, 5, 6}, y[3];
    int64_t index = 9;
    if (row(x, &index, y) == 0) return 1;
    std::printf("%s", row_error());
}
"""
        assert "take" in " ".join(self.run(tmp_path, "row", source))


class TestOtherPlatforms:
    @pytest.mark.slow
    def test_a_program_for_arm(self, tmp_path):
        """The library is for glibc, of which the emulator has none: its parts become a static program."""
        need_zig()
        need_program("qemu-aarch64")
        source = """
#include <stdio.h>
#include "mse.h"
int main(void)
{
    float x[12], y[8] = {0}, w[6] = {1, 2, 3, 4, 5, 6}, b[2] = {0}, loss, dx[12], dy[8], dw[6], db[2];
    for (int k = 0; k < 12; k++)
        x[k] = 1;
    if (mse(x, y, w, b, &loss, dx, dy, dw, db) != 0)
        return 1;
    printf("%g %g %g", loss, db[0], db[1]);
}
"""
        (tmp_path / "main.c").write_text(source)
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static", "-Wno-everything"]
        parts = ["main.c", "mse.c", "code.o"]
        library = aot.compile(relay.transform.gradient(loss())).library("mse", "aarch64")
        (tmp_path / "mse.h").write_text(library.header())
        with library._built() as built:
            for name in ("mse.c", "pullback_runtime.c", "code.o"):
                shutil.copyfile(Path(built) / name, tmp_path / name)
            if (Path(built) / "data.o").exists():
                shutil.copyfile(Path(built) / "data.o", tmp_path / "data.o")
                parts.append("data.o")
        subprocess.run([*zig, *parts, "-o", "main"], cwd=tmp_path, check=True, capture_output=True)
        done = subprocess.run(["qemu-aarch64", "./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
        # each row gives (6, 15); the loss is (36 + 225) / 2, and its slope 2 * y / 8 for each of four rows
        assert done.stdout.split() == ["130.5", "6", "15"]

    def test_sources_for_android(self, tmp_path):
        need_zig()
        aot.compile(straight()).export_c(tmp_path, "net", platform="android")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["libnet.a", "net.c", "net.h", "pullback_runtime.c"]

    @pytest.mark.parametrize("platform", ["cortex-m4", "wasm32", "windows-x86-64"])
    def test_platforms_without_threads_of_posix(self, platform):
        with pytest.raises(TargetError, match=f"a function is not exported for {platform}"):
            aot.compile(straight()).library("net", platform)


def test_names_that_the_runtime_has():
    with pytest.raises(ArgumentError, match="runtime has a make_pool of its own"):
        aot.compile(straight()).library("make_pool")


def test_a_condition_decides_in_native_code():
    x = matrix("x")
    condition = call_op("greater", relay.sum(x), relay.const(0.0))
    function = aot.compile(relay.Function([x], relay.If(condition, x, -x)))
    check(function(X), X)
    check(function(-X), X)
