"""Adjoints of tuple variables are tuples, whose fields are read: later passes resolve them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.transform import CanonicalizeBindings, Gradient
from pullback.script import from_source

X = np.array([0.5, -1.0, 2.0], "float64")
Y = np.array([1.5, 0.25, -0.5], "float64")
HEAD = "@R.function\ndef main(x: R.Tensor((3,), 'float64'), y: R.Tensor((3,), 'float64')):\n    with R.dataflow():\n"


def adjoint_of(*lines: str) -> IRModule:
    body = "".join(f"        {line}\n" for line in (*lines, "R.output(gv)"))
    return Gradient("main")(IRModule({"main": from_source(f"{HEAD}{body}    return gv\n")}))


def bindings(module: IRModule) -> dict[str, str]:
    return {b.var.name: str(b.value) for b in module["main_adjoint"].bindings}


CASES = {
    "a tuple": (
        ("t = (R.exp(x), y)", "gv = R.sum(R.multiply(t[0], t[1]))"),
        lambda: (np.exp(X) * Y, np.exp(X)),
        ["t_adjoint"],
    ),
    "an op": (
        ("s = R.split(R.concat([x, y]), 2)", "gv = R.sum(R.multiply(R.sin(s[0]), s[1]))"),
        lambda: (np.cos(X) * Y, np.sin(X)),
        ["s_adjoint"],
    ),
    "an op of which one result is read": (
        ("s = R.split(R.concat([x, y]), 2)", "gv = R.sum(R.multiply(s[1], s[1]))"),
        lambda: (np.zeros(3), 2 * Y),
        [],
    ),
    "a tuple of which one field is read": (
        ("t = (R.exp(x), y)", "gv = R.sum(t[0])"),
        lambda: (np.exp(X), np.zeros(3)),
        [],
    ),
    "a tuple that is read twice": (
        ("t = (R.exp(x), y)", "a = R.multiply(t[0], t[1])", "gv = R.sum(R.add(R.multiply(a, t[1]), t[0]))"),
        lambda: (np.exp(X) * (Y * Y + 1), 2 * np.exp(X) * Y),
        ["t_adjoint"],
    ),
    "tuples of tuples' items": (
        ("t = (x, y)", "u = (t[1], R.sin(t[0]))", "gv = R.sum(R.multiply(u[0], u[1]))"),
        lambda: (np.cos(X) * Y, np.sin(X)),
        ["u_adjoint", "t_adjoint"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_tuples_and_have_the_right_values(name):
    lines, expected, tuples = CASES[name]
    module = adjoint_of(*lines)
    found = bindings(module)
    assert [n for n, value in found.items() if n.endswith("_adjoint") and value.startswith("(")] == tuples
    for tuple_name in tuples:
        assert any(value.startswith(f"{tuple_name}[") for value in found.values())
    assert_structural_equal(from_source(module.script()), module)
    for target in ("debug", "llvm"):
        _, adjoints = pullback.compile(module, target).function("main_adjoint")(X, Y)
        for given, wanted in zip(adjoints, expected(), strict=True):
            np.testing.assert_allclose(given.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_later_passes_resolve_them(name):
    resolved = bindings(CanonicalizeBindings()(adjoint_of(*CASES[name][0])))
    assert not any(value.startswith("(") for value in resolved.values())
    assert not any("_adjoint[" in value for value in resolved.values())
