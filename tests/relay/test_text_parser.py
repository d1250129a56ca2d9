"""Relay text is read: every form of the grammar, against nodes built in Python."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from pullback import ir, relay, tir
from pullback.relay import adt, ty
from pullback.relay.op import registry
from pullback.relay.text import astext, fromtext, parse, parse_expr

VERSION = '#[version = "0.0.5"]\n'
F32 = ty.TensorType((), "float32")
X, Y = relay.var("x", F32), relay.var("y", F32)
FREE = "free_var %x: float32; free_var %y: float32;"


def read(text: str) -> ir.IRModule:
    """The module of the definitions, without inference."""
    return parse(VERSION + text, infer_types=False)


def same(text: str, wanted: object) -> None:
    """The text of an expression of %x and %y is ``wanted``."""
    ir.assert_structural_equal(parse_expr(f"{FREE} {text}"), wanted)


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1", 1, "int32"), ("0", 0, "int32"), ("-7", -7, "int32"), ("2147483648", 2**31, "int64"),
        ("-2147483648", -(2**31), "int32"), ("2i8", 2, "int8"), ("-128i8", -128, "int8"), ("3i16", 3, "int16"),
        ("3i64", 3, "int64"), ("4u8", 4, "uint8"), ("255u8", 255, "uint8"),
        ("18446744073709551615u64", 2**64 - 1, "uint64"),
        ("1f", 1.0, "float32"), ("1.5f", 1.5, "float32"), ("1.5", 1.5, "float32"), ("1e-05f", 1e-5, "float32"),
        ("2.5e3", 2500.0, "float32"), ("1f64", 1.0, "float64"), ("0.1f64", 0.1, "float64"), ("1f16", 1.0, "float16"),
        ("1.5bf16", 1.5, "bfloat16"), ("-0f", -0.0, "float32"), ("inff", math.inf, "float32"),
        ("-inff", -math.inf, "float32"), ("inff64", math.inf, "float64"),
        ("True", True, "bool"), ("False", False, "bool"),
    ],
)  # fmt: skip
def test_literals(text, value, dtype):
    constant = parse_expr(text)
    assert isinstance(constant, relay.Constant)
    assert constant.data.dtype == dtype and constant.data.shape == ()
    found = constant.data.numpy().astype("float64") if "float" in dtype else constant.data.numpy()
    wanted = np.float32(value) if dtype == "float32" else value
    assert found == wanted and np.signbit(float(found)) == np.signbit(float(value))


def test_not_a_number():
    assert np.isnan(parse_expr("nanf").data.numpy())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%x + %y * %x", X + Y * X),
        ("(%x + %y) * %x", (X + Y) * X),
        ("%x - %y - %x", (X - Y) - X),
        ("%x / %y / %x", (X / Y) / X),
        ("%x-%y", X - Y),
        ("%x/%y", X / Y),
        ("%x -1f", X - relay.const(1.0)),
        ("-%x", -X),
        ("- %x * %y", (-X) * Y),
        ("--%x", relay.negative(-X)),
        ("--10f", relay.const(10.0)),
        ("---10", relay.const(-10)),
        ("%x < %y", X < Y),
        ("%x<=%y", X <= Y),
        ("%x > %y", X > Y),
        ("%x >= %y", X >= Y),
        ("%x == %y", relay.expr.call_op("equal", X, Y)),
        ("%x != %y + %x", relay.expr.call_op("not_equal", X, Y + X)),
        ("%x < %y == True", relay.expr.call_op("equal", X < Y, relay.const(True))),
    ],
)
def test_infix_operators(text, wanted):
    same(text, wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("()", relay.Tuple(())),
        ("(%x,)", relay.Tuple((X,))),
        ("(%x)", X),
        ("(%x, %y)", relay.Tuple((X, Y))),
        ("(%x, %y,)", relay.Tuple((X, Y))),
        ("(%x, %y).1", relay.TupleGetItem(relay.Tuple((X, Y)), 1)),
        ("%x.0.12", relay.TupleGetItem(relay.TupleGetItem(X, 0), 12)),
        ("ref(%x)", relay.RefCreate(X)),
        ("ref_read(%x)", relay.RefRead(X)),
        ("ref_write(%x, %y)", relay.RefWrite(X, Y)),
        ("if (%x) { %y } else { 1f }", relay.If(X, Y, relay.const(1.0))),
        ("if (%x) { %y } else if (%y) { %x } else { 1f }", relay.If(X, Y, relay.If(Y, X, relay.const(1.0)))),
        ("add(%x, %y)", X + Y),
        ("add(%x, %y,)", X + Y),
        ("%x(%y)(%y, 1)", relay.Call(relay.Call(X, (Y,)), (Y, relay.const(1)))),
        ("%x(%y, units=3, name=\"a\")", relay.Call(X, (Y,), {"units": 3, "name": "a"})),
        ("@f(%x)", relay.Call(relay.GlobalVar("f"), (X,))),
        ("@f<float32, (int8, bool)>(%x)", relay.Call(
            relay.GlobalVar("f"), (X,), None,
            (F32, ty.TupleType((ty.TensorType((), "int8"), ty.TensorType((), "bool")))),
        )),
        ("{ %x }", X),
        ("/* a /* nested */ comment */ %x // the rest", X),
    ],
)  # fmt: skip
def test_expressions(text, wanted):
    same(text, wanted)


def test_graph_values_are_shared():
    found = parse_expr(f"{FREE} %0 = %x + %y; %1 = (%0, %0); %1.0")
    pair = found.tuple_value
    assert pair.fields[0] is pair.fields[1]
    apart = parse_expr(f"{FREE} %1 = (%x + %y, %x + %y); %1.0")
    assert not ir.structural_equal(found, apart)


def test_let_binds_after_its_value():
    first, second = relay.var("a"), relay.var("a")
    wanted = relay.Let(first, X, relay.Let(second, first + Y, second))
    same("let %a = %x; let %a = %a + %y; %a", wanted)


def test_a_function_may_name_itself():
    f, z = relay.var("f"), relay.var("z", F32)
    recursive = relay.Function((z,), relay.Call(f, (z - relay.const(1.0),)))
    same("let %f = fn (%z: float32) { %f(%z - 1f) }; %f(%x)", relay.Let(f, recursive, relay.Call(f, (X,))))


def test_values_between_bindings_are_bound_to_no_name():
    r, ignored = relay.var("r"), relay.var("")
    body = relay.Let(ignored, relay.RefWrite(r, Y), relay.RefRead(r))
    same("let %r = ref(%x); ref_write(%r, %y); ref_read(%r)", relay.Let(r, relay.RefCreate(X), body))


def test_scopes_end():
    """A name means what it did before, after a block."""
    a = relay.var("a")
    wanted = relay.Tuple((relay.Let(a, Y, a), X))
    same("({ let %x = %y; %x }, %x)", wanted)
    same("((let %x = %y; %x), %x)", wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("float32", F32),
        ("bool", ty.TensorType((), "bool")),
        ("Tensor[(), int8]", ty.TensorType((), "int8")),
        ("Tensor[(2), float32]", ty.TensorType((2,), "float32")),
        ("Tensor[(2,), float32]", ty.TensorType((2,), "float32")),
        ("Tensor[(2, ?, 3), bfloat16]", ty.TensorType((2, ty.Any(), 3), "bfloat16")),
        ("()", ty.TupleType(())),
        ("(float32,)", ty.TupleType((F32,))),
        ("(float32, (float32,))", ty.TupleType((F32, ty.TupleType((F32,))))),
        ("(float32)", F32),
        ("fn () -> float32", ty.FuncType((), F32)),
        ("fn(float32)->fn (float32) -> ()", ty.FuncType((F32,), ty.FuncType((F32,), ty.TupleType(())))),
        ("ref(float32)", ty.RefType(F32)),
        ("Ref[float32]", ty.RefType(F32)),
        ("(_,)", ty.TupleType((ty.IncompleteType(),))),
        ("_", None),
    ],
)
def test_types(text, wanted):
    ir.assert_structural_equal(parse_expr(f"fn (%x: {text}) {{ %x }}").params[0].type_annotation, wanted)


def test_polymorphic_types():
    a = ty.TypeVar("A")
    wanted = ty.FuncType((a,), a, (a,))
    for text in ("fn [A](A) -> A", "fn<A>(A) -> A"):
        ir.assert_structural_equal(parse_expr(f"fn (%x: {text}) {{ %x }}").params[0].type_annotation, wanted)
    kinds = "fn [A, S: Shape, B: BaseType, C: Constraint, D: AdtHandle, E: TypeData](A) -> A"
    found = parse_expr(f"fn (%x: {kinds}) {{ %x }}").params[0].type_annotation
    assert [v.kind.name for v in found.type_params] == [
        "Type", "ShapeVar", "BaseType", "Constraint", "AdtHandle", "TypeData",
    ]  # fmt: skip


def test_sizes_are_the_same_in_a_definition():
    text = "def @f(%x: Tensor[(n, (n + 1), floordiv(n, 2)), float32], %y: Tensor[(n, m: int32), float32]) { %x }"
    x, y = (p.type_annotation for p in read(text)["f"].params)
    n = x.shape[0]
    assert isinstance(n, tir.Var) and n.dtype == "int64" and y.shape[0] is n
    assert y.shape[1].dtype == "int32"
    ir.assert_structural_equal(x.shape[1], tir.expr.Binary("add", n, tir.IntImm(1)))
    ir.assert_structural_equal(x.shape[2], tir.expr.Binary("floordiv", n, tir.IntImm(2)))


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "_x",
        "x1",
        "base/scope",
        "aten::_convolution_0.weight",
        "layers.0.weight",
        "a.b.c",
        '"any name"',
        '"%\\u00e9"',
    ],
)
def test_names(name):
    function = parse_expr(f"fn (%{name}) {{ %{name} }}")
    assert function.body is function.params[0]
    assert read(f"def @{name}() {{ @{name}() }}").functions.keys() == {function.params[0].name}


def test_a_field_is_no_part_of_a_name():
    function = parse_expr("fn (%x) { (%x.0, %x.1.weight) }".replace(".1.weight", ".1"))
    assert [f.index for f in function.body.fields] == [0, 1]


LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"


def test_data_types():
    module = read(LIST + "extern type Handle\ntype Empty {}\ndef @main(%h: Handle, %l: List[Handle]) { %l }")
    header = module.get_global_type_var("List")
    definition = module.type_definitions[header]
    a = ty.TypeVar("A")
    cons = adt.Constructor("Cons", (a, header(a)), header)
    ir.assert_structural_equal(definition, adt.TypeData(header, (a,), (cons, adt.Constructor("Nil", (), header))))
    assert [c.tag for c in definition.constructors] == [0, 1]
    assert not module.type_definitions[ty.GlobalTypeVar("Handle")].constructors
    h, values = (p.type_annotation for p in module["main"].params)
    handle = ty.GlobalTypeVar("Handle")
    assert h == ty.TypeCall(handle, ()) and values == ty.TypeCall(header, (h,))


def test_matches():
    text = (
        LIST
        + """
    def @f(%l) {
      match (%l) {
        Cons(%h, Cons(_, %t: List[float32])) => { let %x = %h; (%x, %t) },
        Cons(%h, %t) => %h,
        Nil => Nil,
      }
    }
    def @g(%l) { match? %l { Nil => Cons, (_, %a) => %a } }
    """
    )
    module = read(text)
    match = module["f"].body
    assert match.complete and not module["g"].body.complete
    first, second, last = match.clauses
    assert first.lhs.patterns[1].patterns[0].__class__ is adt.PatternWildcard
    assert first.rhs.body.fields[1] is first.lhs.patterns[1].patterns[1].var
    assert second.rhs is second.lhs.patterns[0].var
    assert isinstance(last.rhs, relay.Call) and last.rhs.op.name == "Nil" and not last.rhs.args
    cons, pair = module["g"].body.clauses
    assert isinstance(cons.rhs, adt.Constructor)
    assert isinstance(pair.lhs, adt.PatternTuple) and pair.rhs is pair.lhs.patterns[1].var


def test_definitions_come_in_any_order():
    module = read("def @main(%l: List[int32]) { @later(%l) }\ndef @later(%l: List[int32]) { Cons(1, %l) }\n" + LIST)
    assert list(module) == ["main", "later"]
    assert module["main"].body.op == relay.GlobalVar("later")


def test_functions():
    text = 'def @f[A, B](%x: A, %y, Primitive=1, Compiler="a", "odd key"=[1, [2f, None]]) -> A { %x }'
    function = read(text)["f"]
    a, b = function.type_params
    assert (a.name, b.name) == ("A", "B")
    assert function.params[0].type_annotation is a and function.params[1].type_annotation is None
    assert function.ret_type is a
    assert dict(function.attrs) == {"Primitive": 1, "Compiler": "a", "odd key": (1, (2.0, None))}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-1", -1), ("1i64", 1), ("0.5f", 0.5), ("1e-05f", 1e-5), ("-inff", -math.inf), ("1", 1),
        ("123456789012345678901", 123456789012345678901), ("True", True), ("None", None), ("nullptr", None),
        ('"a\\n\\"b"', 'a\n"b'), ("[]", ()), ("[1, [2, 3]]", (1, (2, 3))), ("(1)", 1), ("(1, 2)", (1, 2)),
        ("?", ty.Any()),
    ],
)  # fmt: skip
def test_values_of_attributes(text, value):
    found = parse_expr(f"fn (%x) {{ %x(key={text}) }}").body.attrs["key"]
    assert found == value and type(found) is type(value)


def test_words_as_names_of_attributes():
    module = read('def @f(%x, type=1, "def"=2) { %x(if=3, extern=4) }\ndef @g() { 1 }')
    assert dict(module["f"].attrs) == {"type": 1, "def": 2}
    assert dict(module["f"].body.attrs) == {"if": 3, "extern": 4}
    assert "g" in module


def test_mappings_and_sizes_as_attributes():
    attrs = parse_expr('fn (%x: Tensor[(n), int8]) { %x(a={"b"=1, c=[2]}, d=[n, (n + 1)], e=m: int64) }').body.attrs
    assert attrs.a.b == 1 and attrs.a.c == (2,)
    assert isinstance(attrs.d[0], tir.Var) and isinstance(attrs.e, tir.Var) and attrs.e is not attrs.d[0]


def test_attributes_of_operators():
    """Those that are not given have their defaults, others the op's own form."""
    call = parse_expr("fn (%x: Tensor[(2, 3), float32]) { sum(%x, axis=1) }").body
    ir.assert_structural_equal(call.attrs, relay.sum(X, axis=[1]).attrs)
    call = parse_expr("fn (%x, %w) { nn.conv2d(%x, %w, channels=6, kernel_size=[7, 7]) }").body
    ir.assert_structural_equal(call.attrs, relay.nn.conv2d(X, Y, channels=6, kernel_size=(7, 7)).attrs)


