"""Random programs: no pass changes what a program gives, loses an effect, adds one or changes their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pullback.ir import IRModule
from pullback.ir.transform import Sequential
from pullback.relay.transform import (
    DeadCodeElimination,
    InferType,
    LambdaLift,
    PartialEvaluate,
    ToANormalForm,
    ToBasicBlockNormalForm,
    ToGraphNormalForm,
)
from pullback.relay.transform.defunctionalization import Defunctionalization
from pullback.relay.transform.to_cps import to_cps, un_cps
from tests.relay.traced_programs import Program, results


def through_cps(mod: IRModule) -> IRModule:
    typed = InferType()(mod)
    after = typed.copy()
    after["main"] = un_cps(to_cps(typed["main"], after))
    return InferType()(after)


def first_order(mod: IRModule) -> IRModule:
    typed = InferType()(mod)
    after = typed.copy()
    after["main"] = Defunctionalization(typed["main"], after)
    return after


PASSES: dict[str, Callable[[IRModule], IRModule]] = {
    "ToANormalForm": ToANormalForm(),
    "ToGraphNormalForm": ToGraphNormalForm(),
    "there and back": Sequential([ToANormalForm(), ToGraphNormalForm()]),
    "ToBasicBlockNormalForm": ToBasicBlockNormalForm(),
    "DeadCodeElimination": DeadCodeElimination(),
    "DeadCodeElimination, inlining": Sequential([ToANormalForm(), DeadCodeElimination(inline_once=True)]),
    "PartialEvaluate": PartialEvaluate(),
    "PartialEvaluate, DeadCodeElimination": Sequential([PartialEvaluate(), DeadCodeElimination(inline_once=True)]),
    "PartialEvaluate, ToGraphNormalForm": Sequential([PartialEvaluate(), ToGraphNormalForm()]),
    "LambdaLift": LambdaLift(),
    "LambdaLift, PartialEvaluate": Sequential([LambdaLift(), PartialEvaluate()]),
    "to_cps, un_cps": through_cps,
    "Defunctionalization": first_order,
}
SEEDS = [1, 3, 4, 7, *range(200, 216)]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PASSES)
def test_programs_give_what_they_gave(name: str, seed: int) -> None:
    mod = Program(seed).module
    assert results(PASSES[name](mod)) == results(mod)
