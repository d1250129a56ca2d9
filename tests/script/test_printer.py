"""Printed text: golden programs, constants, attributes, and calls no op builds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pullback import relax, tir
from pullback.ir import GlobalVar, IRModule, Op, ScriptError, assert_structural_equal
from pullback.runtime.dtype import numpy_dtype
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.tir.expr import DTYPES
from tests.helpers import round_trip

# Printed exactly as it is written.
MODULE = """\
from pullback.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    I.module_attrs({"param_num": 2, "state_num": 0})

    @R.function
    def main(
        x: R.Tensor(("n", 784), "float32"),
        w: R.Tensor((784, 10), "float32"),
        b: R.Tensor((10,), "float32"),
    ) -> R.Tuple(R.Tensor(("n", 10), "float32"), R.Tensor(("n * 10",), "float32")):
        R.func_attr({"kind": "forward"})
        cls = Module
        n = T.int64()
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = cls.scale(lv1)
            out = R.nn.relu(lv2)
            flat = R.reshape(out, (n * 10,))
            total = R.sum(out, axis=(0,), keepdims=True)
            R.output(out, flat)
        shape = R.shape([n, 10])
        return (out, flat)

    @R.function(private=True)
    def scale(x: R.Tensor(("n", 10), "float32")) -> R.Tensor(("n", 10), "float32"):
        y = R.multiply(x, R.const(0.1, "float32"))
        return y
"""


def test_golden_module() -> None:
    module = from_source(MODULE)
    assert module.script() == MODULE
    round_trip(module)
    for function in module.functions.values():
        round_trip(function)


def test_types_of_all_variables() -> None:
    text = from_source(MODULE)["scale"].script(types=True, header=False, name="scale")
    assert (
        text
        == """\
@R.function(private=True)
def scale(x: R.Tensor(("n", 10), "float32")) -> R.Tensor(("n", 10), "float32"):
    n = T.int64()
    y: R.Tensor((n, 10), "float32") = R.multiply(x, R.const(0.1, "float32"))
    return y
