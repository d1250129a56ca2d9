"""Functions that are not well formed: each breach is named, and nothing near it is."""

from __future__ import annotations

from typing import Any

import pytest

from pullback import relax, tir
from pullback.ir import ArgumentError, DTypeError, GlobalVar, IRModule, Op, ShapeError, UserError
from pullback.relax import Call, DataflowVar, Function, MatchCast, SeqExpr, TensorStructInfo, Tuple, Var, VarBinding
from pullback.relax.analysis import called_functions, check_well_formed, free_vars, sub_exprs, used_vars, users
from pullback.relax.expr import BindingBlock, DataflowBlock, ShapeExpr, TupleGetItem
from pullback.script import from_source

N, M = tir.Var("n"), tir.Var("m")
EXP = Op.get("exp")


def info(*shape: Any, dtype: str = "float32") -> TensorStructInfo:
    return TensorStructInfo(shape, dtype)


X = Var("x", info(2, 3))


def function(*bindings: Any, result: Any = None, params: tuple[Var, ...] = (X,), dataflow: bool = False) -> Function:
    block = (DataflowBlock if dataflow else BindingBlock)(tuple(bindings))
    return Function(params, SeqExpr((block,), result if result is not None else bindings[-1].var))


def bound(name: str, value: Any, kind: type[Var] = Var, type_: Any = None) -> VarBinding:
    return VarBinding(kind(name, type_ or value.struct_info), value)


def breach(message: str, subject: IRModule | Function, kind: type[UserError] = UserError) -> None:
    with pytest.raises(kind, match=message) as caught:
        check_well_formed(subject)
    assert type(caught.value) is kind


def test_a_variable_is_used_after_it_is_bound():
    late = bound("late", EXP(X))
    breach("early|late is used where it is not defined", function(bound("early", EXP(late.var)), late))
    check_well_formed(function(late, bound("y", EXP(late.var))))
    breach("stray is used where it is not defined", function(bound("y", EXP(X)), result=Var("stray", info(2))))


def test_a_variable_is_bound_once():
    y = bound("y", EXP(X))
    breach("variable y is bound twice", function(y, VarBinding(y.var, EXP(X))))


def test_dataflow_variables_stay_in_their_block():
    local = bound("local", EXP(X), DataflowVar)
    check_well_formed(function(local, bound("out", EXP(local.var)), dataflow=True))
    breach("local is used where it is not defined", function(local, result=local.var, dataflow=True))
    first, second = DataflowBlock((local,)), BindingBlock((bound("out", EXP(local.var)),))
    breach("local is used where it is not defined", Function((X,), SeqExpr((first, second), second.bindings[0].var)))
    breach("local is a dataflow variable outside a dataflow block", function(local))
    param = DataflowVar("p", info(2))
    breach("parameter p cannot be a dataflow variable", Function((param,), SeqExpr((), X), None))


def test_variables_of_a_dataflow_block_that_leave_it_do():
    out = bound("out", EXP(X))
    block, rest = DataflowBlock((out,)), BindingBlock((bound("y", EXP(out.var)),))
    check_well_formed(Function((X,), SeqExpr((block, rest), rest.bindings[0].var)))


def test_arguments_are_atoms():
    breach("y has a nested argument", function(bound("y", Call(EXP, (EXP(X),)))))
    pair = Tuple((EXP(X), X))
    breach("y has a nested argument", function(bound("y", Tuple((pair, X)))))
    check_well_formed(function(bound("y", Tuple((Tuple((X, X)), X)))))


def test_symbolic_sizes_are_bound():
    breach("the symbolic size n is bound nowhere", function(bound("y", EXP(X), type_=info(N))))
    x = Var("x", info(N))
    check_well_formed(function(bound("y", EXP(x)), params=(x,)))
    cast = MatchCast(Var("y", info(N, 3)), X, info(N, 3))
    check_well_formed(function(cast, bound("z", EXP(cast.var))))


MODULE = """
from pullback.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def kernel(A: T.Buffer(("m",), "float32"), B: T.Buffer(("m",), "float32"), k: T.int64):
        m = T.int64()
        for i in range(m):
            B[i] = A[i] * 2.0

    @R.function
    def callee(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return x
"""


