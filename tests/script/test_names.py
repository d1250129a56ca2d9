"""Names of parameters, and strings in attributes, are read as they were, whatever is in them."""

from __future__ import annotations

import pytest

from pullback.ir import IRModule, ScriptError
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.script import from_source
from pullback.script.printer.names import identifier
from tests.helpers import round_trip

TEXTS = (
    "x\n", "", " ", "x y", "für", "变量", "a-b", "1x", "R", "I", "T", "cls", "def", "None", "layer1.weight", "a\x00b",
    "\ud800", "'", '"', "'\"", "\\", "\\n", "x" * 300, "_", "__step", "x\u2028y", "\x85", "ﬁ", "x²", "print", "range",
    "\r\n", "\t", "}", "{x}", "#", "\u202e", "🙂", "e\u0301",
)  # fmt: skip


def module(*names: str) -> IRModule:
    params = [Var(name, TensorStructInfo((2, 2))) for name in names]
    builder = BlockBuilder()
    with builder.function("backbone", params):
        with builder.dataflow():
            out = params[0]
            for param in params[1:]:
                out = builder.emit(op.add(out, param), param.name)
            out = builder.emit_output(op.exp(out))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_name_is_read_as_it_was(text: str) -> None:
    made = module(text, "w")
    round_trip(made)
    assert [p.name for p in from_source(made.script())["backbone"].params] == [text, "w"]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_string_of_an_attribute_is_read_as_it_was(text: str) -> None:
    attrs = {"key": text, "inner": {text: (text, [text])}}
    made = module("x").with_attrs(attrs)
    assert from_source(made.script()).attrs == attrs


def test_names_that_would_be_one_in_python() -> None:
    """Python reads ``ﬁ`` as ``fi``: they must not become one variable."""
    names = ["fi", "ﬁ", "a.b", "a_b", "a-b", "x²", "x2", *TEXTS, "w", "w"]
    made = module(*names)
    round_trip(made)
    assert [p.name for p in from_source(made.script())["backbone"].params] == names


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_identifiers(text: str) -> None:
    assert identifier(text).isidentifier() and identifier(identifier(text)) == identifier(text)


def test_functions_of_trainer_modules_are_called_by_their_names() -> None:
    found = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def __step(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        return cls.__step(x)
"""
    )
    assert list(found) == ["__step", "main"]
    round_trip(found)
    with pytest.raises(ScriptError, match="__stop"):
        from_source(found.script().replace("cls.__step", "cls.__stop"))