def test_spans_are_places_in_the_text():
    module = parse(f"{VERSION}def @main(%x: float32) {{\n  add(%x,\n      exp(%x))\n}}", "model.rly", infer_types=False)
    call = module["main"].body
    inner = call.args[1].span
    assert (inner.file, inner.line, inner.column, inner.end_column) == ("model.rly", 4, 6, 13)
    assert inner.source_line() == "      exp(%x))"
    assert (call.span.line, call.span.column) == (3, 2)
    assert module["main"].params[0].span.column == 10
    assert call.args[0] is module["main"].params[0]


def test_modules_that_texts_build_on():
    base = read(LIST + "def @f(%x) { %x }")
    module = parse(VERSION + "def @g(%x) { Cons(@f(%x), Nil) }", init_module=base, infer_types=False)
    assert list(module) == ["f", "g"] and list(base) == ["f"]
    replaced = parse(VERSION + "def @f(%x) { (%x,) }", init_module=base, infer_types=False)
    assert isinstance(replaced["f"].body, relay.Tuple) and base["f"].body is base["f"].params[0]


def test_objects_that_the_caller_brings():
    table = {"relay.Constant": [relay.const(np.arange(3.0)), relay.const(np.ones((2, 2)))]}
    text = VERSION + "def @main() { (meta[relay.Constant][1], meta[relay.Constant][0]) }"
    fields = parse(text, init_meta_table=table, infer_types=False)["main"].body.fields
    assert fields[0] is table["relay.Constant"][1] and fields[1] is table["relay.Constant"][0]
    own = astext(ir.IRModule.from_expr(relay.Function((), relay.const(np.zeros(5)))))
    text = own.replace("meta[relay.Constant][0]\n", "(meta[relay.Constant][0], meta[relay.Constant][2])\n")
    fields = parse(text, init_meta_table=table, infer_types=False)["main"].body.fields
    assert fields[0].data.shape == (5,) and fields[1] is table["relay.Constant"][1]


