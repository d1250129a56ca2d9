"""Random programs: no pass changes what a program gives, loses an effect, adds one or changes their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pullback.ir import IRModule
from pullback.ir.op import Op
from pullback.ir.transform import Sequential
from pullback.relay.analysis import Feature, check_basic_block_normal_form, detect_feature, well_formed
from pullback.relay.expr import Constant, Function, GlobalVar, If, Let, Var
from pullback.relay.transform import (
    DeadCodeElimination,
    FoldConstant,
    InferType,
    LambdaLift,
    PartialEvaluate,
    ToANormalForm,
    ToBasicBlockNormalForm,
    ToGraphNormalForm,
)
from pullback.relay.transform.defunctionalization import Defunctionalization
from pullback.relay.transform.to_cps import to_cps, un_cps
from pullback.relay.visitor import children, post_order
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
NAMED = (Var, GlobalVar, Constant, Op)
SEEDS = [1, 3, 4, 7, *range(200, 216)]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PASSES)
def test_programs_give_what_they_gave(name: str, seed: int) -> None:
    mod = Program(seed).module
    after = PASSES[name](mod)
    assert all(map(well_formed, after.functions.values()))
    assert results(after) == results(mod)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["ToANormalForm", "PartialEvaluate"])
def test_what_is_in_a_normal_form_shares_nothing(name: str, seed: int) -> None:
    after = PASSES[name](Program(seed).module)
    for function in after.functions.values():
        assert Feature.fGraph not in detect_feature(function)
        for node in post_order(function):
            if isinstance(node, Let):
                assert not isinstance(node.value, Let)
            elif not isinstance(node, (Function, If)):
                assert all(isinstance(part, NAMED) for part in children(node))


@pytest.mark.parametrize("seed", SEEDS)
def test_basic_blocks_use_only_what_has_a_name_around_them(seed: int) -> None:
    after = PASSES["ToBasicBlockNormalForm"](Program(seed).module)
    assert all(map(check_basic_block_normal_form, after.functions.values()))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(
    ("seed", "names"),
    [
        (5371, ["Defunctionalization", "fold", "PartialEvaluate, DeadCodeElimination"]),
        (5596, ["Defunctionalization", "PartialEvaluate, ToGraphNormalForm"]),
        (5132, ["fold"]),
        (5179, ["ToANormalForm", "fold"]),
    ],
)
def test_passes_after_another(seed: int, names: list[str]) -> None:
    """Cells in data that is not known are written by way of a pattern's variables; fields of a tuple have effects."""
    mod = Program(seed).module
    wanted = results(mod)
    for name in names:
        mod = FoldConstant()(mod) if name == "fold" else PASSES[name](mod)
        assert results(mod) == wanted
