"""Random programs with branches, loops and closures, for whatever compiles or differentiates them.

    module, arguments = program(seed)          # main(a, v, m, n) gives a float64 scalar

The same seed gives the same program. It nests ifs and all three loops, which read the variables around them, carry
floats, vectors and counters, and call functions that variables stand for, some of which call themselves. Values stay
small. Of loops whose number of steps only running tells, some have ``max_steps`` and some do not: what these save for a
gradient lies in boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Call, Function, If, Tuple, Var
from pullback.relax.expr import VarBinding
from pullback.relax.struct_info import FuncStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from pullback.script import relax as R

SCALAR, VECTOR = TensorStructInfo((), "float64"), TensorStructInfo((3,), "float64")
MATRIX, COUNT = TensorStructInfo((4, 3), "float64"), TensorStructInfo((), "int64")


def program(seed: int, depth: int = 3) -> tuple[IRModule, list[np.ndarray]]:
    """A module, and arguments for ``main``."""
    rng = np.random.default_rng(seed)
    params = [Var("a", SCALAR), Var("v", VECTOR), Var("m", MATRIX), Var("n", COUNT)]
    writer = _Writer(rng)
    with writer.builder.function("main", params):
        scope = writer.block(list(params), depth)
        floats = [x for x in scope if x.struct_info.dtype == "float64"]
        writer.builder.emit_func_output(writer.total(floats))
    arguments = [rng.normal(), rng.normal(size=3), rng.normal(size=(4, 3))]
    return writer.builder.get(), [*map(np.asarray, arguments), np.array(rng.integers(0, 4))]


class _Writer:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.builder = rng, BlockBuilder()

    def pick(self, values: Sequence[Any]) -> Any:
        return values[self.rng.integers(len(values))]

    def value(self, scope: Sequence[Any], info: StructInfo) -> Any:
        """A value of the scope of this type; later ones are likelier."""
        found = [x for x in scope if x.struct_info == info]
        return found[max(self.rng.integers(len(found), size=2))]

    def emit(self, value: Any) -> Any:
        return self.builder.emit(value)

    def total(self, values: Sequence[Any]) -> Any:
        sums = [self.emit(x if x.struct_info.ndim == 0 else R.sum(R.sin(x))) for x in values]
        total = sums[0]
        for x in sums[1:]:
            total = self.emit(total + x)
        return total

    # -- statements

    def block(self, scope: list[Any], depth: int) -> list[Any]:
        """The scope after some statements."""
        for _ in range(self.rng.integers(1, 4)):
            kinds = [self.straight]
            if depth:
                kinds += [self.branch, *[self.loop] * 3, self.closure, self.recursion]
            scope = [*scope, *self.pick(kinds)(scope, depth)]
        return scope

    def straight(self, scope: list[Any], depth: int) -> list[Any]:
        x, y = self.value(scope, SCALAR), self.value(scope, SCALAR)
        v, w = self.value(scope, VECTOR), self.value(scope, VECTOR)
        scalars: list[Callable[[], Any]] = [
            lambda: R.sin(x * y),
            lambda: R.tanh(x + y),
            lambda: x * 0.5 + y * 0.25,
            lambda: R.sqrt(x * x + 1.0) * 0.7,
            lambda: R.tanh(R.sum(v * w)),
            lambda: R.sin(R.max(v)) * x * 0.5,
        ]
        vectors: list[Callable[[], Any]] = [
            lambda: R.tanh(v * x + w),
            lambda: R.sin(v) * w * 0.5,
            lambda: R.where(v > x, v * 0.5, R.tanh(w)),
            lambda: v * 0.5 - R.tanh(w * y),
            lambda: R.concat([v[1:], R.reshape(R.tanh(x), (1,))], axis=0),
        ]
        return [self.emit(self.pick(scalars)()), self.emit(self.pick(vectors)())]

    def branch(self, scope: list[Any], depth: int) -> list[Any]:
        condition = self.emit(self.condition(scope))
        infos = [SCALAR, VECTOR][: self.rng.integers(1, 3)]
        then, otherwise = (self.body(scope, depth - 1, infos) for _ in range(2))
        return self.items(If(condition, then, otherwise))

    def condition(self, scope: Sequence[Any]) -> Any:
        x = self.value(scope, SCALAR)
        return self.pick([lambda: x > 0.1, lambda: R.sin(x * 3.0) < 0.2, lambda: self.value(scope, COUNT) > 1])()

    def closure(self, scope: list[Any], depth: int) -> list[Any]:
        """A function that reads the scope, called twice."""
        function = self.emit(self.function([SCALAR, VECTOR], scope, depth - 1, [SCALAR, VECTOR]))
        once = self.items(Call(function, (self.value(scope, SCALAR), self.value(scope, VECTOR))))
        return self.items(Call(function, tuple(once)))

    def loop(self, scope: list[Any], depth: int) -> list[Any]:
        carried = [SCALAR, *self.pick([[], [VECTOR], [COUNT], [VECTOR, COUNT]])]
        first = [self.value(scope, info) for info in carried]
        checkpoint = self.pick([None, None, 1, 2, True])
        kind = self.pick([self.while_loop, self.fori_loop, self.scan])
        return kind(scope, depth - 1, carried, first, checkpoint)

    def while_loop(self, scope: list[Any], depth: int, carried: Any, first: Any, checkpoint: Any) -> list[Any]:
        most = int(self.rng.integers(1, 6))
        limit, carried = self.value(scope, COUNT), [*carried, COUNT]
        counter = len(carried) - 1

        def going_on(values: list[Any]) -> Any:
            return self.emit(R.logical_and(values[counter] < R.minimum(limit, R.const(most, "int64")), values[0] < 2.0))

        def step(values: list[Any]) -> Any:
            inner = self.block([*scope, *values], depth)
            return Tuple((*self.results(inner, carried[:-1]), self.emit(values[counter] + R.const(1, "int64"))))

        asked, body = self.written(carried, going_on), self.written(carried, step)
        zero = R.const(0, "int64")
        return self.items(R.while_loop(asked, body, (*first, zero), **self.limited(most, checkpoint)))

    def limited(self, most: int, checkpoint: Any) -> dict[str, Any]:
        """The options of a loop that has a greatest number of steps, or that of one that has none."""
        if self.rng.integers(2):
            return {"checkpoint_every": None if checkpoint is True else checkpoint}
        return {"max_steps": most, "checkpoint_every": checkpoint}

    def fori_loop(self, scope: list[Any], depth: int, carried: Any, first: Any, checkpoint: Any) -> list[Any]:
        body = self.function([COUNT, *carried], scope, depth, carried)
        if self.rng.integers(2):
            count = int(self.rng.integers(0, 6))
            return self.items(R.fori_loop(count, body, tuple(first), checkpoint_every=checkpoint))
        count = self.emit(R.minimum(self.value(scope, COUNT), R.const(5, "int64")))
        return self.items(R.fori_loop(count, body, tuple(first), **self.limited(5, checkpoint)))

    def scan(self, scope: list[Any], depth: int, carried: Any, first: Any, checkpoint: Any) -> list[Any]:
        given = self.pick([(), (MATRIX,), (MATRIX, MATRIX)])
        xs = [self.emit(self.value(scope, info) * self.value(scope, SCALAR)) for info in given]
        ys = self.pick([[], [SCALAR], [VECTOR, SCALAR]])

        def step(values: list[Any]) -> Any:
            inner = self.block([*scope, *values], depth)
            return Tuple((Tuple(tuple(self.results(inner, carried))), Tuple(tuple(self.results(inner, ys)))))

        body = self.written([*carried, *[VECTOR] * len(xs)], step)
        attrs = {"length": None if xs else int(self.rng.integers(1, 5)), "reverse": bool(self.rng.integers(2))}
        result = self.emit(R.scan(body, tuple(first), tuple(xs), checkpoint_every=checkpoint, **attrs))
        stacks = self.items(result[1])
        return [
            *self.items(result[0]),
            *(s if s.struct_info == MATRIX else self.emit(R.sum(s, axis=0)) for s in stacks),
        ]

    def recursion(self, scope: list[Any], depth: int) -> list[Any]:
        """A function that calls itself, once or twice, in a loop or by way of a closure, and reads the scope."""
        infos = [SCALAR, VECTOR]
        itself = Var(f"f{self.rng.integers(1 << 30)}", FuncStructInfo((COUNT, *infos), TupleStructInfo(tuple(infos))))
        one = R.const(1, "int64")

        def write(values: list[Any]) -> Any:
            condition = self.emit(R.logical_and(values[0] > R.const(0, "int64"), values[1] < 2.0))
            inner = [*scope, *values]
            again = self.pick([self.called, self.called, self.called_in_loop, self.called_by_closure])

            def going_on() -> Any:
                before = self.block(inner, depth - 1)
                calls = [again(itself, self.emit(values[0] - one), before) for _ in range(self.rng.integers(1, 3))]
                after = [*before, *(item for call in calls for item in call)]
                return Tuple(tuple(self.results(self.straight(after, 0) + after, infos)))

            with self.builder.inner():
                then = self.builder.finish(going_on())
            return Tuple(tuple(self.items(If(condition, then, self.body(inner, depth - 1, infos)))))

        self.builder.emit_binding(VarBinding(itself, self.written([COUNT, *infos], write)))
        first = self.emit(R.minimum(self.value(scope, COUNT), R.const(3, "int64")))
        return self.called(itself, first, scope)

    def called(self, function: Any, count: Any, scope: Sequence[Any]) -> list[Any]:
        x, v = self.value(scope, SCALAR), self.value(scope, VECTOR)
        return self.items(Call(function, (count, x, self.emit(R.tanh(v)))))

    def called_in_loop(self, function: Any, count: Any, scope: Sequence[Any]) -> list[Any]:
        infos = [SCALAR, VECTOR]

        def step(values: list[Any]) -> Any:
            return Tuple(tuple(self.results(self.called(function, count, [*scope, *values]), infos)))

        first = [self.value(scope, info) for info in infos]
        return self.items(R.fori_loop(2, self.written([COUNT, *infos], step), tuple(first)))

    def called_by_closure(self, function: Any, count: Any, scope: Sequence[Any]) -> list[Any]:
        def write(values: list[Any]) -> Any:
            return Tuple(tuple(self.called(function, count, [*scope, *values])))

        closure = self.emit(self.written([SCALAR], write))
        return self.items(Call(closure, (self.value(scope, SCALAR),)))

    # -- functions

    def written(self, infos: Sequence[StructInfo], write: Callable[[list[Any]], Any]) -> Function:
        params = [Var("p", info) for info in infos]
        with self.builder.inner():
            return Function(tuple(params), self.builder.finish(write(list(params))))

    def function(self, infos: Any, scope: list[Any], depth: int, results: Sequence[StructInfo]) -> Function:
        def write(values: list[Any]) -> Any:
            return Tuple(tuple(self.results(self.block([*scope, *values], depth), results)))

        return self.written(infos, write)

    def body(self, scope: list[Any], depth: int, results: Sequence[StructInfo]) -> Any:
        with self.builder.inner():
            return self.builder.finish(Tuple(tuple(self.results(self.block(scope, depth), results))))

    def results(self, scope: list[Any], infos: Sequence[StructInfo]) -> list[Any]:
        """Values of these types; floats are kept small."""
        found = []
        for info in infos:
            x = self.value(scope, info)
            counts = info.dtype == "int64"  # type: ignore[attr-defined]
            found.append(self.emit(x + R.const(0, "int64") if counts else self.pick([R.tanh, R.sin])(x)))
        return found

    def items(self, value: Any) -> list[Any]:
        whole = value if isinstance(value, Tuple) else self.emit(value)
        assert isinstance(whole.struct_info, TupleStructInfo)
        return [self.emit(x) for x in whole]