REFERENCE = """#[version = "0.0.5"]
def @main(%x: Tensor[(meta[tir.SizeVar][0], 3), float32]) {
  nn.dense(%x, meta[relay.Constant][0] /* ty=Tensor[(3, 3), float32] */, units=None)
}

#[metadata]
{
  "root": 1, "nodes": [
    {"type_key": ""},
    {"type_key": "Map", "keys": ["relay.Constant", "tir.SizeVar", "VirtualDevice"], "data": [2, 4, 6]},
    {"type_key": "Array", "data": [3]},
    {"type_key": "relay.Constant",
     "attrs": {"_checked_type_": "9", "data": "0", "span": "0", "virtual_device_": "0"}},
    {"type_key": "Array", "data": [5]},
    {"type_key": "tir.SizeVar", "attrs": {"dtype": "int32", "name": "n", "span": "0", "type_annotation": "0"}},
    {"type_key": "Array", "data": [7]},
    {"type_key": "VirtualDevice", "attrs": {}}
  ],
  "b64ndarrays": [
    "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAgAAAAIgAQADAAAAAAAAAAMAAAAAAAAAJAAAAAAAAAAAAIA/AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/\
AACAPwAAgD8="
  ],
  "attrs": {"tvm_version": "0.18.0"}
}
"""


