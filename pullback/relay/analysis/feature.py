"""Which constructs of the language a program uses."""

# ruff: noqa: N815  the features have the reference's names

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.adt import Constructor, Match
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relay.visitor import children


class Feature(IntEnum):
    """A construct of the language, with the reference's numbers. ``fGraph``: something that is no atom stands at
    several places. ``fLetRec``: a ``Let`` binds a variable that its value uses."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


_FEATURES: tuple[tuple[type, Feature], ...] = (
    (Var, Feature.fVar),
    (GlobalVar, Feature.fGlobalVar),
    (Constant, Feature.fConstant),
    (Tuple, Feature.fTuple),
    (TupleGetItem, Feature.fTupleGetItem),
    (Function, Feature.fFunction),
    (Op, Feature.fOp),
    (Call, Feature.fCall),
    (Let, Feature.fLet),
    (If, Feature.fIf),
    (RefCreate, Feature.fRefCreate),
    (RefRead, Feature.fRefRead),
    (RefWrite, Feature.fRefWrite),
    (Constructor, Feature.fConstructor),
    (Match, Feature.fMatch),
)
_ATOMS = (Var, GlobalVar, Op, Constant, Constructor)


class _Detector:
    def __init__(self) -> None:
        self.found: dict[Any, Feature | None] = {}  # of each node
        self.extra: set[Feature] = set()
        self._bound: set[Var] = set()  # variables whose values are being visited

    def visit(self, expr: Any) -> None:
        todo: list[Any] = [expr]
        while todo:
            task = todo.pop()
            if isinstance(task, _Close):
                self._bound.discard(task.variable)
            elif task in self.found:
                self._again(task)
            else:
                todo.extend(reversed(self._first(task)))

    def _again(self, node: Any) -> None:
        if not isinstance(node, _ATOMS):
            self.extra.add(Feature.fGraph)
        elif isinstance(node, Var) and node in self._bound:
            self.extra.add(Feature.fLetRec)

    def _first(self, node: Any) -> tuple[Any, ...]:
        if isinstance(node, Function) and node.attrs.get("Primitive"):  # what is inside is one operator
            self.found[node] = None
            return ()
        self.found[node] = next(feature for kind, feature in _FEATURES if isinstance(node, kind))
        if isinstance(node, Let):
            self._bound.add(node.variable)
            self.found.setdefault(node.variable, Feature.fVar)
            return node.value, _Close(node.variable), node.body
        if isinstance(node, Var) and node in self._bound:
            self.extra.add(Feature.fLetRec)
        return children(node)


class _Close:
    def __init__(self, variable: Var) -> None:
        self.variable = variable


def detect_feature(a: Any, b: Any = None) -> set[Feature]:
    """The constructs that an expression, a module, or both together use.

    >>> from pullback.relay.expr import var
    >>> x = var("x", shape=())
    >>> sorted(f.name for f in detect_feature(Function((x,), x)))
    ['fFunction', 'fVar']
    """
    if isinstance(a, IRModule) and isinstance(b, IRModule):
        raise ArgumentError("detect_feature takes an expression, a module, or one of each", hint="not two modules")
    found: set[Feature] = set()
    for program in (a, b):
        if isinstance(program, IRModule):
            exprs: Iterable[Any] = [f for f in program.functions.values() if isinstance(f, Function)]
        else:
            exprs = [] if program is None else [program]
        for expr in exprs:
            if not isinstance(expr, (Expr, Op)):
                raise ArgumentError(f"detect_feature takes an expression or a module, got {type(expr).__name__}")
            detector = _Detector()
            detector.visit(expr)
            found |= {f for f in detector.found.values() if f is not None} | detector.extra
    return found


def check_features(program: Any, allowed: Iterable[Feature], where: str) -> None:
    """Raise a UserError that names what the program uses beyond ``allowed``; ``where`` says what cannot take it."""
    beyond = sorted(detect_feature(program) - set(allowed))
    if beyond:
        raise UserError(f"{where} cannot take {', '.join(f.name.removeprefix('f') for f in beyond)}")
