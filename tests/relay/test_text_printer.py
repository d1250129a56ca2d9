"""Relay text is written as the reference writes it, and reads back."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import ir, relax, relay
from pullback.ir.node import Span
from pullback.relay import adt, ty
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.prelude import Prelude
from pullback.relay.text import astext, parse, parse_expr
from pullback.relay.transform import AnnotateSpans

VERSION = '#[version = "0.0.5"]\n'
F32 = ty.TensorType((), "float32")


def written(expr: object) -> str:
    """The text without the version line, which reads back as the same."""
    text = astext(expr)
    assert text.startswith(VERSION)
    ir.assert_structural_equal(parse_expr(text), expr)
    return text.removeprefix(VERSION)


def test_a_model_of_torch():
    """The printed module of the reference's example."""

    def at(layer: str) -> Span:
        return Span(f"aten::{layer}", 0, 0)

    x = relay.Var("input0", ty.TensorType((1, 3, 10, 10)), span=at("_convolution_0.input0"))
    name = "aten::_convolution_0.weight"
    weight = relay.Var(name, ty.TensorType((6, 3, 7, 7)), span=Span(name, 0, 0))
    with ir.span_scope(at("_convolution_0")):
        conv = relay.nn.conv2d(x, weight, channels=6, kernel_size=(7, 7))
    with ir.span_scope(at("softmax_0")):
        soft = relay.nn.softmax(conv, axis=1)
    wanted = """\
fn (%input0: Tensor[(1, 3, 10, 10), float32] /* span=aten::_convolution_0.input0:0:0 */, %aten::_convolution_0.weight: \
Tensor[(6, 3, 7, 7), float32] /* span=aten::_convolution_0.weight:0:0 */) {
  %0 = nn.conv2d(%input0, %aten::_convolution_0.weight, padding=[0, 0, 0, 0], channels=6, kernel_size=[7, 7]) \
/* span=aten::_convolution_0:0:0 */;
  nn.softmax(%0, axis=1) /* span=aten::softmax_0:0:0 */
}"""
    function = relay.Function((x, weight), soft)
    assert str(function) == wanted
    assert written(function) == wanted


def test_values_that_others_use_have_numbers():
    x, y = relay.var("x", F32), relay.var("y", F32)
    total = x + y
    assert (
        written(relay.Function((x, y), total * total - relay.const(1.0)))
        == """\
fn (%x: float32, %y: float32) {
  %0 = add(%x, %y);
  %1 = multiply(%0, %0);
  subtract(%1, 1f)
}"""
    )


def test_free_variables():
    x = relay.var("x", shape=(2,))
    assert written(relay.exp(x)) == "free_var %x: Tensor[(2), float32];\nexp(%x)"
    assert written(relay.var("x")) == "free_var %x;\n%x"


def test_blocks():
    x = relay.var("x", F32)
    a, r = relay.var("a"), relay.var("r")
    branch = relay.If(x < relay.const(0.0), -x, relay.Let(a, x * x, a + a))
    body = relay.Let(r, relay.RefCreate(x), relay.Tuple((branch, relay.RefWrite(r, x), relay.RefRead(r))))
    assert (
        written(relay.Function((x,), body, F32))
        == """\
fn (%x: float32) -> float32 {
  let %r = ref(%x);
  %0 = less(%x, 0f);
  %1 = if (%0) {
    negative(%x)
  } else {
    let %a = multiply(%x, %x);
    add(%a, %a)
  };
  %2 = ref_write(%r, %x);
  %3 = ref_read(%r);
  (%1, %2, %3)
}"""
    )


def test_a_let_among_arguments_stands_in_parentheses():
    a, x = relay.var("a"), relay.var("x")
    assert (
        written(relay.Function((x,), relay.Tuple((relay.Let(a, x, a),))))
        == """\
fn (%x) {
  %0 = (
    let %a = %x;
    %a
  );
  (%0,)
}"""
    )


