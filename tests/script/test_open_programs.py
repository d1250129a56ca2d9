"""Branches, loops and functions inside: random programs mean what Python means, and print and parse to themselves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pullback.ir.module import IRModule
from pullback.relax.analysis import check_well_formed, inner_bodies
from pullback.relax.expr import Function
from pullback.relax.interpreter import evaluate
from pullback.relax.regions import is_closed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.script import from_source
from tests.helpers import round_trip
from tests.script.open_programs import Writer, run_by_python

ARGUMENTS = [np.array(0.7), np.array(-0.4), np.array([0.5, -1.0, 0.25, 2.0])]
SEEDS = range(60)


def leaves(value: Any) -> list[np.ndarray]:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, tuple) else [value]


def run(function: Function) -> list[np.ndarray]:
    module = IRModule({"main": function})
    check_well_formed(module)
    return leaves(evaluate(module, "main", ARGUMENTS))


def prints_stably(function: Function) -> Function:
    """The function that its text gives, whose text is the same."""
    text = round_trip(function)
    again = from_source(text)
    assert again.script() == text
    return again


@pytest.mark.parametrize("seed", SEEDS)
def test_meaning_and_round_trip(seed: int) -> None:
    text = Writer(seed).function()
    function = from_source(text)
    found = run(function)
    np.testing.assert_allclose(found, leaves(run_by_python(text, ARGUMENTS)), rtol=1e-12)
    again = prints_stably(function)
    closed = inline_calls(again, IRModule({"main": again}))
    assert is_closed(closed)
    for other in (again, closed, prints_stably(closed)):
        np.testing.assert_array_equal(run(other), found)


def variables(body: Any) -> list[Any]:
    """All variables that a function binds, inside too."""
    params = list(body.params) if isinstance(body, Function) else []
    found = params
    for binding in body.bindings:
        found.append(binding.var)
        inner = [binding.value] if isinstance(binding.value, Function) else inner_bodies(binding.value)
        for part in inner:
            found += variables(part)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_names_that_clash(seed: int) -> None:
    """Whatever names the variables have, the text means the same."""
    function = from_source(Writer(seed).function())
    found = run(function)
    choose = random.Random(seed)
    for f in (function, inline_calls(function, IRModule({"main": function}))):
        for var in variables(f):
            vars(var)["name"] = choose.choice(["h", "h", "y", "body", "then", "h_1"])
        np.testing.assert_array_equal(run(prints_stably(f)), found)
