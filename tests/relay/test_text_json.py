"""Programs as JSON: shared nodes once, spans and types kept, and no trust in what is read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pullback import ir, relay, tir
from pullback.ir.node import Span
from pullback.relay import adt, ty
from pullback.relay.infer import infer_module
from pullback.relay.prelude import Prelude
from pullback.relay.text import load_json, save_json

F32 = ty.TensorType((), "float32")


def again(node: object) -> object:
    """The node, saved and loaded."""
    return load_json(save_json(node))


def test_shared_nodes_are_saved_once():
    value = relay.var("x", F32)
    for _ in range(100):
        value = value + value
    text = save_json(value)
    assert len(json.loads(text)["nodes"]) < 110
    ir.assert_structural_equal(load_json(text), value)


def test_the_prelude_with_its_types():
    prelude = Prelude(ir.IRModule())
    prelude.mod.import_from_std("nat.rly")
    module = infer_module(prelude.mod)
    found = again(module)
    ir.assert_structural_equal(found, module)
    for name in module:
        assert ir.structural_equal(found[name].checked_type, module[name].checked_type)
    assert [c.tag for c in found.get_type("List")[1:]] == [0, 1]


def test_spans_are_kept():
    with ir.span_scope(Span("aten::relu_0", 0, 0)):
        expr = relay.exp(relay.var("x", F32))
    found = again(expr).span
    assert (found.file, found.line, found.column, found.text) == ("aten::relu_0", 0, 0, None)


@pytest.mark.parametrize(
    "node",
    [
        F32,
        ty.TensorType((2, ty.Any(), n := tir.Var("n", "int64"), n + 1), "bool"),
        ty.TensorType((tir.expr.Binary("floordiv", n, tir.IntImm(2)),)),
        ty.FuncType((a := ty.TypeVar("A"),), ty.RefType(a), (a,), (ty.TypeRelation("Broadcast", (a, a), 1),)),
        ty.TypeVar("S", ty.TypeKind.ShapeVar),
        adt.PatternTuple((adt.PatternWildcard(), adt.PatternVar(relay.var("x")))),
        relay.Call(relay.var("f"), (), {"a": (1, 2.5, None, {"b": float("inf")}), "c": "é\n", "d": 1 << 80}),
        relay.Tuple((relay.const(np.arange(6, dtype="int8").reshape(2, 3)), relay.const([True, False]))),
        relay.const(np.array([1.5, float("nan"), -0.0]), "bfloat16"),
        relay.op.get("nn.dense"),
        ir.IRModule({}, {"a": 1}),
    ],
    ids=lambda node: type(node).__name__,
)  # fmt: skip
def test_nodes(node):
    found = again(node)
    assert type(found) is type(node)
    ir.assert_structural_equal(found, node)


def test_constants_are_not_views_of_the_text():
    found = again(relay.const(np.arange(3.0)))
    np.testing.assert_array_equal(found.data.numpy(), [0, 1, 2])
    assert found.data.dtype == "float64"


def test_deep_programs():
    expr = relay.var("x")
    for _ in range(5000):
        expr = relay.exp(expr)
    ir.assert_structural_equal(again(expr), expr)


def test_what_cannot_be_saved():
    with pytest.raises(ir.UserError, match="object cannot be saved"):
        save_json(object())
    with pytest.raises(ir.UserError, match="set cannot be saved"):
        save_json(relay.Call(relay.var("f"), (), {"a": {1, 2}}))
    with pytest.raises(ir.UserError, match="operator of the graph IR"):
        save_json(ir.Op.get("nn.relu"))


EMPTY = {"attrs": {}}
VAR = {"kind": "Var", "name": "x", "type_annotation": None}


def held(*nodes: object, root: object = None, **more: object) -> str:
    """The JSON of these nodes."""
    root = {"node": len(nodes) - 1} if root is None else root
    return json.dumps({"format": "pullback.relay", "version": 1, "nodes": list(nodes), "root": root, **more})


def bytes_of(dtype: str, size: int, data: str) -> str:
    """The JSON of a constant."""
    return held({"kind": "Constant", "data": {"dtype": dtype, "shape": [size], "data": data}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no JSON"),
        ("[" * 100_000, "this is no JSON"),
        ("[1, 2]", "an object with a list of nodes"),
        ('{"nodes": 3}', "an object with a list of nodes"),
        (held(VAR, version=2), "this is version 2 of the format, not 1"),
        (held(VAR, format="onnx"), "its format is 'onnx'"),
        (held(3), "node 0 (3): a node is an object"),
        (held({"kind": "Evil"}), "node 0 ('Evil'): there is no such kind of node"),
        (held({"kind": ["Var"]}), "there is no such kind of node"),
        (held({"kind": "Var", "name": "x"}), "node 0 ('Var'): the field 'type_annotation' is missing"),
        (held({**VAR, "name": 3}), "the field 'name' must be a string"),
        (held({**VAR, "extra": 3}), "there is no field 'extra'"),
        (held({**VAR, "type_annotation": {"node": 0}}), "there is no node 0 before this one"),
        (held({**VAR, "type_annotation": {"node": True}}), "there is no node True"),
        (held(VAR, {**VAR, "type_annotation": {"node": 0}}), "the field 'type_annotation' must be Type or null"),
        (held(VAR, {**VAR, "checked_type": {"node": 0}}), "'checked_type' must be a type"),
        (held({**VAR, "span": ["a", 1]}), "a span is a file, a line"),
        (held({"kind": "TensorType", "shape": [-1], "dtype": "int8"}), "a size cannot be negative"),
        (held({"kind": "TensorType", "shape": [1], "dtype": "int9"}), "unknown dtype 'int9'"),
        (held({"kind": "TensorType", "shape": 3, "dtype": "int8"}), "the field 'shape' must be a list of a size"),
        (held({"kind": "Op", "name": "no.such.op"}), "there is no relay operator 'no.such.op'"),
        (held({"kind": "Op", "name": 3}), "an operator has a name"),
        (held({"kind": "TypeVar", "name": "A", "kind_": 17}), "the field 'kind' must be a kind of type"),
        (held({"kind": "IRModule", "functions": {"attrs": {"f": 1}}, "types": [], "attrs": EMPTY}), "a module has"),
        (held(VAR, root={"node": 9}), "there is no node 9"),
        (held(VAR, root={"else": 9}), "stands for no value"),
        (bytes_of("int8", 4, "AAA="), "does not have 2 bytes"),
        (bytes_of("int8", 1 << 60, ""), "does not have 0 bytes"),
        (bytes_of("bool", 1, "Ag=="), "other bytes than 0 and 1"),
        (bytes_of("int8", 1, "?"), "no base64"),
        (bytes_of("str", 1, ""), "there is no dtype 'str'"),
        (held({"kind": "Constant", "data": 3}), "the field 'data' must be Tensor"),
    ],
)  # fmt: skip
def test_damaged_json(text, message):
    with pytest.raises(ir.ScriptError) as caught:
        load_json(text)
    assert message in str(caught.value)


def test_deep_attributes():
    """Deeper than Python calls functions by default; JSON itself is read."""
    deep = json.loads("[" * 900 + "]" * 900)
    function = {"kind": "Function", "params": [], "body": {"node": 0}, "ret_type": None, "type_params": []}
    value = load_json(held(VAR, {**function, "attrs": {"attrs": {"a": deep}}})).attrs.a
    for _ in range(899):
        (value,) = value
    assert value == ()


def test_the_names_of_the_ir():
    assert ir.load_json(ir.save_json(F32)) == F32
    assert relay.load_json(relay.save_json(F32)) == F32


def test_what_is_no_text():
    with pytest.raises(ir.ScriptError, match="is a string, got bytes"):
        load_json(b"{}")
