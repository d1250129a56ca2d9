"""The graph IR: expressions, types, the block builder, visitors, mutators, well-formedness."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, tir
from pullback.ir import DTypeError, IRModule, Op, ShapeError, UserError, structural_equal
from pullback.relax import (
    BlockBuilder,
    Call,
    DataflowVar,
    ExprMutator,
    ExprVisitor,
    Function,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    const,
)
from pullback.relax.analysis import check_well_formed, free_vars, post_order_visit, users, well_formed
from pullback.relax.matching import match_info
from tests.helpers import round_trip

N = tir.Var("n")


def tensor(*shape, dtype="float32") -> TensorStructInfo:
    return TensorStructInfo(shape, dtype)


def test_struct_info_compares_by_value():
    assert tensor(2, N + N) == tensor(2, N * 2)
    assert tensor(2, N) != tensor(2, tir.Var("n"))
    assert tensor(2) != tensor(2, dtype="float64")
    assert TensorStructInfo(ndim=2) != TensorStructInfo(ndim=3)
    assert tensor(N, 3).ndim == 2
    with pytest.raises(ShapeError, match="a size cannot be negative: -1"):
        tensor(-1)
    with pytest.raises(DTypeError, match="unknown dtype 'float31'"):
        tensor(1, dtype="float31")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (tensor(2, 3), tensor(np.int64(2), 3)),
        (tensor(2, N + N), tensor(2, N * 2)),
        (tensor(N - N + 4), tensor(4)),
        (TensorStructInfo(ndim=2), TensorStructInfo(ndim=2)),
        (TupleStructInfo((tensor(2), tensor(N))), TupleStructInfo((tensor(2), tensor(N)))),
    ],
    ids=str,
)
def test_equal_types_have_equal_hashes(first, second):
    assert first == second and hash(first) == hash(second)


def test_an_op_element_by_element_gives_the_type_of_an_operand_that_has_it():
    x, y, row = (Var(name, tensor(*shape)) for name, shape in (("x", (2, N)), ("y", (2, N)), ("row", (1, N))))
    assert relax.op.add(x, y).struct_info is x.struct_info
    assert relax.op.add(row, y).struct_info is y.struct_info
    assert relax.op.greater(x, y).struct_info == tensor(2, N, dtype="bool")
    assert relax.op.add(Var("column", tensor(2, 1)), row).struct_info == tensor(2, N)


def test_matching_binds_sizes():
    sizes = {}
    assert match_info(tensor(N, N, 3), tensor(4, 4, 3), sizes)
    assert sizes == {N: 4}
    assert not match_info(tensor(N, N), tensor(4, 5), {})
    assert match_info(TupleStructInfo((tensor(N), tensor(N + 1))), TupleStructInfo((tensor(2), tensor(3))), {})


def test_expressions_are_typed_and_infix_operators_are_ops():
    x = Var("x", tensor(2, 3))
    y = 1.0 - x @ const(np.ones((3, 4), "float32")) * 2.0
    assert y.shape == (2, 4)
    assert y.op is Op.get("subtract")
    assert (x > 0.0).dtype == "bool"
    with pytest.raises(ShapeError, match="matmul"):
        x @ x
    with pytest.raises(UserError, match="no truth value"):
        bool(x)
    with pytest.raises(DTypeError, match=r"the Python number 0\.5 does not fit the int64 tensor"):
        Var("k", tensor(2, dtype="int64")) + 0.5


def test_tuples():
    x, y = Var("x", tensor(2)), Var("y", tensor(3))
    pair = Tuple((x, y))
    assert pair[1] is y
    first, second = Var("p", pair.struct_info)
    assert (first.struct_info, second.struct_info) == (x.struct_info, y.struct_info)
    with pytest.raises(UserError, match="it is no tuple"):
        list(x)


def build() -> IRModule:
    builder = BlockBuilder()
    x = Var("x", tensor(2, 3))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(Op.get("exp")(x + x))
            out = builder.emit_output((y, y * 2.0))
        builder.emit_func_output(out)
    return builder.get()


def test_block_builder_normalizes():
    module = build()
    names = [b.var.name for b in module["main"].bindings]
    assert names == ["lv", "lv_1", "lv_2", "gv"]
    assert isinstance(next(module["main"].bindings).var, DataflowVar)
    check_well_formed(module)
    round_trip(module)
    result = pullback.compile(module, "debug")["main"](np.zeros((2, 3), "float32"))
    assert [r.numpy()[0, 0] for r in result] == [1, 2]


def test_block_builder_refuses():
    builder = BlockBuilder()
    with pytest.raises(UserError, match="function f has no output"), builder.function("f", []):
        pass
    with pytest.raises(UserError, match="used outside a function"):
        BlockBuilder().emit_func_output(const(1.0))
    with builder.dataflow(), pytest.raises(UserError, match="inside a dataflow block"), builder.dataflow():
        pass


def test_analysis():
    function = build()["main"]
    seen = []
    post_order_visit(function, lambda n: seen.append(n.short) if isinstance(n, Op) else None)
    assert seen == ["add", "exp", "multiply"]
    assert free_vars(function) == []
    by_name = {v.name: len(b) for v, b in users(function).items()}
    assert by_name == {"x": 1, "lv": 1, "lv_1": 2, "lv_2": 1}
    stray = Var("stray", tensor(2))
    assert free_vars(Function((), stray)) == [stray]
    assert not well_formed(Function((), stray))


class Ops(ExprVisitor):
    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_call(self, call: Call) -> None:
        self.names.append(call.op.short)
        self.generic_visit(call)


def test_visitor():
    visitor = Ops()
    visitor.visit_function(build()["main"])
    assert visitor.names == ["add", "exp", "multiply"]


class ExpToTanh(ExprMutator):
    def rewrite_call(self, call: Call) -> relax.Expr:
        return Op.get("tanh")(*call.args) if call.op is Op.get("exp") else call


def test_mutator():
    module = build()
    changed = ExpToTanh().function(module["main"])
    visitor = Ops()
    visitor.visit_function(changed)
    assert visitor.names == ["add", "tanh", "multiply"]
    assert structural_equal(ExprMutator().function(module["main"]), module["main"])
    check_well_formed(changed)


def test_shadowing_and_escaping_are_not_well_formed():
    x = Var("x", tensor(2))
    twice = relax.BindingBlock((relax.VarBinding(x, x + x),))
    with pytest.raises(UserError, match="x is bound twice"):
        check_well_formed(Function((x,), relax.SeqExpr((twice,), x)))
    local = DataflowVar("local", tensor(2))
    block = relax.DataflowBlock((relax.VarBinding(local, x + x),))
    with pytest.raises(UserError, match="local"):
        check_well_formed(Function((x,), relax.SeqExpr((block,), local)))


def test_functions_declare_what_they_return():
    x = Var("x", tensor(2))
    with pytest.raises(ShapeError, match="returns"):
        Function((x,), x, tensor(3))
