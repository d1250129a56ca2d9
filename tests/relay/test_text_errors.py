"""What is wrong in a text is said: all of it at once, each with its place and how to mend it."""

from __future__ import annotations

import pytest

from pullback import ir, relay
from pullback.relay.text import fromtext, parse, parse_expr

VERSION = '#[version = "0.0.5"]\n'
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"


def error_of(text: str) -> ir.ScriptError:
    """The error of a text of definitions, after the version line."""
    with pytest.raises(ir.ScriptError) as caught:
        parse(VERSION + text, infer_types=False)
    return caught.value


# A text, what is said, what the carets stand under, and a part of the hint.
ONE = [
    ("def @f(%x) { %y }", "there is no variable `%y`", "%y", "bound here are: %x"),
    ("def @f(%value) { %valeu }", "there is no variable `%valeu`", "%valeu", "did you mean %value?"),
    ("def @f(%x) { { let %y = %x; %y }; %y }", "there is no variable `%y`", "%y", "%x"),
    ("def @f(%x) { softmax(%x) }", "softmax`: did you mean nn.softmax?", "softmax", "%softmax"),
    ("def @f(%x) { nn.sofmax(%x) }", "did you mean nn.softmax?", "nn.sofmax", ""),
    ("def @f(%x) { exp(%x, %x) }", "exp takes 1 argument, got 2", "exp(%x, %x)", "exp(data)"),
    ("def @f(%x) { add(%x) }", "add takes 2 arguments, got 1", "add(%x)", "add(lhs, rhs)"),
    ("def @f(%x) { sum(%x, axs=1) }", "sum has no attribute `axs`: did you mean axis?", "axs", "sum(data"),
    ("def @f(%x) { add(%x, rhs=%x) }", "expected the value of an attribute", "%x", 'such as 1, 0.5f, "text"'),
    ("def @f(%x) { sum(%x, axis=1, axis=2) }", "attribute 'axis' is given twice", "axis", ""),
    ("def @f(%x) { sum(axis=1, %x) }", "expected name=value, found `%x`", "%x", "attributes come last"),
    ("def @f(%x) { cast(%x) }", "cast needs the attribute `dtype`", "cast(%x)", "dtype"),
    ("def @f(%x) { cast(%x, dtype=int8) }", "`int8` is no value", "int8", '"int8"'),
    ("def @f(%x) { @g(%x) }", "there is no function `@g`", "@g", "there are: @f"),
    ("def @foo(%x) { @fooo(%x) }", "did you mean @foo?", "@fooo", "import_from_std"),
    ("def @f(%x) { %0 }", "there is no value `%0`", "%0", "write %0 = …;"),
    ("def @f(%x: Tensor[(2), float33]) { %x }", "unknown dtype 'float33'", "float33", "the dtypes are"),
    ("def @f(%x: Tensor(2)) { %x }", "expected `[` after `Tensor`", "(", "Tensor[(2, 3), float32]"),
    ("def @f(%x: Tensor[2, float32]) { %x }", "expected `(` before the shape", "2", "Tensor[(2, 3), float32]"),
    ("def @f(%x: Tensor[(1.5), float32]) { %x }", "a size is a whole number", "1.5", ""),
    ("def @f(%x: A) { %x }", "there is no type `A`", "A", "type parameters stand in brackets"),
    ("def @f(%x: float23) { %x }", "did you mean float32?", "float23", ""),
    (LIST + "def @f(%x: Lst[int8]) { %x }", "did you mean List?", "Lst", ""),
    (LIST + "def @f(%x) { match (%x) { Con(_, _) => 1, Nil => 2 } }", "did you mean Cons?", "Con", "%Con"),
    (LIST + "def @f(%x) { match (%x) { Cons(_) => 1 } }", "Cons has 2 fields, the pattern 1", "Cons(_)", "_ matches"),
    (LIST + "def @f(%x) { match (%x) { Cons(_, _) -> 1 } }", "expected `=>` after a pattern, found `->`", "->", ""),
    (LIST + "def @f(%x) { match (%x) { 1 => 1 } }", "expected a pattern, found `1`", "1", "Cons(%h, %t)"),
    ("def @f(%x, %x) { %x }", "two parameters have the name `%x`", "%x", ""),
    ("def @f(x) { 1 }", "expected a parameter, found `x`", "x", "parameters are written %x"),
    ("def f(%x) { %x }", "expected the name of a function, found `f`", "f", "def @main"),
    ("def @f(%x) %x", "expected `{` before the body", "%x", ""),
    ("def @f(%x) { (%x).inff }", "expected `}` after the body, found `.`", ".", ""),
    ("def @f(%x) { %x; }", "a body ends in its result", ";", "leave out this one"),
    ("def @f(%x) { let %y = %x %y }", "expected `;` after the value of %y", "%x", ""),
    ("def @f(%x) { let y = %x; y }", "expected a variable after `let`, found `y`", "y", "let %x = …;"),
    ("def @f(%x) { if (%x) { 1 } }", "expected `else`", "}", "it needs both branches"),
    ("def @f(%x) { if %x { 1 } else { 2 } }", "expected `(` after `if`", "%x", ""),
    ("def @f(%x) { ref_write(%x) }", "ref_write takes 2 arguments, got 1", "ref_write", ""),
    ("def @f(%x) { (%x, }", "expected an expression, found `}`", "}", "expressions are"),
    ("def @f(%x) { %x + }", "expected an expression, found `}`", "}", ""),
    ("def @f(%x) { add(%x %x) }", "expected `)` after the arguments of a call, found `%x`", "%x", ""),
    ("def @f(%x) { %x } }", "expected a definition, found `}`", "}", "is there one too many?"),
    ("def @f(%x) { %x", "expected `}` after the body, found the end of the text", "", ""),
    ("%x + 1", "expected a definition, found `%x`", "%x", "parse_expr reads expressions"),
    ("def @f() { 1 }\ndef @f() { 2 }", "the function `@f` is defined twice", "@f", ""),
    ("type T { A }\ntype T { B }", "the data type `T` is defined twice", "T", ""),
    ("type T { A }\ntype U { A }", "the constructor `A` is one of the data type T already", "A", ""),
    ("extern", "expected `type` after `extern`, found the end of the text", "", ""),
    ("extern type T { A }", "an external type has no constructors", "{", "`extern`"),
    ("def @f() { 300i8 }", "300 is out of the range of int8", "300i8", "-128 to 127"),
    ("def @f() { -1u8 }", "-1 is out of the range of uint8", "1u8", "0 to 255"),
    ("def @f() { 99999999999999999999 }", "out of the range of int64", "99999999999999999999", ""),
    ("def @f() { 1e60f }", "1e+60 is out of the range of float32", "1e60f", "f64"),
    ("def @f() { 1.5i8 }", "`1.5i8` is no whole number", "1.5i8", "1.5f"),
    ("def @f() { 1q }", "`1q` is no number", "1q", "1.5f64"),
    ("def @f() { 1 ^ 2 }", "`^` means nothing here", "^", ""),
    ("def @f() { % }", "`%` is no name", "%", "%x is a variable"),
    ('def @f(k="open) { 1 }', "this string has no end", '"open) { 1 }', ""),
    ('def @f(k="a\\qb") { 1 }', "\\q stands for nothing in a string", '"a\\qb"', "for a backslash"),
    ("def @f() { 1 } /* open", "this comment has no end", "/*", "*/"),
    ("def @f() { meta[relay.Constant][0] }", "no entry 'relay.Constant'", "meta[relay.Constant][0]", "#[metadata]"),
    ("def @f() { 1 }\n#[metadata]\n{}", "an object with a list of nodes", "#[metadata]", ""),
    ("def @f() { 1 }\n#[metadata]\nx", "this is no JSON", "#[metadata]", ""),
    ("#oops\ndef @f() { 1 }", "this is no section", "#oops", "//"),
    ("def @f[A: Sort](%x: A) { %x }", "there is no kind `Sort`", "Sort", "Shape"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place", "hint"), ONE, ids=[case[0][-40:] for case in ONE])
def test_one_mistake(text, message, place, hint):
    error = error_of(text)
    assert "mistakes in the text" not in error.message, error
    assert message in error.message
    span = error.span
    line = span.source_line()
    assert line == (VERSION + text).split("\n")[span.line - 1]
    if place:
        assert line[span.column : span.end_column] == place
    assert hint in (error.hint or "")
    assert f"from_string:{span.line}:{span.column + 1}" in str(error)


def test_all_mistakes_are_listed():
    """Those of one definition do not hide those of the next, and one that is understood does not end its own."""
    error = error_of("""\
def @f(%x: Tensor[(2), flot32]) { %y + expp(%x) }
def @g(%x) { let = 1; %x }
type T { A(Unknown) }
def @h(%x) { sum(%x, axes=1) + @ff(%x) }
""")
    text = str(error)
    assert text.startswith("7 mistakes in the text:")
    parts = text.split("\n\n")[1:]
    wanted = ["flot32", "%y", "expp", "found `=`", "Unknown", "axes", "@ff"]
    assert [w in p.splitlines()[0] for w, p in zip(wanted, parts, strict=True)] == [True] * 7
    assert all("  --> from_string:" in p and "^" in p for p in parts)
    assert error.span.line == 2


def test_many_mistakes_are_counted():
    error = error_of("\n".join(f"def @f{i}(%x) {{ %y }}" for i in range(30)))
    assert str(error).startswith("30 mistakes") and str(error).endswith("and 10 more")


def test_a_mistake_is_said_once():
    assert "mistakes" not in error_of("def @f(%x) { %y + %y * %y }").message


def test_versions():
    with pytest.raises(ir.ScriptError, match="expected the version of the text") as caught:
        parse("def @f(%x) { %x }")
    assert '#[version = "0.0.5"]' in caught.value.hint
    with pytest.raises(ir.ScriptError, match=r"there is no version '0\.1\.0'"):
        parse('#[version = "0.1.0"]\ndef @f(%x) { %x }')
    with pytest.raises(ir.ScriptError, match="expected the version"):
        fromtext("fn (%x) { %x }")


def test_expressions():
    with pytest.raises(ir.ScriptError, match="expected the end of the text, found `%x`"):
        parse_expr("free_var %x; %x %x")
    with pytest.raises(ir.ScriptError, match=r"there is no variable `%x`") as caught:
        parse_expr("1 + %x", "mine")
    assert "mine:1:5" in str(caught.value)


def test_what_is_no_text():
    for read in (parse, parse_expr, fromtext):
        with pytest.raises(ir.ArgumentError, match="a string, got int"):
            read(3)


def test_mistakes_of_types_name_their_places():
    with pytest.raises(ir.UserError) as caught:
        parse(VERSION + "def @f(%x: float32) {\n  %x + 1\n}", "model.rly")
    assert "model.rly:3:3" in str(caught.value)


def test_python_errors_name_the_language():
    with pytest.raises(SyntaxError):
        parse(VERSION + "def")
    with pytest.raises(ir.ScriptError, match="Constant"):
        parse(VERSION + "def @f() { meta[relay.Constant][1] }", init_meta_table={"relay.Constant": [relay.const(1)]})
    with pytest.raises(ir.ScriptError, match="is no type"):
        parse(VERSION + "def @f(%x: meta[a][0]) { 1 }", init_meta_table={"a": [relay.const(1)]})