def test_a_function_that_names_itself_and_is_used_elsewhere():
    f, x = relay.var("f"), relay.var("x")
    function = relay.Function((x,), relay.Call(f, (x,)))
    assert "let %f = {" in written(relay.Let(f, function, relay.Tuple((function, f))))


def test_values_of_branches_may_be_used_after_them():
    x = relay.var("x")
    value = relay.exp(x)
    written(relay.Function((x,), relay.Tuple((relay.If(x, relay.Tuple((value,)), x), value))))


def test_modules():
    text = (
        VERSION
        + """\
type List[A] {
  Cons(A, List[A]),
  Nil,
}

extern type Handle

def @map[A, B](%f: fn (A) -> B, %xs: List[A], %h: Handle[]) -> List[B] {
  match (%xs) {
    Cons(%x: A, %rest: List[A]) => {
      %0 = %f(%x);
      %1 = @map(%f, %rest, %h);
      Cons(%0, %1)
    },
    Nil => {
      Nil
    },
  }
}

def @main[A]() -> fn (A, List[A]) -> List[A] {
  Cons
}
"""
    )
    module = parse(text, infer_types=False)
    assert astext(module) == text
    assert module.astext() == text and module.script() == text
    assert str(module) == text.removeprefix(VERSION)
    assert "meta" not in astext(parse(text))


def test_partial_matches_and_patterns():
    text = (
        VERSION
        + """\
type T {
  A,
  B(T[], T[]),
}

def @f(%t) {
  match? (%t) {
    B(A, _) => {
      A
    },
    (%x, %y) => {
      B(%x, %y)
    },
  }
}
"""
    )
    assert astext(parse(text, infer_types=False)) == text


def test_names_that_clash_have_numbers():
    x, again, last = relay.var("x"), relay.var("x"), relay.var("x1")
    assert (
        written(relay.Function((x, again, last), relay.Tuple((x, again, last))))
        == """\
fn (%x, %x1, %x11) {
  (%x, %x1, %x11)
}"""
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "%x"), ("1", "%v1"), ("", "%v"), ("_x", "%v_x"), ("a.b::c/d", "%a.b::c/d"), ("a b", '%"a b"'),
        ("layers.0", '%"layers.0"'), ("layers.0.weight", "%layers.0.weight"), ('a"\n', '%"a\\"\\n"'),
        ("été", '%"vété"'), ("a-b", '%"a-b"'), ("let", "%let"),
    ],
)  # fmt: skip
def test_names(name, text):
    function = relay.Function((relay.var(name),), relay.const(1.0))
    assert written(function).startswith(f"fn ({text}) ")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, "float32", "1f"), (0.1, "float32", "0.1f"), (1 / 3, "float32", "0.33333334f"), (1e6, "float32", "1e+06f"),
        (100.0, "float32", "100f"), (-0.0, "float32", "-0f"), (float("inf"), "float32", "inff"),
        (-1.5, "float64", "-1.5f64"), (0.1, "float16", "0.1f16"), (1 / 3, "float64", "0.3333333333333333f64"),
        (1.5, "bfloat16", "1.5bf16"), (1, "int32", "1"), (-1, "int64", "-1i64"),
        (7, "int8", "7i8"), (7, "uint8", "7u8"), (True, "bool", "True"),
    ],
)  # fmt: skip
def test_constants(value, dtype, text):
    assert written(relay.const(value, dtype)) == text


def test_large_constants_are_metadata():
    constant = relay.const(np.arange(4.0))
    function = relay.Function((), relay.Tuple((constant, constant, relay.const(np.arange(4.0)))))
    body, _, section = written(function).partition("\n#[metadata]\n")
    assert body == "fn () {\n  (meta[relay.Constant][0], meta[relay.Constant][0], meta[relay.Constant][1])\n}"
    assert '"relay.Constant"' in section
    short = astext(function, show_meta_data=False)
    assert short.startswith(VERSION + body) and "#[metadata]" not in short and "meta data omitted" in short
    assert str(function) == body