"""
    )
    assert_structural_equal(from_source(text), from_source(MODULE)["scale"])


def test_long_lines_are_spread() -> None:
    x = relax.Var("x", R.Tensor((2,), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x], {"names": "n" * 50, "more": "m" * 50}), bb.dataflow():
        outs = [bb.emit_output(R.add(x, x), f"a_rather_long_name_{i}") for i in range(8)]
        bb.emit_func_output(relax.Tuple(outs))
    text = round_trip(bb.get())
    assert max(map(len, text.splitlines())) <= 100
    assert "        return (\n            a_rather_long_name_0, a_rather_long_name_1," in text


def constant_function(data: np.ndarray) -> relax.Function:
    bb = relax.BlockBuilder()
    with bb.function("main", []):
        bb.emit_func_output(bb.emit(relax.const(data)))
    return bb.get()["main"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3), (3, 129)])
def test_constants(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    raw = rng.integers(0, 256, [*shape, kind.itemsize], dtype=np.uint8)
    data = (raw % 2 if dtype == "bool" else raw).view(kind).reshape(shape)
    round_trip(constant_function(data))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_special_floats(dtype: str) -> None:
    for value in (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 0.1, 1 / 3, 1e-8, 65504.0, 3e38):
        with np.errstate(over="ignore"):
            round_trip(constant_function(np.array(value).astype(numpy_dtype(dtype))))
    assert 'R.const(0.1, "float32")' in constant_function(np.float32(0.1)).script()
    quiet = np.array(0x7FC00001, "uint32").view("float32")  # a NaN with a payload
    assert "I.bytes(" in round_trip(constant_function(quiet))


def test_attributes() -> None:
    attrs = {
        "none": None, "bool": True, "int": -3, "float": 0.1, "nan": float("nan"), "inf": -float("inf"), "zero": -0.0,
        "text": "it's \"quoted\"\n", "tuple": (1,), "empty": (), "list": [1, (2.0, "x")], "dict": {"a": {"b": ()}},
        "array": np.arange(6, dtype="int32").reshape(2, 3), "large": np.linspace(0, 1, 100), "numpy": np.float32(0.1),
        "info": R.Tensor((2, 3), "int8"), "function": GlobalVar("main"), "bf16": np.ones(2, ml_dtypes.bfloat16),
    }  # fmt: skip
    round_trip(IRModule({}, attrs))
    x = relax.Var("x", R.Tensor((2,), "float32"))
    round_trip(relax.Function((x,), x, attrs=attrs))


def test_attributes_without_a_script_form_print_but_do_not_read_back() -> None:
    text = IRModule({}, {"thing": object()}).script()
    assert 'I.module_attrs({"thing": I.opaque("object")})' in text
    with pytest.raises(ScriptError, match="the printed text left something out: object"):
        from_source(text)


def test_calls_that_no_op_builds() -> None:
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    raw = relax.Call(Op.get("add"), (x, x), {"note": (1, "a")}, (R.Tensor((2, 3), "float32"),))
    item = relax.TupleGetItem(relax.Tuple((x, x)), 1)
    a, b = relax.Var("a", raw.struct_info), relax.Var("b", item.struct_info)
    block = relax.BindingBlock((relax.VarBinding(a, raw), relax.VarBinding(b, item)))
    text = round_trip(relax.Function((x,), relax.SeqExpr((block,), b)))
    assert 'a = R.call("relax.add", (x, x), {"note": (1, "a")}, [R.Tensor((2, 3), "float32")])' in text
    assert "b = R.TupleGetItem((x, x), 1)" in text


def returning(call: relax.Call, *params: relax.Var) -> relax.Function:
    """A function of one call."""
    y = relax.Var("y", call.struct_info)
    return relax.Function(params, relax.SeqExpr((relax.BindingBlock((relax.VarBinding(y, call),)),), y))


def test_attributes_that_are_nearly_the_default() -> None:
    """0 and -0.0 equal the default 0.0, True equals 1: they are others, and are written."""
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    for value in (-0.0, 0, False, 1.0):
        call = relax.op.nn.pad(x, (1, 1, 1, 1), pad_value=value)
        attrs = call.attrs | {"pad_value": value}
        made = returning(relax.Call(call.op, call.args, attrs), x)
        if value == 0 and type(value) is not float:  # what the op would make a float is written part by part
            assert '"pad_value": ' in made.script() or f"pad_value={value!r}" in made.script()
        else:
            assert f"pad_value={value!r}" in made.script()
        round_trip(made)
    plain = returning(relax.op.nn.pad(x, (1, 1, 1, 1)), x)
    assert "pad_value" not in plain.script()
    round_trip(plain)


def test_a_tensor_that_is_left_out_makes_required_attributes_keywords() -> None:
    """One after a tensor that may be left out cannot stand in its place."""
    state = relax.Var("state", relax.TensorStructInfo((2,), "uint64"))
    drawn = returning(relax.op.random.bits(state, (3,)), state)
    assert "R.random.bits(state, (3,))" in drawn.script()
    round_trip(drawn)
    without = returning(relax.op.random.bits(shape=(3,)))
    assert "R.random.bits(shape=(3,))" in without.script()
    round_trip(without)


def test_names_of_functions() -> None:
    x = relax.Var("x", R.Tensor((2,), "float32"))
    identity = relax.Function((x,), x)
    bb = relax.BlockBuilder(IRModule({"my-func": identity, "lambda": identity, "my_func": identity}))
    with bb.function("main", [x]):
        y = bb.emit(bb.get().get_global_var("my-func")(x))
        bb.emit_func_output(bb.emit(bb.get().get_global_var("my_func")(y)))
    text = round_trip(bb.get())
    assert '@R.function(name="my-func")' in text and 'cls["my-func"](x)' in text and "cls.my_func(" in text


def test_names_are_made_unique() -> None:
    n, m = tir.Var("n"), tir.Var("n")
    x, y = relax.Var("x", R.Tensor((n, 2), "float32")), relax.Var("x", R.Tensor((m, 2), "float32"))
    text = round_trip(relax.Function((x, y), relax.Tuple((x, y, relax.ShapeExpr((n, m))))))
    assert 'x_1: R.Tensor(("n_1", 2), "float32")' in text and "R.shape([n, n_1])" in text


def test_parts_print() -> None:
    f = from_source(MODULE)["scale"]
    (binding,) = f.bindings
    assert str(binding.value) == 'R.multiply(x, R.const(0.1, "float32"))'
    assert str(binding) == f"y = {binding.value}"
    assert str(f.params[0].struct_info) == 'R.Tensor((n, 10), "float32")'
    assert str(Op.get("nn.relu")) == "R.nn.relu"
    assert str(relax.Var("x", R.Object())) == "x"
    assert str(I.GlobalVar("f")) == 'I.GlobalVar("f")'


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    from_source(MODULE).show()
    assert capsys.readouterr().out == MODULE + "\n"


def test_an_annotation_where_the_value_does_not_say_the_type() -> None:
    x = relax.Var("x", R.Tensor((2,), "float32"))
    y = relax.Var("y", R.Object())
    function = relax.Function((x,), relax.SeqExpr((relax.BindingBlock((relax.VarBinding(y, x),)),), y))
    assert "y: R.Object = x" in round_trip(function)


def test_nested_negations_print_in_one_go() -> None:
    """Each operand is printed once, as 2 to the power of 300 texts take long; and without parentheses, of which Python
    reads no more than 200 inside one another."""
    for dtype, name, text in (("bool", "not", "not not not x"), ("int32", "not", "~~~x"), ("int64", "-", "---x")):
        x = tir.Var("x", dtype)
        value: tir.PrimExpr = x
        for _ in range(300):
            value = -value if name == "-" else tir.call(name, value)
        a = tir.Buffer("a", (1,), dtype)
        assert text in round_trip(tir.PrimFunc("k", (a, x), tir.store(a, 0, value)))
