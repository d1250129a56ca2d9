"""Nodes, spans, structural equality and hashes, modules, operators."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest

from pullback import tir
from pullback.ir import (
    GlobalVar,
    IRModule,
    NameNotFound,
    Op,
    Span,
    UserError,
    assert_structural_equal,
    span_scope,
    structural_equal,
    structural_hash,
)
from pullback.ir.node import Node, made_quickly, remembered
from pullback.ir.op import Signature, define
from pullback.ir.passes import Sequential, module_pass
from pullback.script import ir as I
from pullback.script import relax as R


def kernel(name: str = "i", factor: float = 2.0, size: int = 4, kind: str = "serial") -> tir.PrimFunc:
    a = tir.Buffer("A", (size,))
    return tir.PrimFunc("k", (a,), tir.loop(name, 4, lambda i: tir.store(a, i, a[i] * factor), kind))


def test_nodes_are_frozen_and_compare_by_identity():
    x = tir.Var("x")
    assert x != tir.Var("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.name = "y"


def test_spans():
    span = Span("model.py", 3, 8, 12, text="    y = f(x)")
    with span_scope(span):
        assert tir.Var("x").span is span
    assert tir.Var("x").span is None
    assert span.caret() == "  --> model.py:3:9\n    y = f(x)\n        ^^^^"


def test_structural_equality_ignores_names_and_spans():
    assert structural_equal(kernel("i"), kernel("j"))
    assert structural_hash(kernel("i")) == structural_hash(kernel("j"))
    assert not structural_equal(kernel(), kernel(factor=3.0))
    assert structural_hash(kernel()) != structural_hash(kernel(factor=3.0))
    with pytest.raises(ValueError, match="structures differ at root"):
        assert_structural_equal(kernel(), kernel(factor=3.0))


def test_variables_correspond_one_to_one():
    x, y = tir.Var("x"), tir.Var("y")
    assert structural_equal(x + y, y + x)
    assert not structural_equal(x + y, x + x)
    assert not structural_equal(x + x, x + y)


def test_modules():
    @I.ir_module
    class Module:
        I.module_attrs({"a": 1})

        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return x

    assert Module.get_attr("a") == 1
    changed = Module.with_attr("b", 2)
    assert "b" not in Module.attrs
    assert changed.without_attr("a").attrs == {"b": 2}
    changed["again"] = Module["main"]
    assert list(changed) == ["main", "again"]
    assert changed.get_global_var("again") == GlobalVar("again")
    assert changed.unique_name("main") == "main_1"
    assert list(Module) == ["main"]
    with pytest.raises(NameNotFound, match="the module has no function 'other'; it has: main"):
        Module["other"]


def test_module_hash_follows_content():
    a, b = IRModule({"k": kernel()}), IRModule({"k": kernel()})
    assert structural_hash(a) == structural_hash(b)
    assert structural_hash(a) != structural_hash(a.with_attr("x", np.float32(1)))


def test_signatures():
    signature = Signature.parse("x, w? | shape, axis=-1, keepdims=False")
    assert str(signature) == "x, w=None, shape, axis=-1, keepdims=False"
    assert signature.bind("op", (1,), {"shape": (2,)}) == ([1], {"shape": (2,), "axis": -1, "keepdims": False})
    with pytest.raises(UserError, match="op: argument 'shape' is missing"):
        signature.bind("op", (1,), {})
    with pytest.raises(UserError, match="op: argument 'axes' does not exist"):
        signature.bind("op", (1,), {"axes": 0})


def test_registry():
    assert Op.get("relax.add") is Op.get("add")
    with pytest.raises(NameNotFound, match="there is no operator 'no_such_op'"):
        Op.get("no_such_op")
    with pytest.raises(Exception, match=r"relax\.add is defined twice"):
        define("add", "x, y", infer=lambda x, y: x)


def test_passes_compose():
    rename = module_pass(lambda m: m.with_attr("seen", m.get_attr("seen", 0) + 1))
    assert Sequential([rename, rename])(IRModule()).attrs == {"seen": 2}


def test_an_optional_tensor_before_one_that_is_given() -> None:
    signature = Signature.parse("x, y?, z?")
    assert signature.bind("f", (1,), {}) == ([1], {})
    assert signature.bind("f", (1, 2, 3), {}) == ([1, 2, 3], {})
    with pytest.raises(UserError, match="f: argument 'y' cannot be left out when one after it is given"):
        signature.bind("f", (1,), {"z": 3})


def test_what_is_remembered_of_a_node_is_asked_once_and_goes_with_it():
    asked: list[str] = []

    @remembered
    def name_of(var: tir.Var) -> str:
        asked.append(var.name)
        return var.name

    var, same = tir.Var("n"), tir.Var("n")
    assert [name_of(var), name_of(var), name_of(same)] == ["n"] * 3
    assert asked == ["n", "n"], "nodes are told apart by identity"
    watched = weakref.ref(var)
    del var
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("column", [4, 500, 1990])
def test_a_message_shows_the_part_of_a_long_line_around_the_place(column):
    line = "    " + "".join(chr(ord("a") + k % 26) for k in range(1994))
    _, shown, caret = Span("f.py", 3, column, column + 5, line).caret().split("\n")
    assert len(shown) < 170
    assert shown[caret.index("^") :][: caret.count("^")] == line[column : column + 5]


X, Y = tir.Var("x"), tir.Var("y")
ONES = np.ones(3, np.float32)
PAIRS = {  # what differs in one thing
    "name of a field": ({"a": 1}, {"b": 1}),
    "number": ((1, 2), (1, 3)),
    "int and float": (1, 1.0),
    "int and bool": (1, True),
    "signs of zeros": (0.0, -0.0),
    "string": ("a", "b"),
    "length": ((1, 2), (1, 2, 2)),
    "nesting": (((1, 2), 3), (1, (2, 3))),
    "nothing": ((None, 1), (1, None)),
    "elements": (ONES, np.array([1, 1, 2], np.float32)),
    "elements of many": (np.ones(1000), np.concatenate([np.ones(999), [2.0]])),
    "dtype of the same bytes": (ONES.view(np.int32), ONES),
    "dtype": (ONES, ONES.astype(np.float64)),
    "shape": (np.ones((2, 3)), np.ones((3, 2))),
    "sign of a zero in an array": (np.array([0.0]), np.array([-0.0])),
    "which variables are the same": ((X, Y, X), (X, Y, Y)),
    "variables in another order": ((X, Y, X, Y), (X, Y, Y, X)),
    "dtype of a variable": (tir.Var("n", "int64"), tir.Var("n", "int32")),
    "kind of a node": (X + Y, X * Y),
    "kind of a loop": (kernel(), kernel(kind="vectorized")),
    "size of a buffer": (kernel(), kernel(size=5)),
    "attribute of a module": (IRModule({"k": kernel()}, {"a": 1}), IRModule({"k": kernel()}, {"a": 2})),
    "name of a function": (IRModule({"k": kernel()}), IRModule({"l": kernel()})),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_one_difference_is_seen(what):
    for a, b in (PAIRS[what], reversed(PAIRS[what])):
        assert structural_equal(a, a)
        assert structural_hash(a) == structural_hash(a)
        assert not structural_equal(a, b)
        assert structural_hash(a) != structural_hash(b)


def test_nan_is_nan():
    assert structural_equal(float("nan"), float("nan"))
    assert structural_hash((float("nan"),)) == structural_hash((float("nan"),))


def test_what_a_node_binds_is_its_own():
    """The same variable bound twice, one loop after the other, is as good as two variables."""
    a, i, j = tir.Buffer("A", (4,)), tir.Var("i"), tir.Var("j")

    def twice(first: tir.Var, second: tir.Var) -> tir.PrimFunc:
        loops = [tir.For(v, tir.as_expr(4), tir.store(a, v, 1.0)) for v in (first, second)]
        return tir.PrimFunc("k", (a,), tir.seq(*loops))

    assert structural_equal(twice(i, i), twice(i, j))
    assert structural_hash(twice(i, i)) == structural_hash(twice(i, j))


def test_nodes_are_made_as_dataclasses_are() -> None:
    """Positions, names, defaults, the span's default and what is checked after: as the generated ``__init__`` does."""

    @dataclasses.dataclass(frozen=True, eq=False)
    class Slow(Node):
        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("negative")

    @made_quickly
    @dataclasses.dataclass(frozen=True, eq=False)
    class Quick(Slow):
        values: float = 0.5

    assert vars(Quick(1)) == {**vars(Slow(1)), "values": 0.5}
    assert vars(Quick(1, "b", third=[3], values=2.0)) == {**vars(Slow(1, "b", [3])), "values": 2.0}
    assert Quick(1).third is not Quick(1).third
    span = Span("file.py", 3, 4, "text")
    with span_scope(span):
        assert Quick(1).span is span and Quick(1, span=None).span is None
    assert dataclasses.replace(Quick(1, "b"), first=2).second == "b"
    with pytest.raises(ValueError, match="negative"):
        Quick(-1)
    for wrong in ((), (1, "b", [], 0.5, None)):
        with pytest.raises(TypeError):
            Quick(*wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Quick(1).first = 2  # type: ignore[misc]