def test_attributes_of_modules_are_metadata():
    module = ir.IRModule({"main": relay.Function((), relay.const(1))}, {"a": (1, 0.5), "b": "x"})
    assert dict(parse(astext(module)).attrs) == {"a": (1, 0.5), "b": "x"}


def test_attributes():
    x = relay.var("x", shape=(2, 3))
    assert written(relay.sum(x, axis=1)).endswith("sum(%x, axis=[1])")
    assert written(relay.sum(x)).endswith("sum(%x)")
    assert written(relay.cast(x, "int8")).endswith('cast(%x, dtype="int8")')
    assert written(relay.clip(x, 0.0, 6.0)).endswith("clip(%x, a_min=0f, a_max=6f)")
    assert written(relay.sum(x, keepdims=True)).endswith("sum(%x, keepdims=True)")
    odd = {"a": None, "b": 'q"', "c": (1, (2.5,)), "two words": {"k": True}}
    function = relay.Function((x,), x, None, (), odd)
    assert 'a=None, b="q\\"", c=[1, [2.5f]], "two words"={"k"=True}) {' in written(function)


def test_primitive_functions():
    x = relay.var("x", F32)
    inner = relay.Function((x,), relay.exp(x)).with_attr("Primitive", 1)
    y = relay.var("y", F32)
    assert (
        written(relay.Function((y,), inner(y)))
        == """\
fn (%y: float32) {
  %0 = fn (%x: float32, Primitive=1) {
    exp(%x)
  };
  %0(%y)
}"""
    )


def test_inferred_types_are_comments():
    """Every constant, variable, call, tuple and function says once what it is."""
    x = relay.var("x", shape=(2, 3))
    one = relay.const(1.0)
    a = relay.var("a")
    function = relay.Function((x,), relay.Let(a, relay.add(one, one), relay.Tuple((x + a,))))
    wanted = """\
fn (%x: Tensor[(2, 3), float32] /* ty=Tensor[(2, 3), float32] */) -> (Tensor[(2, 3), float32],) {
  let %a: float32 /* ty=float32 */ = add(1f /* ty=float32 */, 1f /* ty=float32 */) /* ty=float32 */;
  %0 = add(%x, %a) /* ty=Tensor[(2, 3), float32] */;
  (%0,) /* ty=(Tensor[(2, 3), float32],) */
} /* ty=fn (Tensor[(2, 3), float32]) -> (Tensor[(2, 3), float32],) */"""
    assert str(infer_expr(function)) == wanted
    module = infer_module(ir.IRModule.from_expr(function))
    text = astext(module)
    assert text.startswith(VERSION + "def @main(%x: Tensor[(2, 3), float32] /* ty=")
    assert not text.rstrip().endswith("*/")
    ir.assert_structural_equal(parse(text), module)


def test_inferred_modules_read_back():
    """With the types of polymorphic calls, which are inferred again."""
    prelude = Prelude(ir.IRModule())
    prelude.mod.import_from_std("nat.rly")
    prelude.mod.import_from_std("gradient.rly")
    module = infer_module(prelude.mod)
    text = astext(module)
    assert "<" not in text
    ir.assert_structural_equal(parse(text), module)


def test_annotations():
    x = relay.var("x", F32)
    texts = astext(relay.Function((x,), relay.exp(x)), annotate=lambda e: f" /* {type(e).__name__} */")
    assert texts == VERSION + "fn (%x: float32 /* Var */) {\n  exp(%x) /* Call */\n} /* Function */"


