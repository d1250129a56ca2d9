"""Random programs of relay, for properties of texts and of passes that take any program.

They are closed and well scoped, and share nodes between places, branches and functions; most of them have no types.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from pullback import ir, relay, tir
from pullback.relay import adt, ty
from pullback.relay.attrs import Attrs
from pullback.relay.op import registry

NAMES = (
    "x",
    "y",
    "x1",
    "aten::relu_0.weight",
    "layers.0.bias",
    "1",
    "",
    "a b",
    "é",
    "def",
    "n",
    "%",
    'q"\\',
    "x/y",
    "t.",
)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")
SPECIAL = (0.0, -0.0, 1.0, 0.1, 1e-5, 1e30, float("inf"), float("-inf"), float("nan"), 1 / 3)
TEXTS = ("", "a", "axis", "a.b", "if", "new\nline", '"', "\\", "\U0001f600", "é", "None", "x=1")
LIST, TREE = ty.GlobalTypeVar("List"), ty.GlobalTypeVar("Tree")
A = ty.TypeVar("A")
CONS, NIL = adt.Constructor("Cons", (A, LIST(A)), LIST), adt.Constructor("Nil", (), LIST)
LEAF = adt.Constructor("Leaf", (ty.TensorType((), "float32"),), TREE)
DATA_TYPES = {
    LIST: adt.TypeData(LIST, (A,), (CONS, NIL)),
    TREE: adt.TypeData(TREE, (), (LEAF, adt.Constructor("Fork", (LIST(TREE()),), TREE))),
}
OPS = ("add", "exp", "multiply", "negative")


class Maker:
    """Makes expressions; ``scope`` are those that may be used where one is made."""

    def __init__(self, seed: int, functions: list[str]) -> None:
        self.random, self.functions = random.Random(seed), functions
        self.size = tir.Var("n", "int64")

    def upto(self, most: int) -> range:
        """So many times."""
        return range(self.random.randint(0, most))

    def pick(self, values: Any) -> Any:
        return self.random.choice(list(values))

    def maybe(self) -> bool:
        return self.random.random() < 0.5

    def value(self, depth: int = 2) -> Any:
        """The value of an attribute."""
        kind = self.random.randint(0, 7 if depth else 5)
        if kind == 0:
            return self.pick([None, True, False, ty.Any()])
        if kind <= 2:
            return self.random.randint(-10, 10) if self.maybe() else self.random.randint(-(1 << 70), 1 << 70)
        if kind == 3:
            return self.pick(SPECIAL) if self.maybe() else self.random.gauss(0, 1e6)
        if kind <= 5:
            return self.pick(TEXTS)
        if kind == 6:
            return tuple(self.value(depth - 1) for _ in self.upto(3))
        return Attrs({self.pick(TEXTS): self.value(depth - 1) for _ in self.upto(2)})

    def attrs(self, most: int) -> dict[str, Any]:
        return {self.pick(TEXTS): self.value() for _ in self.upto(most)}

    def type(self, depth: int = 2) -> Any:
        kind = self.random.randint(0, 7 if depth else 1)
        if kind <= 1:
            sizes = (0, 3, ty.Any(), self.size, self.size + 1, tir.expr.Binary("floordiv", self.size, self.size * 2))
            return ty.TensorType(tuple(self.pick(sizes) for _ in self.upto(3)), self.pick(DTYPES))
        if kind == 2:
            return ty.TupleType(tuple(self.type(depth - 1) for _ in self.upto(2)))
        if kind == 3:
            return ty.RefType(self.type(depth - 1))
        if kind == 4:
            return ty.FuncType((self.type(depth - 1),), self.type(depth - 1))
        if kind == 5:
            var = ty.TypeVar(self.pick(NAMES), self.pick(ty.TypeKind))
            return ty.FuncType((var, self.type(depth - 1)), LIST(var), (var,))
        return LIST(self.type(depth - 1)) if kind == 6 else TREE()

    def maybe_type(self) -> Any:
        return self.type() if self.maybe() else None

    def constant(self) -> Any:
        dtype = self.pick(DTYPES)
        shape = tuple(self.random.randint(0, 2) for _ in self.upto(2))
        pool = SPECIAL if "float" in dtype else (0, 1)
        values = [self.pick(pool) for _ in range(int(np.prod(shape)))]
        with np.errstate(over="ignore"):
            return relay.const(np.array(values, "float64").reshape(shape), dtype)

    def var(self) -> Any:
        return relay.Var(self.pick(NAMES), self.maybe_type())

    def some(self, scope: list[Any], most: int = 3) -> tuple[Any, ...]:
        return tuple(self.pick(scope) for _ in self.upto(most))

    def expr(self, scope: list[Any], depth: int) -> Any:
        """An expression of those in the scope; what it is made of joins the scope."""
        for _ in range(self.random.randint(1, 4)):
            scope.append(self.node(scope, depth))
        return scope[-1]

    def node(self, scope: list[Any], depth: int) -> Any:
        kind = self.random.randint(0, 13 if depth > 0 else 8)
        if kind == 0:
            return self.constant()
        if kind == 1:
            return relay.Tuple(self.some(scope))
        if kind == 2:
            return relay.TupleGetItem(self.pick(scope), self.random.randint(0, 11))
        if kind == 3:
            return relay.RefCreate(self.pick(scope)) if self.maybe() else relay.RefRead(self.pick(scope))
        if kind == 4:
            return relay.RefWrite(self.pick(scope), self.pick(scope))
        if kind == 5:
            op = registry.get(self.pick(OPS))
            return relay.Call(op, tuple(self.pick(scope) for _ in op.signature.tensors))
        if kind == 6:
            callee = self.pick([self.pick(scope), relay.GlobalVar(self.pick(self.functions))])
            return relay.Call(callee, self.some(scope), self.attrs(2), tuple(self.type() for _ in self.upto(1)))
        if kind == 7:
            cons = relay.Call(CONS, (self.pick(scope), self.pick(scope)))
            return self.pick([cons, relay.Call(NIL, ()), relay.Call(NIL, (), {}, (self.type(),)), CONS, NIL])
        if kind == 8:
            return relay.GlobalVar(self.pick(self.functions))
        if kind == 9:
            return relay.If(self.pick(scope), self.expr(scope, depth - 1), self.expr(scope, depth - 1))
        if kind == 10:
            return self.let(scope, depth)
        if kind == 11:
            clauses = tuple(self.clause(scope, depth) for _ in range(2))
            return adt.Match(self.pick(scope), clauses, self.maybe())
        return self.function(scope, depth - 1)

    def let(self, scope: list[Any], depth: int) -> Any:
        var, inner = self.var(), list(scope)
        value = self.function([*inner, var], depth - 1) if self.maybe() else self.expr(inner, depth - 1)
        return relay.Let(var, value, self.expr([*inner, var, value], depth - 1))

    def clause(self, scope: list[Any], depth: int) -> Any:
        inner = list(scope)
        return adt.Clause(self.pattern(inner, 2), self.expr(inner, depth - 1))

    def pattern(self, scope: list[Any], depth: int) -> Any:
        kind = self.random.randint(0, 4 if depth else 1)
        if kind == 0:
            return adt.PatternWildcard()
        if kind == 1:
            scope.append(self.var())
            return adt.PatternVar(scope[-1])
        if kind == 2:
            return adt.PatternConstructor(NIL)
        fields = tuple(self.pattern(scope, depth - 1) for _ in range(2))
        return adt.PatternConstructor(CONS, fields) if kind == 3 else adt.PatternTuple(fields)

    def function(self, scope: list[Any], depth: int) -> Any:
        type_params = tuple(ty.TypeVar(self.pick(NAMES)) for _ in self.upto(1))
        params = tuple(self.var() for _ in self.upto(2)) + tuple(relay.Var("t", LIST(t)) for t in type_params)
        body = self.expr([*scope, *params, self.constant()], depth)
        return relay.Function(params, body, self.maybe_type(), type_params, self.attrs(1))


def module(seed: int) -> ir.IRModule:
    """A module of data types and of functions that may call one another."""
    names = random.Random(seed).sample([n for n in NAMES if n], 3)
    maker = Maker(seed, names)
    functions = {}
    for name in names:
        maker.size = tir.Var("n", maker.pick(["int64", "int32"]))
        functions[name] = maker.function([], 3)
    return ir.IRModule(functions, maker.attrs(1), DATA_TYPES)
