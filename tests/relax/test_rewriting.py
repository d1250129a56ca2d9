"""Builders and mutators: names, blocks, nested expressions, and types that are deduced anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax, tir
from pullback.ir import ArgumentError, IRModule, Op, UserError, assert_structural_equal
from pullback.relax import (
    BlockBuilder,
    Call,
    DataflowVar,
    ExprMutator,
    Function,
    MatchCast,
    TensorStructInfo,
    Tuple,
    Var,
)
from pullback.relax.analysis import check_well_formed
from pullback.relax.expr import PrimValue, ShapeExpr, TupleGetItem
from pullback.relax.interpreter import evaluate
from pullback.relax.mutator import copy_with_new_vars, emit_body, inline_body

N, M = tir.Var("n"), tir.Var("m")
EXP = Op.get("exp")
op = relax.op


def info(*shape: Any, dtype: str = "float32") -> TensorStructInfo:
    return TensorStructInfo(shape, dtype)


def names(function: Function) -> list[str]:
    return [b.var.name for b in function.bindings]


# -- the builder


def test_names_are_given_once():
    builder = BlockBuilder()
    builder.begin(["x", "lv_1"])
    builder.reserve("y")
    assert [builder.unique(n) for n in ("lv", "lv", "lv", "x", "y", "x_1", "x")] == [
        "lv", "lv_2", "lv_3", "x_1", "y_1", "x_1_1", "x_2",
    ]  # fmt: skip
    builder.begin()
    assert builder.unique("lv") == "lv"


def test_an_expression_that_is_used_twice_is_bound_once_in_a_block():
    x, builder = Var("x", info(2)), BlockBuilder()
    twice = EXP(x)
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(op.add(twice, twice))
            again = builder.emit_output(op.multiply(twice, first))
        with builder.dataflow():  # what was bound in a block is not seen in the next
            last = builder.emit_output(op.subtract(twice, again))
        builder.emit_func_output(last)
    module = builder.get()
    check_well_formed(module)
    assert [b.value.op.short for b in module["main"].bindings] == ["exp", "add", "multiply", "exp", "subtract"]
    (value,) = (evaluate(module, "main", [np.ones(2, np.float32)])[:1],)
    np.testing.assert_allclose(value, [np.e - np.e * 2 * np.e], rtol=1e-6)


def test_a_function_of_its_own_starts_afresh():
    builder = BlockBuilder()
    for name in ("f", "g"):
        x = Var("x", info(2))
        with builder.function(name, [x], {"kind": name}):
            builder.emit_func_output(builder.emit(EXP(x)))
    module = builder.get()
    assert names(module["f"]) == names(module["g"]) == ["gv"]
    assert [dict(module[n].attrs) for n in "fg"] == [{"kind": n, "global_symbol": n} for n in "fg"]
    builder = BlockBuilder()
    with (
        pytest.raises(UserError, match="function g cannot be built inside function f"),
        builder.function("f"),
        builder.function("g"),
    ):
        pass


def test_blocks_end_where_dataflow_begins():
    x, builder = Var("x", info(2)), BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(EXP(x))
        with builder.dataflow():
            z = builder.emit_output(EXP(y))
            assert [b.var for b in builder.current_bindings()] == [z]
        out = builder.emit(op.add(z, y))
        assert builder.lookup(out).op.short == "add" and builder.lookup(x) is None
        builder.emit_func_output((out, y))
    kinds = [type(block).__name__ for block in builder.get()["main"].body.blocks]
    assert kinds == ["BindingBlock", "DataflowBlock", "BindingBlock"]


def test_promote_gives_a_name_outside_of_the_block():
    x, builder = Var("x", info(2)), BlockBuilder()
    builder.begin(["x"])
    with builder.dataflow():
        local = builder.emit(EXP(x))
        outside = builder.promote(local)
        assert builder.promote(outside) is outside and not isinstance(outside, DataflowVar)
    check_well_formed(Function((x,), builder.finish(outside)))


def test_match_cast_in_and_outside_of_dataflow():
    x, builder = Var("x", TensorStructInfo(ndim=1)), BlockBuilder()
    with builder.function("main", [x]):
        a = builder.match_cast(x, info(N), "a")
        with builder.dataflow():
            b = builder.match_cast(a, info(2))
            out = builder.emit_output(b)
        builder.emit_func_output(out)
    assert type(a) is Var and type(b) is DataflowVar and b.struct_info == info(2)
    module = builder.get()
    check_well_formed(module)
    np.testing.assert_array_equal(evaluate(module, "main", [np.ones(2, np.float32)]), [1, 1])
    with pytest.raises(ArgumentError, match=r"match_cast expected Tensor.*2.*got Tensor.*3"):
        evaluate(module, "main", [np.ones(3, np.float32)])


def test_a_builder_goes_on_with_a_module_and_leaves_it_as_it_was():
    x, module = Var("x", info(2)), IRModule()
    builder = BlockBuilder(module)
    with builder.function("main", [x]):
        builder.emit_func_output(EXP(x))
    assert not module.functions and list(builder.get().functions) == ["main"]


# -- mutators


def of_sizes() -> Function:
    x, builder = Var("x", info(N, 3)), BlockBuilder()
    builder.begin(["x"])
    with builder.dataflow():
        y = builder.emit(op.reshape(x, (N * 3,)))
        z = builder.emit(op.broadcast_to(op.expand_dims(y, 0), (2, N * 3)))
        whole = builder.match_cast(z, info(2, N * 3))
        out = builder.emit_output(Tuple((whole, ShapeExpr((N, 2)), PrimValue(N + 1))))
    return Function((x,), builder.finish(out), attrs={"kind": "k"})


def test_sizes_are_replaced_throughout():
    bound = ExprMutator({N: 4}).function(of_sizes())
    assert bound.params[0].struct_info == info(4, 3) and bound.attrs == {"kind": "k"}
    check_well_formed(bound)
    expected = [info(12), info(1, 12), info(2, 12), info(2, 12)]
    assert [b.var.struct_info for b in bound.bindings][:4] == expected
    assert [b.value.attrs["shape"] for b in bound.bindings if getattr(b.value, "attrs", {}).get("shape")] == [
        (12,), (2, 12),
    ]  # fmt: skip
    cast = next(b for b in bound.bindings if isinstance(b, MatchCast))
    assert cast.target == info(2, 12)
    value = next(b.value for b in bound.bindings if isinstance(b.value, Tuple))
    assert value.fields[1].values == (4, 2) and value.fields[2].value == 5
    unchanged = of_sizes()
    assert_structural_equal(ExprMutator().function(unchanged), unchanged)


class Cut(ExprMutator):
    """Each exp takes the first two elements."""

    def rewrite_call(self, call: Call) -> Any:
        return op.strided_slice(call, [0], [0], [2]) if call.op is EXP else call


def test_types_are_deduced_anew_where_arguments_changed():
    x, builder = Var("x", info(4)), BlockBuilder()
    builder.begin(["x"])
    with builder.dataflow():
        y = builder.emit(EXP(x))
        z = builder.emit(op.tanh(y))
        out = builder.emit_output(op.sum(op.add(z, y)))
    cut = Cut().function(Function((x,), builder.finish(out)))
    assert [b.var.struct_info for b in cut.bindings] == [info(4), info(2), info(2), info(2), info()]
    check_well_formed(cut)


def test_types_of_calls_with_sizes_are_deduced_anew():
    """Of calls without tensors, and on constants, too: an attribute holds the size."""
    x, builder = Var("x", info(N)), BlockBuilder()
    builder.begin(["x"])
    with builder.dataflow():
        zeros = builder.emit(op.zeros((N,), "float32"))
        ones = builder.emit(op.broadcast_to(relax.const(1.0, "float32"), (N,)))
        out = builder.emit_output(op.add(op.add(zeros, ones), x))
    bound = ExprMutator({N: 4}).function(Function((x,), builder.finish(out)))
    assert {b.var.struct_info for b in bound.bindings} == {info(4)} and bound.ret_struct_info == info(4)
    check_well_formed(bound)


def test_emit_body_takes_the_sizes_of_its_arguments():
    inner = of_sizes()
    x, builder = Var("x", info(5, 3)), BlockBuilder()
    builder.begin(["x"])
    with builder.dataflow():
        found = emit_body(inner, {inner.params[0]: x}, builder)
        assert all(isinstance(b.var, DataflowVar) for b in builder.current_bindings())
        out = builder.emit_output(TupleGetItem(found, 0))
    outer = Function((x,), builder.finish(out))
    check_well_formed(outer)
    assert outer.ret_struct_info == info(2, 15)


def test_inlined_bodies_have_variables_of_their_own():
    inner = of_sizes()
    copy = copy_with_new_vars(inner)
    assert_structural_equal(copy, inner)
    mine = {*inner.params, *(b.var for b in inner.bindings)}
    assert not mine & {*copy.params, *(b.var for b in copy.bindings)} and copy.attrs == inner.attrs
    builder = BlockBuilder()
    builder.begin(["x"])
    body = inline_body(inner, {p: p for p in inner.params}, builder)
    assert [type(b).__name__ for b in body.blocks] == [type(b).__name__ for b in inner.body.blocks]
    assert not mine & {b.var for block in body.blocks for b in block.bindings}


# -- the interpreter


def test_the_interpreter_looks_at_arguments():
    x, y = Var("x", info(N)), Var("y", info(N))
    builder = BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(op.add(x, y))
    module = builder.get()
    ones = [np.ones(k, np.float32) for k in range(4)]
    np.testing.assert_array_equal(evaluate(module, "main", [ones[3], ones[3]]), [2, 2, 2])
    with pytest.raises(ArgumentError, match="main takes 2 arguments, got 1"):
        evaluate(module, "main", ones[:1])
    with pytest.raises(ArgumentError, match=r"argument y must be Tensor.*got Tensor.*2"):
        evaluate(module, "main", [ones[3], ones[2]])
    with pytest.raises(ArgumentError, match=r"argument x must be .*float32.*got .*float64"):
        evaluate(module, "main", [np.ones(3), ones[3]])


def test_the_interpreter_shows_values_in_order_in_called_functions_too():
    x, builder = Var("x", info(2)), BlockBuilder()
    with builder.function("inner", [x]):
        inner = builder.emit_func_output(builder.emit(EXP(x), "e"))
    y = Var("y", info(2))
    with builder.function("main", [y]):
        a = builder.emit(op.add(y, y), "a")
        builder.emit_func_output(builder.emit(inner(a), "b"))
    seen: list[tuple[str, float]] = []
    result = evaluate(builder.get(), "main", [np.zeros(2, np.float32)], lambda b, v: seen.append((b.var.name, v[0])))
    assert seen == [("a", 0.0), ("e", 1.0), ("b", 1.0)] and result.dtype == np.float32
    assert pullback.compile(builder.get(), "debug")["main"](np.zeros(2, np.float32)).numpy()[0] == 1.0
