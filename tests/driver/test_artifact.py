"""Artifacts survive the way through bytes; the cache's first level knows what a function is made of."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import codegen
from pullback.driver import native
from pullback.driver.artifact import Artifact
from pullback.driver.pipeline import prepare
from pullback.script import from_source
from pullback.target import Target

TEXT = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 2), "float32"), t: R.Tensor((3,), "int64")):
        with R.dataflow():
            y = R.multiply(x, R.const([1.0, NUMBER], "float32"))
            z = R.nn.nll_loss(y, t)
            R.output(z)
        return z
"""


def key(number: str = "2.0", name: str = "model.py", cpu: str = "") -> str:
    module = prepare(from_source(TEXT.replace("NUMBER", number), file=name))
    return native.function_key(module, "main", {}, Target(f"llvm{cpu}"))


def test_bytes_round_trip():
    module = prepare(from_source(TEXT.replace("NUMBER", "2.0")))
    artifact = native._make(module, "main", {}, Target("llvm"))
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again.layout == artifact.layout
    assert again.objects == artifact.objects
    assert [c.tobytes() for c in again.constants] == [c.tobytes() for c in artifact.constants]
    assert [c.dtype for c in again.constants] == [c.dtype for c in artifact.constants]
    x, t = np.ones((3, 2), "float32"), np.array([0, 1, 1])
    results = [
        native.NativeFunction("main", a).call([pullback.tensor(x), pullback.tensor(t)])() for a in (artifact, again)
    ]
    assert float(results[0][0]) == float(results[1][0])


def test_keys():
    assert key() == key()
    assert key("3.0") != key()  # a constant
    assert key(name="other.py") != key()  # the place that the check's message shows
    assert key(cpu=" -mcpu=x86-64") != key()


CALLS = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(a: T.Buffer((3,), "float32"), b: T.Buffer((3,), "float32")):
        for i in range(3):
            b[i] = a[i] * T.float32(IN_KERNEL)
    @R.function
    def inner(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((3,), "float32"))
        z = R.add(y, R.const(IN_INNER, "float32"))
        return z
    @R.function
    def outer(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        cls = Module
        y = cls.inner(x)
        z = R.multiply(y, R.const(IN_OUTER, "float32"))
        return z
    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        cls = Module
        y = cls.outer(x)
        return y
"""


def test_keys_know_what_is_called():
    """However deep, by a graph function or by call_tir; but nothing else of the module."""

    def key_of(text: str, **numbers: float) -> str:
        values = {"IN_KERNEL": 1.5, "IN_INNER": 2.5, "IN_OUTER": 3.5} | numbers
        for place, number in values.items():
            text = text.replace(place, str(number))
        return native.function_key(prepare(from_source(text)), "main", {}, Target("llvm"))

    keys = [key_of(CALLS, **{place: 9.5}) for place in ("IN_KERNEL", "IN_INNER", "IN_OUTER")]
    assert len({key_of(CALLS), *keys}) == 4
    other = CALLS.replace("    @R.function\n    def main", "    @R.function\n    def unused(x: R.Tensor((3,))):\n"
                          "        return x\n    @R.function\n    def main")  # fmt: skip
    assert other != CALLS and key_of(other) == key_of(CALLS)


@pytest.mark.parametrize(
    "call, checked",
    [
        ("R.take(x, t, axis=0)", True),
        ("R.nn.ctc_loss(R.nn.log_softmax(R.reshape(x, (6, 1, 1))), R.reshape(t, (1, 3)), i, i)", True),  # of its parts
        ("R.vision.roi_align(R.reshape(x, (1, 1, 3, 2)), rois, pooled_size=2, spatial_scale=1.0)", True),
        ("R.nn.gelu(R.nn.layer_norm(x, w, w, axes=-1))", False),  # found again when the file has moved
    ],
)
def test_keys_know_the_places_that_messages_show(call, checked):
    text = f"""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 2), "float32"), t: R.Tensor((3,), "int64"), i: R.Tensor((1,), "int64"),
             rois: R.Tensor((1, 5), "float32"), w: R.Tensor((2,), "float32")):
        y = {call}
        return y
"""
    target = Target("llvm")
    keys = {
        native.function_key(prepare(from_source(source, file=name)), "main", {}, target)
        for source, name in ((text, "model.py"), (text, "elsewhere/model.py"), ("\n" + text, "model.py"))
    }
    assert len(keys) == (3 if checked else 1)


def test_equal_kernels_are_compiled_once(monkeypatch, tmp_path):
    """Two functions of a module, and kernels that differ in names only, find each other's code in the cache."""
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    made = []
    compile_objects = codegen.compile_objects

    def recorded(texts, target, *done):
        given = list(texts)
        made.append([line for text in given for line in text.splitlines() if line.startswith("define hidden")])
        return compile_objects(given, target, *done)

    monkeypatch.setattr(codegen, "compile_objects", recorded)
    text = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def first(x: R.Tensor((6, 4), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.softmax(y)
            R.output(z)
        return z

    @R.function
    def second(data: R.Tensor((6, 4), "float32"), weight: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            product = R.matmul(data, weight)
            result = R.nn.softmax(product)
            R.output(result)
        return result
"""
    executable = pullback.compile(from_source(text), "llvm")
    x, w = np.ones((6, 4), "float32"), np.ones((4, 5), "float32")
    for name in ("first", "second"):
        np.testing.assert_allclose(executable.function(name)(x, w).numpy(), np.full((6, 5), 0.2), rtol=1e-6)
    first, second = made
    assert len(first) == 2 and second == [], "the second function is made of the kernels of the first"