def test_metadata_of_the_reference():
    """An array of ones that the reference wrote, and a size."""
    function = parse(REFERENCE, infer_types=False)["main"]
    np.testing.assert_array_equal(function.body.args[1].data.numpy(), np.ones((3, 3), "float32"))
    assert function.body.args[1].data.dtype == "float32"
    size = function.params[0].type_annotation.shape[0]
    assert isinstance(size, tir.Var) and (size.name, size.dtype) == ("n", "int32")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("meta[relay.Constant][0]", "meta[VirtualDevice][0]", "is a VirtualDevice, which is not read"),
        ("meta[relay.Constant][0]", "meta[tir.SizeVar][0]", "is no expression"),
        ('"root": 1', '"root": 2', "node 2 of the reference's metadata is no Map"),
        ('"root": 1', '"root": 99', "has no node 99"),
        ('"data": "0"', '"data": "7"', "has no array '7'"),
        ('"P6G0', '"AAAA', "does not begin like one"),
        ("AACAPwAAgD8=", "AACAPwAA", "bytes"),
        ('"P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAgAAAAIgAQA', '"P6G0', "is damaged"),
        ("AgAAAAIgAQA", "AgAAAAMgAQA", "there is no dtype 'type 3 of 32'"),
        ('"dtype": "int32"', '"dtype": 3', "unknown dtype"),
    ],
)
def test_damaged_metadata_of_the_reference(old, new, message):
    assert old in REFERENCE
    with pytest.raises(ir.ScriptError, match=re.escape(message)):
        parse(REFERENCE.replace(old, new, 1), infer_types=False)


