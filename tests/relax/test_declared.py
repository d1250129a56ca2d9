"""R.Param and R.State: parsed, printed, seen by structural equality, kept by passes; what contradicts is an error."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.digest import structural_hash
from pullback.ir.errors import ArgumentError, DTypeError, ScriptError
from pullback.ir.module import IRModule
from pullback.ir.node import assert_structural_equal, structural_equal
from pullback.relax import transform
from pullback.relax.analysis import check_well_formed
from pullback.relax.convention import Convention
from pullback.relax.declared import DECLARED, Declared, declared_of, with_declared
from pullback.relax.expr import Var
from pullback.relax.mutator import copy_with_new_vars
from pullback.relax.struct_info import TensorStructInfo, same_info
from pullback.relax.training import AppendLoss, SetupTrainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.relax.transform.bind_sizes import BindSizes
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Mixed:
    @R.function
    def backbone(
        seen: R.State((), "int64"),
        w: R.Param((4, 3)),
        x: R.Tensor(("n", 4), "float32"),
        b: R.Param((3,), trainable=False, initial=2),
        mean: R.State((4,), initial=0.5),
    ):
        with R.dataflow():
            y = R.matmul(x - mean, w) + b
            more = seen + R.const(1, "int64")
            new_mean = mean * 0.9 + R.mean(x, axis=0) * 0.1
            R.output(y, more, new_mean)
        return (y, more, new_mean)


FOUND = (
    Declared("state"),
    Declared("parameter"),
    Declared(),
    Declared("parameter", trainable=False, initial=2.0),
    Declared("state", initial=0.5),
)
BACKBONE = Mixed["backbone"]


def test_annotations_declare_and_types_stay_those_of_tensors():
    assert declared_of(BACKBONE) == FOUND
    assert BACKBONE.attrs[DECLARED][3] == ("parameter", {"trainable": False, "initial": 2.0})
    types = [TensorStructInfo(s, d) for s, d in (((), "int64"), ((4, 3), "float32"))]
    assert all(map(same_info, types, (p.struct_info for p in BACKBONE.params)))


def test_they_are_printed_as_they_are_written_and_read_back():
    text = Mixed.script()
    for line in (
        'seen: R.State((), "int64"),',
        'w: R.Param((4, 3), "float32"),',
        'x: R.Tensor(("n", 4), "float32"),',
        'b: R.Param((3,), "float32", trainable=False, initial=2.0),',
        'mean: R.State((4,), "float32", initial=0.5),',
    ):
        assert line in text
    assert "func_attr" not in text
    assert_structural_equal(from_source(text), Mixed)


def test_structural_equality_sees_them():
    hashes = {structural_hash(BACKBONE)}
    for k in range(len(FOUND)):
        changed = [Declared("input" if d.kind != "input" else "state") if i == k else d for i, d in enumerate(FOUND)]
        other = with_declared(BACKBONE, changed)
        assert not structural_equal(other, BACKBONE)
        hashes.add(structural_hash(other))
    assert not structural_equal(with_declared(BACKBONE, None), BACKBONE)
    assert len(hashes) == 6
    assert structural_equal(with_declared(with_declared(BACKBONE, None), FOUND), BACKBONE)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: IRModule({"backbone": copy_with_new_vars(m["backbone"])}),
        BindSizes({"n": 8}),
        transform.Normalize(),
        transform.CanonicalizeBindings(),
        transform.LegalizeOps(),
        transform.DecomposeOpsForTraining(),
        transform.FoldConstant(),
        transform.EliminateCommonSubexpr(),
        transform.DeadCodeElimination(),
        transform.InlineFunctions(),
        transform.MixedPrecision("backbone", "bfloat16"),
        transform.RebatchInputs(5, "backbone", 0, ("x",)),
    ],
    ids=lambda change: type(change).__name__,
)
def test_passes_keep_them(change):
    changed = change(Mixed)
    assert declared_of(changed["backbone"]) == FOUND
    check_well_formed(changed)


def test_functions_that_take_other_parameters_declare_what_is_left():
    bound = transform.BindParams("backbone", {"b": np.ones(3, "float32"), "x": np.ones((2, 4), "float32")})
    with pytest.raises(Exception, match="parameter x is"):  # its size is symbolic
        bound(Mixed)
    bound = transform.BindParams("backbone", {"b": np.ones(3, "float32")})(Mixed)
    assert declared_of(bound["backbone"]) == (*FOUND[:3], FOUND[4])
    assert Convention.of(bound)["backbone"].takes == (("state", 0), ("parameter", 0), ("input", 0), ("state", 1))

    @R.function
    def draws(w: R.Param((4,)), x: R.Tensor((4,))):
        return R.nn.dropout(x * w, 0.5)

    drawing = transform.AddRandomState()(IRModule({"backbone": draws}))["backbone"]
    assert declared_of(drawing) == (Declared("parameter"), Declared(), Declared())
    check_well_formed(drawing)


def test_what_is_made_of_a_function_declares_nothing():
    """The convention of its module says what its functions take."""
    info = TensorStructInfo((6, 3), "float32")
    module = AppendLoss("backbone", MSELoss()(info, info))(BindSizes({"n": 6})(Mixed))
    module = transform.Gradient("backbone_loss", require_grads="w")(module)
    assert declared_of(module["backbone_loss"]) is declared_of(module["backbone_loss_adjoint"]) is None


def test_the_convention_follows_in_any_order():
    roles = Convention.of(Mixed)["backbone"]
    assert roles.takes == (("state", 0), ("parameter", 0), ("input", 0), ("parameter", 1), ("state", 1))
    assert roles.returns == (("output", 0), ("state", 0), ("state", 1))


def test_counts_that_say_the_same_are_fine_and_others_are_an_error():
    setup = SetupTrainer(MSELoss(), SGD(0.1), [TensorStructInfo((6, 3), "float32")] * 2)
    fixed = BindSizes({"n": 6})(Mixed)
    assert_structural_equal(setup(fixed.with_attrs({"param_num": 2, "state_num": 2})), setup(fixed))
    for key, wrong, said in (("param_num", 1, r"2 .* as R\.Param"), ("state_num", 3, r"2 .* as R\.State")):
        with pytest.raises(ArgumentError, match=f"attribute '{key}' is {wrong}, but {said}"):
            setup(fixed.with_attr(key, wrong))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("w: R.Param((3,), initial='ones')", ArgumentError, "initial must be a number"),
        ("w: R.Param((3,), initial=True)", ArgumentError, "initial must be a number"),
        ("w: R.Param((3,), trainable=1)", ArgumentError, "trainable must be True or False"),
        ('w: R.State((3,), "int8", initial=0.5)', DTypeError, "initial is 0.5, which int8 does not hold"),
        ('w: R.State((3,), "int8", initial=300)', DTypeError, "initial is 300, which int8 does not hold"),
        ("w: R.State((3,), initial=1e300)", DTypeError, r"initial is 1e\+300, which float32 does not hold"),
        ("w: R.Tuple(R.Param((3,)))", ScriptError, r"R\.Param declares a parameter of a function of its own"),
        ("w: R.State", ScriptError, r"R\.State declares a parameter of a function of its own"),
    ],
)
def test_mistakes_are_shown_where_they_are(text, error, message):
    with pytest.raises(error, match=message) as found:
        from_source(f"@R.function\ndef backbone({text}):\n    return w\n", file="model.py")
    assert found.value.span is not None and found.value.span.line == 2


def test_they_stand_at_parameters_only():
    for body in ("y: R.Param((3,)) = w\n    return y", "return w"):
        returns = "" if body.startswith("y") else " -> R.State((3,))"
        with pytest.raises(ScriptError, match="stands nowhere else"):
            from_source(f"@R.function\ndef backbone(w: R.Tensor((3,))){returns}:\n    {body}\n")


def test_attributes_written_by_hand_are_checked():
    w = Var("w", TensorStructInfo((3,), "float32"))

    @R.function
    def backbone(x: R.Tensor((3,))):
        return x

    assert w.name not in [p.name for p in backbone.params]
    for attribute, message in (
        ((("parameter", {}), ("input", {})), "has 1 parameters, its attribute 'declared' is of 2"),
        ((("weight", {}),), "declared as input, parameter, state, not as 'weight'"),
        ((("state", {"trainable": False}),), "what is declared as state has no trainable"),
        ((("state", {"size": 1}),), "a tuple of .kind, options., one for each parameter"),
        (("state",), "a tuple of .kind, options., one for each parameter"),
    ):
        wrong = backbone.with_attr(DECLARED, attribute)
        with pytest.raises(ArgumentError, match=message):
            check_well_formed(wrong)
        assert "func_attr" in wrong.script()
    with pytest.raises(ScriptError, match="declare its parameters differently"):
        from_source(
            '@R.function\ndef f(w: R.Param((3,))):\n    R.func_attr({"declared": (("state", {}),)})\n    return w\n'
        )