def test_spans():
    """Places in texts that have a name are shown, those in Python and in mere strings are not."""
    text = VERSION + "def @main(%x: float32) {\n  exp(%x)\n}"
    assert "span" not in str(parse(text))
    assert "exp(%x) /* ty=float32 span=model.rly:3:3 */" in str(parse(text, "model.rly"))
    assert "exp(%x) /* ty=float32 span=GeneratedSource:3:3 */" in str(AnnotateSpans()(parse(text)))
    for file in ("model.py", "<stdin>"):
        with ir.span_scope(Span(file, 3, 1)):
            assert "span" not in str(relay.exp(relay.var("x", F32)))
    assert "span" not in str(Prelude(ir.IRModule()).mod)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (F32, "float32"),
        (ty.TensorType((2, ty.Any()), "int8"), "Tensor[(2, ?), int8]"),
        (ty.TupleType(()), "()"),
        (ty.TupleType((F32,)), "(float32,)"),
        (ty.RefType(F32), "ref(float32)"),
        (ty.FuncType((F32,), ty.TupleType((F32, F32))), "fn (float32) -> (float32, float32)"),
        (ty.GlobalTypeVar("List"), "List"),
        (ty.GlobalTypeVar("List")(F32), "List[float32]"),
        (ty.IncompleteType(), "_"),
        (ty.TypeVar("A"), "A"),
    ],
)
def test_types(type_, text):
    assert str(type_) == text
    assert type_.astext() == VERSION + text


def test_patterns_and_clauses():
    header = ty.GlobalTypeVar("T")
    pair = adt.Constructor("Pair", (F32, F32), header)
    x = relay.var("x")
    pattern = adt.PatternConstructor(pair, (adt.PatternVar(x), adt.PatternWildcard()))
    assert str(pattern) == "Pair(%x, _)"
    assert str(adt.Clause(pattern, x)) == "Pair(%x, _) => {\n  %x\n}"
    assert str(pair) == "Pair"


def test_type_variables_of_one_name_stay_apart():
    outer, inner = ty.TypeVar("A"), ty.TypeVar("A")
    x, y = relay.Var("x", outer), relay.Var("y", inner)
    function = relay.Function((x,), relay.Function((y,), relay.Tuple((x, y)), None, (inner,)), None, (outer,))
    assert "[A1]" in written(function)


def test_functions_of_a_module_do_not_share():
    """Two functions may be made of the same nodes: each text stands alone."""
    x = relay.var("x", F32)
    value = relay.exp(x)
    module = ir.IRModule({n: relay.Function((x,), relay.Tuple((value, value))) for n in ("f", "g")})
    assert astext(module).count("exp(") == 2
    ir.assert_structural_equal(parse(astext(module), infer_types=False), module)


def test_deep_programs():
    x = relay.var("x", F32)
    nested = x
    for _ in range(3000):
        nested = relay.exp(nested)
    function = relay.Function((x,), nested)
    text = astext(function)
    assert text.count("\n") == 3000 + 2
    ir.assert_structural_equal(parse_expr(text), function)
    chain = variable = relay.var("last")
    for _ in range(3000):
        variable, before = relay.var("a"), variable
        chain = relay.Let(before, relay.exp(variable), chain)
    function = relay.Function((variable,), chain)
    ir.assert_structural_equal(parse_expr(astext(function)), function)


def test_shared_programs_are_short():
    """A value that is used twice at each of a hundred levels has 2^100 paths to it, and a hundred lines."""
    value = relay.var("x", F32)
    for _ in range(100):
        value = value + value
    text = astext(value)
    assert text.count("\n") == 1 + 100
    ir.assert_structural_equal(parse_expr(text), value)


def test_modules_in_notebooks():
    module = parse(VERSION + "def @main(%x: Tensor[(2), float32]) { %x < 1f }", infer_types=False)
    assert module._repr_html_() == ("<pre>def @main(%x: Tensor[(2), float32]) {\n  less(%x, 1f)\n}\n</pre>")


def test_modules_of_other_languages_keep_their_text():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(relax.op.exp(x))
    module = builder.get()
    assert module.astext() == module.script() == str(module)
    assert "R.function" in str(module)