def test_types_are_inferred():
    module = parse(VERSION + "def @main(%x: Tensor[(2, 3), float32]) { let %y = %x + 1f; sum(%y) }")
    assert module["main"].body.checked_type == F32
    assert module["main"].ret_type == F32
    with pytest.raises(ir.UserError, match="int32"):
        parse(VERSION + "def @main(%x: float32, %y: int32) { %x + %y }")


def test_texts_of_either_kind():
    assert isinstance(fromtext(VERSION + "def @main(%x: float32) { %x }"), ir.IRModule)
    assert isinstance(fromtext(VERSION + "fn (%x: float32) { %x }"), relay.Function)
    assert isinstance(fromtext("v0.0.4\nfn (%x: float32) { %x }"), relay.Function)
    assert relay.parse is parse


def test_every_operator_reads_back():
    """The text of a call with the attributes that an op has by default means the same again."""
    required = {
        "a_max": 6.0, "a_min": 0.0, "axis": 1, "begin": (0,), "block_shape": (2, 2), "block_size": 2, "compiler": "a",
        "crop_size": (2, 2), "crops": ((0, 0), (0, 0)), "dst_layout": "NHWC", "dtype": "float16", "end": (1,),
        "eps": 1e-5, "equation": "ij->ji", "high": 1.0, "indices_or_sections": (1, 2), "low": 0.0, "mean": 0.0,
        "multiplier": 3, "newshape": (-1,), "num_groups": 2, "num_segments": 3, "out_shape": (2,), "output_shape": (3,),
        "pad_width": ((0, 0), (1, 1)), "paddings": ((0, 0), (0, 0)), "pooled_size": (2, 2), "repeats": 2, "reps": (2,),
        "scale": 1.0, "shape": (2, 3), "shift": 1, "size": (4,), "spatial_scale": 0.5, "src_layout": "NCHW",
        "n_fft": 8, "strides": (1, 1), "target_shape": (2, 2), "window_shape": (2, 2),
    }  # fmt: skip
    seen = 0
    for name, op in registry.Op.registry.items():
        if name.startswith("relax."):  # of the graph IR, as other tests have asked for them
            continue
        signature = op.signature
        needed = {n for n, d in signature.attrs.items() if ir.op.is_required(d) or n == "target_shape"}
        if not needed <= required.keys():
            continue  # an attribute that this table has no value for
        attrs = {n: required[n] for n in needed}
        args = [relay.var(f"x{i}") for i in range(1 if signature.variadic else len(signature.tensors))]
        first = parse_expr(astext(op.make(args, attrs)))
        assert isinstance(first, relay.Call) and first.op is op, name
        ir.assert_structural_equal(parse_expr(astext(first)), first)
        seen += 1
    assert seen > 150


def test_deep_texts():
    depth = 3000
    nested = parse_expr("fn (%x) { " + "exp(" * depth + "%x" + ")" * depth + " }")
    count, expr = 0, nested.body
    while isinstance(expr, relay.Call):
        count, expr = count + 1, expr.args[0]
    assert count == depth
    chain = parse_expr("fn (%x0) { " + "".join(f"let %x{i + 1} = exp(%x{i}); " for i in range(depth)) + f"%x{depth} }}")
    count, expr = 0, chain.body
    while isinstance(expr, relay.Let):
        count, expr = count + 1, expr.body
    assert count == depth
    parse_expr("(" * depth + "1" + ")" * depth)
    parse_expr("if (True) { " * 1000 + "1" + " } else { 2 }" * 1000)
