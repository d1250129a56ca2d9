"""Artifacts survive the way through bytes; the cache's first level knows what a function is made of."""

from __future__ import annotations

import numpy as np

import pullback
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
    assert again.code == artifact.code
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
