"""Attributes that the compiler reads and a text may hold: they are right, refused, or have no effect."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import UserError
from pullback.script import from_source

TEXT = """
@I.ir_module
class Module:
    I.module_attrs(<module>)

    @T.prim_func
    def add(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32"), out: T.Buffer((3,), "float32")):
        T.func_attr(<kernel>)
        for i in range(3):
            out[i] = x[i] + y[i]

    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32"), z: R.Tensor((2,), "float32")):
        R.func_attr(<function>)
        with R.dataflow():
            a = R.call_tir(Module.add, (x, y), R.Tensor((3,), "float32"), origin=<origin>)
            b = R.exp(a)
            R.output(a, b)
        return (a, b)
"""
VALUES = {
    "module": [
        '{"param_num": 1}', '{"param_num": 9}', '{"param_num": -1}', '{"param_num": "a"}', '{"state_num": 5}',
        '{"flush_subnormals": "a"}', '{"convention": {}}', '{"convention": 3}', '{"training": 3}',
        '{"random_state_num": 3}', '{"loss_scale_state": "a"}', '{"optim_state": 3}',
        '{"input_num": 1, "param_num": 1, "state_num": 1}',
    ],
    "kernel": [
        '{"streamed": (2,)}', '{"streamed": (9,)}', '{"streamed": "a"}', '{"kind": "host"}', '{"kind": 3}',
        '{"workspaces": 1}', '{"workspaces": -1}', '{"workspaces": "a"}', '{"scheduled": True}', '{"check": "x"}',
        '{"flush_subnormals": True}', '{"private": True}',
    ],
    "function": [
        '{"donate": (0,)}', '{"donate": [1, 0]}', '{"donate": (2,)}', '{"donate": (99,)}', '{"donate": "x"}',
        '{"donate": 3}', '{"donate": (0, 1, 2, 0)}', '{"donate": (0, 0)}', '{"donate": (-1,)}', '{"donate": (1.5,)}',
        '{"donate": (True,)}', '{"primitive": True}', '{"private": True}', '{"scheduled": True}', '{"kind": "host"}',
    ],
    "origin": [
        '{"op": "relax.add", "attrs": {}}', '{"op": "relax.subtract", "attrs": {}}', '{"op": "relax.sum", "attrs": {}}',
        '{"op": "relax.sum", "attrs": {"axis": None, "keepdims": False}}', '{"op": "relax.add", "attrs": {"x": 1}}',
        '{"op": "relax.nope", "attrs": {}}', '{"op": 3, "attrs": {}}', '{"attrs": {}}', '{"op": "relax.add"}', "3",
        '{"op": "relax.call_tir", "attrs": {}}', '{"op": "relax.nn.dropout", "attrs": {"rate": 0.5}}',
        '{"op": "relax.concat", "attrs": {"axis": 0}}', '{"op": "relax.reshape", "attrs": {"shape": (3,)}}',
    ],
}  # fmt: skip
X = np.ones(3, np.float32)


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize(("place", "value"), [(p, v) for p, values in VALUES.items() for v in values])
def test_no_attribute_makes_wrong_numbers(place: str, value: str, target: str) -> None:
    text = TEXT.replace(f"<{place}>", value).replace("<origin>", "None")
    for other in VALUES:
        text = text.replace(f"<{other}>", "{}")
    try:
        main = pullback.compile(from_source(text), target).function("main")
        found = [np.array(r) for r in main(X.copy(), X.copy(), np.ones(2, np.float32))]
    except UserError as error:
        assert error.hint
        return
    np.testing.assert_allclose(found, [X * 2, np.exp(X * 2)], rtol=1e-6)