def calling(value: Any) -> IRModule:
    module = from_source(MODULE)
    module["main"] = function(bound("y", value))
    return module


def test_called_functions_are_there():
    check_well_formed(calling(Call(GlobalVar("callee", from_source(MODULE)["callee"].struct_info), (X,))))
    module = calling(Call(GlobalVar("callee", from_source(MODULE)["callee"].struct_info), (X,)))
    del module["callee"]
    breach("there is no function callee in the module", module)
    check_well_formed(module["main"])  # nothing is known of others
    kernel = GlobalVar("kernel", from_source(MODULE)["callee"].struct_info)
    breach("kernel is a kernel of the loop IR, not a graph function", calling(Call(kernel, (X,))))


def kernel_call(argument: Any, sizes: Any = (1,), out: Any = None, name: str = "kernel", **more: Any) -> IRModule:
    module = from_source(MODULE)
    out = out if out is not None else argument.struct_info
    value = relax.op.call_tir(GlobalVar(name), [argument], out, tir_vars=ShapeExpr(sizes) if sizes else None, **more)
    module["main"] = function(bound("y", value), params=(argument,))
    return module


def test_kernels_are_called_on_what_they_take():
    x = Var("x", info(4))
    check_well_formed(kernel_call(x))
    breach("takes B as Tensor.*5|takes B as Tensor.*4", kernel_call(x, out=info(5)), ShapeError)
    breach("kernel takes B as", kernel_call(x, out=info(4, dtype="float64")), DTypeError)
    breach("kernel takes A as", kernel_call(X), ShapeError)
    breach(r"takes 2 buffers and 1 sizes, got 2 and 0", kernel_call(x, sizes=None), ArgumentError)
    breach(r"takes 2 buffers and 1 sizes, got 3 and 1", kernel_call(x, out=[info(4), info(4)]), ArgumentError)
    breach("callee is a graph function", kernel_call(x, name="callee"))
    breach("there is no function other", kernel_call(x, name="other"))


def test_each_call_of_a_kernel_is_looked_at():
    x = Var("x", info(4))
    right = bound("y", relax.op.call_tir(GlobalVar("kernel"), [x], info(4), tir_vars=ShapeExpr((1,))))
    wrong = bound("z", relax.op.call_tir(GlobalVar("kernel"), [right.var], info(5), tir_vars=ShapeExpr((1,))))
    module = from_source(MODULE)
    module["main"] = function(right, wrong, params=(x,))
    breach("kernel takes B as", module, ShapeError)


def test_kernels_stay_in_their_buffers():
    text = MODULE.replace('T.Buffer(("m",), "float32"), B', 'T.Buffer((4,), "float32"), B').replace(
        "range(m)", "range(5)"
    )
    breach("index 4 is outside axis 0 of A", from_source(text), ShapeError)


# -- what a function uses


def test_sub_expressions_and_used_variables():
    y = Var("y", info(2, 3))
    pair = Tuple((X, Tuple((y, X))))
    call = Call(GlobalVar("callee", from_source(MODULE)["callee"].struct_info), (X,))
    assert list(sub_exprs(call)) == [X] and list(sub_exprs(X)) == []
    assert list(used_vars(pair)) == [X, y, X] and list(used_vars(X)) == [X]
    assert list(used_vars(TupleGetItem(pair, 0))) == [X, y, X]


def test_users_and_free_variables_in_order():
    y = bound("y", relax.op.add(X, X))
    z = bound("z", relax.op.add(y.var, X))
    made = function(y, z, result=Tuple((z.var, Var("stray", info(2)))))
    assert {v.name: [b.var.name for b in found] for v, found in users(made).items()} == {"x": ["y", "z"], "y": ["z"]}
    assert [v.name for v in free_vars(made)] == ["stray"]
    assert free_vars(function(z, y)) == [y.var]  # before it is bound


def test_called_functions_once_each_in_order():
    one, two = (GlobalVar(n, from_source(MODULE)["callee"].struct_info) for n in ("one", "two"))
    first = bound("a", Call(two, (X,)))
    made = function(first, bound("b", Call(one, (first.var,))), bound("c", Call(two, (first.var,))))
    assert called_functions(made) == ["two", "one"]
