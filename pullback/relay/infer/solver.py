"""The solver: unknown types, what is known of them, and constraints that wait for more.

An :class:`~pullback.relay.ty.IncompleteType` is an unknown. Binding one to another makes both the same; bound to a type
it *is* that type, and it may only change by sizes that become ``Any``. Two relations of types are established:

    equal(a, b)        they are one type
    flow(src, dst)     a value of ``src`` stands where ``dst`` is expected: only ``dst`` gives way

In both a size that is not known fits every other. ``flow(…, widen=True)`` takes different sizes for one that is not
known: so the branches of an ``If`` join. A constraint is a function that is called again whenever an unknown that it
watches changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    same_size,
)
from pullback.relay.type_visitor import TypeMutator, TypeVisitor, same_or, substitute

_LEAVES = (TensorType, TypeVar, GlobalTypeVar)
_FLOW, _WIDEN, _EQUAL = range(3)


class Mismatch(Exception):
    """Two types that do not fit; ``kind`` says in what: ``"shape"``, ``"dtype"`` or ``"type"``."""

    def __init__(self, why: str, kind: str = "type") -> None:
        super().__init__(why)
        self.why, self.kind = why, kind


class Constraint:
    """What is to hold between types: ``run`` establishes as much of it as their parts that are known allow."""

    def __init__(self) -> None:
        self.watched: set[IncompleteType] = set()
        self.queued = False

    def run(self) -> None:
        raise NotImplementedError


class Solver:
    def __init__(self) -> None:
        self.bound: dict[IncompleteType, Type] = {}
        self.excused: set[IncompleteType] = set()  # unknowns that nobody need find: an error was reported instead
        self._watchers: dict[IncompleteType, list[Constraint]] = {}
        self._queue: deque[Constraint] = deque()

    # unknowns

    def root(self, type_: Type) -> Type:
        """The unknown that an unknown is the same as; another type is itself."""
        bound = self.bound
        found = type_
        while isinstance(found, IncompleteType):
            other = bound.get(found)
            if not isinstance(other, IncompleteType):
                break
            found = other
        while type_ is not found and isinstance(type_, IncompleteType):  # the next search is short
            step = bound[type_]
            if step is not found:
                bound[type_] = found
            type_ = step
        return found

    def known(self, type_: Type) -> Type:
        """The type, as far as it is known: an IncompleteType where nothing is. Parts of it may be unknowns."""
        found = self.root(type_)
        return self.bound.get(found, found) if isinstance(found, IncompleteType) else found

    def resolve(self, type_: Type) -> Type:
        """The type with all that is known put in."""
        return type_ if isinstance(type_, _LEAVES) else _Resolver(self).visit(type_)

    def final(self) -> Callable[[Type], Type]:
        """:meth:`resolve` of a solver to which nothing is added any more: it remembers what it has resolved."""
        resolver = _Resolver(self)
        return resolver.visit

    def unknowns(self, types: Iterable[Type]) -> tuple[set[IncompleteType], set[IncompleteType]]:
        """The unknowns that the types are made of, and those among them of which nothing is known."""
        walk = _Unknowns(self)
        for type_ in types:
            if not isinstance(type_, _LEAVES):
                walk.visit(type_)
        return walk.all, walk.open

    def excuse(self, type_: Type) -> None:
        """What is not known of the type is not to be reported."""
        self.excused |= self.unknowns([type_])[1]

    # constraints

    def watch(self, constraint: Constraint, unknowns: Iterable[IncompleteType]) -> None:
        for unknown in unknowns:
            if unknown not in constraint.watched:
                constraint.watched.add(unknown)
                self._watchers.setdefault(unknown, []).append(constraint)

    def _wake(self, unknown: IncompleteType) -> None:
        for constraint in self._watchers.get(unknown, ()):
            if not constraint.queued:
                constraint.queued = True
                self._queue.append(constraint)

    def solve(self) -> None:
        """Run the constraints whose types have changed, until none does."""
        while self._queue:
            constraint = self._queue.popleft()
            constraint.queued = False
            constraint.run()

    # binding

    def _bind(self, unknown: IncompleteType, type_: Type) -> None:
        if isinstance(type_, IncompleteType):
            for constraint in self._watchers.get(unknown, ()):
                self.watch(constraint, [type_])
            if unknown in self.excused and type_ not in self.bound:
                self.excused.add(type_)
        elif not isinstance(type_, _LEAVES) and unknown in self.unknowns([type_])[0]:
            raise Mismatch(f"a type cannot be a part of itself: {self.resolve(type_)}")
        self.bound[unknown] = type_
        if not isinstance(type_, IncompleteType) or type_ in self.bound:
            self._wake(unknown)

    def _rebind(self, unknown: Type, type_: Type, old: Type) -> None:
        if isinstance(unknown, IncompleteType) and type_ is not old:
            self.bound[unknown] = type_
            self._wake(unknown)

    def flow(self, src: Type, dst: Type, widen: bool = False) -> Type:
        """A value of ``src`` where ``dst`` is expected; returns the joined type. Mismatch where it does not fit."""
        return self._relate(src, dst, _WIDEN if widen else _FLOW)

    def equal(self, a: Type, b: Type) -> Type:
        """Make both one type, and return it. Mismatch where they differ."""
        return self._relate(a, b, _EQUAL)

    def _relate(self, a: Type, b: Type, how: int) -> Type:
        if a is b:
            return b
        a, b = self.root(a), self.root(b)
        if a is b:
            return b
        known_a, known_b = self.known(a), self.known(b)
        if isinstance(known_a, IncompleteType):
            self._bind(known_a, b)
            return b
        if isinstance(known_b, IncompleteType):
            self._bind(known_b, a if how == _EQUAL else known_a)
            return known_a
        joined = self._join(known_a, known_b, how)
        self._rebind(b, joined, known_b)
        if how == _EQUAL and isinstance(a, IncompleteType):
            if isinstance(b, IncompleteType):
                self._bind(a, b)
            else:
                self._rebind(a, joined, known_a)
        return joined

    # types of which something is known

    def _join(self, a: Type, b: Type, how: int) -> Type:
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return _join_tensors(a, b, how)
        if isinstance(a, TupleType) and isinstance(b, TupleType):
            if len(a.fields) != len(b.fields):
                raise Mismatch(f"a tuple of {len(a.fields)} against one of {len(b.fields)}")
            fields = self._relate_all(a.fields, b.fields, how)
            return b if fields is b.fields else TupleType(fields)
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            return self._join_functions(a, b)
        if isinstance(a, RefType) and isinstance(b, RefType):
            (value,) = self._relate_all((a.value,), (b.value,), _EQUAL)
            return b if value is b.value else RefType(value)
        a, b = _applied(a), _applied(b)
        if isinstance(a, TypeCall) and isinstance(b, TypeCall) and a.func == b.func and len(a.args) == len(b.args):
            args = self._relate_all(a.args, b.args, how)
            return b if args is b.args else TypeCall(b.func, args)
        if a is b or (type(a) is type(b) and a == b):
            return b
        raise Mismatch(f"{self.resolve(a)} against {self.resolve(b)}")

    def _relate_all(self, a: tuple[Type, ...], b: tuple[Type, ...], how: int) -> tuple[Type, ...]:
        joined = ((self._relate(x, y, how), y) for x, y in zip(a, b, strict=True))
        return same_or(b, tuple(y if isinstance(y, IncompleteType) else found for found, y in joined))

    def _join_functions(self, a: FuncType, b: FuncType) -> Type:
        if len(a.arg_types) != len(b.arg_types):
            raise Mismatch(f"a function of {_count(a)} against one of {_count(b)}")
        params = min(b.type_params, a.type_params, key=len)
        one, other = self._with_params(a, params), self._with_params(b, params)
        args = self._relate_all(one.arg_types, other.arg_types, _EQUAL)
        (result,) = self._relate_all((one.ret_type,), (other.ret_type,), _EQUAL)
        if other is b and args is b.arg_types and result is b.ret_type:
            return b
        return FuncType(args, result, params)

    def _with_params(self, function: FuncType, params: tuple[TypeVar, ...]) -> FuncType:
        """The function type with ``params`` for its first type parameters, and unknowns for the others."""
        if function.type_params == params:
            return function
        rest = function.type_params[len(params) :]
        return self.instantiate(function, (*params, *(IncompleteType() for _ in rest)))

    def instantiate(self, function: FuncType, types: tuple[Type, ...]) -> FuncType:
        """The function type with types for its type parameters."""
        if not function.type_params:
            return function
        whole = self.resolve(FuncType(function.arg_types, function.ret_type))
        found = substitute(whole, dict(zip(function.type_params, types, strict=True)))
        assert isinstance(found, FuncType)
        return found


def _count(function: FuncType) -> str:
    count = len(function.arg_types)
    return f"{count} argument{'s' * (count != 1)}"


def _applied(type_: Type) -> Type:
    """A data type without parameters is written with or without brackets."""
    return TypeCall(type_, ()) if isinstance(type_, GlobalTypeVar) else type_


def _join_tensors(a: TensorType, b: TensorType, how: int) -> TensorType:
    if a.shape == b.shape and a.dtype == b.dtype:
        return b
    if a.dtype != b.dtype:
        raise Mismatch(f"dtype {a.dtype} against {b.dtype}", "dtype")
    if a.ndim != b.ndim:
        raise Mismatch(f"{_axes(a)} against {_axes(b)}", "shape")
    sizes, different = [], []
    for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
        if isinstance(x, AnySize) or isinstance(y, AnySize):
            sizes.append(y if isinstance(y, AnySize) else x)
        elif same_size(x, y):
            sizes.append(y)
        elif how == _WIDEN:
            sizes.append(AnySize())
        elif isinstance(x, int) == isinstance(y, int):
            different.append(f"axis {axis} is {x} against {y}")
        else:
            sizes.append(x if isinstance(x, int) else y)  # a size that is a variable is what it is here
    if different:
        raise Mismatch(", ".join(different), "shape")
    return b if tuple(sizes) == b.shape else TensorType(tuple(sizes), b.dtype)


def _axes(tensor: TensorType) -> str:
    return f"{tensor.ndim} ax{'i' if tensor.ndim == 1 else 'e'}s"


class _Resolver(TypeMutator):
    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.done: dict[int, Type] = {}

    def visit(self, type_: Type) -> Type:
        if isinstance(type_, _LEAVES):
            return type_
        found = self.done.get(id(type_))
        if found is None:
            found = self.done[id(type_)] = super().visit(type_)
        return found

    def visit_incomplete_type(self, type_: IncompleteType) -> Type:
        known = self.solver.known(type_)
        return known if isinstance(known, IncompleteType) else self.visit(known)


class _Unknowns(TypeVisitor):
    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.all: set[IncompleteType] = set()
        self.open: set[IncompleteType] = set()
        self.seen: set[int] = set()

    def visit(self, type_: Type) -> None:
        if not isinstance(type_, _LEAVES) and id(type_) not in self.seen:
            self.seen.add(id(type_))
            super().visit(type_)

    def visit_incomplete_type(self, type_: IncompleteType) -> None:
        root = self.solver.root(type_)
        assert isinstance(root, IncompleteType)
        self.all.add(root)
        known = self.solver.bound.get(root)
        if known is None:
            self.open.add(root)
        else:
            self.visit(known)


Reporter = Callable[[Mismatch], None]


class Flow(Constraint):
    """A value of ``src`` stands where ``dst`` is expected, whatever becomes of ``src``."""

    def __init__(self, solver: Solver, src: Type, dst: Type, widen: bool, report: Reporter) -> None:
        super().__init__()
        self.solver, self.src, self.dst, self.widen, self.report = solver, src, dst, widen, report
        self.failed = False

    def run(self) -> None:
        if self.failed:
            return
        try:
            self.solver.flow(self.src, self.dst, self.widen)
        except Mismatch as mismatch:
            self.failed = True
            self.report(mismatch)
            return
        if not isinstance(self.src, _LEAVES):
            self.solver.watch(self, self.solver.unknowns([self.src])[0])
