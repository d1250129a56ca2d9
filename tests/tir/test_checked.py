"""No kernel of the user's, and no tensor expression, touches memory beside its buffers, and no index that is right is
refused. The oracle is Python: the same text, run on arrays that refuse what lies outside."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ShapeError, UserError
from pullback.ir.errors import ArgumentError
from pullback.relax.transform import Gradient
from pullback.script import from_source
from pullback.tir.checked import MOST_FLAGS, checked

HEAD = """
@I.ir_module
class M:
    @T.prim_func
    def k(x: T.Buffer((4, 3), "float32"), idx: T.Buffer((5,), "int32"), out: T.Buffer((5, 4), "float32")):
<body>

    @R.function
    def main(x: R.Tensor((4, 3), "float32"), idx: R.Tensor((5,), "int32")):
        y = R.call_tir(M.k, (x, idx), R.Tensor((5, 4), "float32"))
        return y
"""
X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def text_of(lines: list[str]) -> str:
    return HEAD.replace("<body>", "\n".join("        " + line for line in lines))


class Guarded:
    """An array that raises an IndexError where an index lies outside."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def place(self, index: Any) -> tuple[int, ...]:
        index = tuple(int(i) for i in (index if isinstance(index, tuple) else (index,)))
        if any(not 0 <= i < n for i, n in zip(index, self.array.shape, strict=True)):
            raise IndexError(index)
        return index

    def __getitem__(self, index: Any) -> Any:
        return self.array[self.place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self.place(index)] = value


def by_python(lines: list[str], x: np.ndarray, idx: np.ndarray) -> np.ndarray | None:
    """What the text gives as Python; None where an index is outside. It goes on to the end, as kernels do: what else
    lies outside does not matter."""
    words = SimpleNamespace(
        parallel=range,
        vectorized=range,
        unrolled=range,
        int64=int,
        float32=np.float32,
        float64=np.float64,
        min=min,
        max=max,
    )
    out = np.zeros((5, 4), x.dtype)
    names = {"T": words, "x": Guarded(x), "idx": Guarded(idx), "out": Guarded(out)}
    try:
        exec("\n".join(lines), names)
    except IndexError:
        return None
    return out


def by_us(lines: list[str], target: str, x: np.ndarray, idx: np.ndarray) -> np.ndarray | None:
    try:
        return np.array(pullback.compile(from_source(text_of(lines)), target).function("main")(x, idx))
    except (ArgumentError, ShapeError) as error:  # while it runs, or before
        assert "outside" in str(error), error
        return None


def agree(lines: list[str], idx: list[int], target: str) -> None:
    given = np.array(idx, np.int32)
    expected, found = by_python(lines, X, given), by_us(lines, target, X, given)
    assert (expected is None) == (found is None), f"{expected}, {found}\n" + "\n".join(lines)
    if expected is not None:
        np.testing.assert_array_equal(found, expected, "\n".join(lines))


PROGRAMS = {
    "gather": ["for i in range(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"],
    "gather in parallel": ["for i in T.parallel(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"],
    "gather in lanes": ["for i in T.vectorized(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"],
    "gather, written out": ["for i in T.unrolled(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"],
    "scatter": ["for i in range(5):", "    out[T.int64(idx[i]), 2] = out[T.int64(idx[i]), 2] + T.float32(1)"],
    "scatter in lanes": ["for i in T.vectorized(5):", "    out[T.int64(idx[i]), 2] = T.float32(1)"],
    "indices of indices": ["for i in range(5):", "    out[i, 0] = T.float32(idx[T.int64(idx[i])])"],
    "a name": ["for i in range(5):", "    row = T.int64(idx[i]) + 1", "    out[i, 3] = x[row, 0]"],
    "a condition": [
        "for i in range(5):", "    if T.int64(idx[i]) >= 0 and x[T.int64(idx[i]), 0] > T.float32(1):",
        "        out[i, 1] = T.float32(1)",
    ],
    "a guard": [
        "for i in range(5):", "    row = T.int64(idx[i])", "    if row >= 0 and row < 4:",
        "        out[i, 0] = x[row, 2]",
    ],
    "a guard from the other side": [
        "for i in range(5):", "    row = T.int64(idx[i])", "    if row < 0 or row >= 4:",
        "        out[i, 0] = T.float32(5)",
        "    else:", "        out[i, 0] = x[row, 2]",
    ],
    "a choice": ["for i in range(5):", "    out[i, 0] = x[i - 1, 0] if i > 0 else T.float32(7)"],
    "a choice of places": [
        "for i in range(5):", "    out[i, 0] = x[T.int64(idx[i]) if i < 3 else 0, 0] if i > 0 else T.float32(7)",
    ],
    "clamped": ["for i in range(5):", "    out[i, 0] = x[T.max(T.min(T.int64(idx[i]), 3), 0), 0]"],
    "around": ["for i in range(5):", "    out[i, 0] = x[(T.int64(idx[i]) + 8) % 4, 0]"],
    "an extent": ["for i in range(5):", "    for j in range(T.int64(idx[i])):", "        out[i, j] = x[j, 0]"],
    "a triangle": ["for i in range(4):", "    for j in range(i):", "        out[i, j] = x[i - 1 - j, 2 - j // 2]"],
    "lanes of different lengths": [
        "for i in T.vectorized(5):", "    for j in range(T.int64(idx[i])):", "        out[i, j] = x[j, 0]",
    ],
    "lanes of which some have loops": [
        "for i in T.vectorized(5):", "    if idx[i] > 1:", "        for j in range(T.int64(idx[i])):",
        "            out[i, j] = x[T.int64(idx[i]), 2]",
    ],
    "lanes of a length from data": [
        "n = T.int64(idx[1])", "for i in T.vectorized(n):", "    out[i, 1] = x[T.int64(idx[i]), 2]",
    ],
    "the last one": ["for i in range(5):", "    out[4 - i, 3] = x[(4 - i) // 2, i % 3]"],
}  # fmt: skip
INDICES = [[0, 1, 2, 3, 0], [3, 2, 1, 0, 4], [0, -1, 2, 3, 1], [1, 1, 1, 1, 1], [2**31 - 1, -(2**31), 0, 0, 0]]


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, target: str) -> None:
    for idx in INDICES:
        idx = [min(n, 100) for n in idx]  # some are lengths of loops
        agree(PROGRAMS[name], idx, target)


def test_what_is_proven_is_not_checked() -> None:
    for name in ("a guard", "a guard from the other side", "a choice", "clamped", "a triangle", "the last one"):
        kernel = from_source(text_of(PROGRAMS[name]))["k"]
        assert checked(kernel)[1] == (), name


class Drawn:
    """A random program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names: list[str] = []
        self.numbers = itertools.count()

    def index(self, depth: int) -> str:
        r = self.r
        kind = r.randrange(9) if depth else r.randrange(3)
        if kind == 0 or (kind == 1 and not self.names):
            return str(r.randrange(-1, 5))
        if kind <= 1:
            return r.choice(self.names)
        if kind == 2:
            return f"T.int64(idx[{self.place(0, 5) if depth else r.randrange(5)}])"
        a, b = self.index(depth - 1), self.index(depth - 1)
        if kind == 3:
            return f"({a} {r.choice('+-')} {b})"
        if kind == 4:
            return f"({a} * {r.choice([2, 3, -1])})"
        if kind == 5:
            return f"({a} {r.choice(['//', '%'])} {r.choice([2, 3, 4])})"
        if kind == 6:
            return f"T.{r.choice(['min', 'max'])}({a}, {b})"
        if kind == 7:
            return f"T.max(T.min({a}, {r.choice([2, 3])}), 0)"
        return f"({a} if {self.condition(depth - 1)} else {b})"

    def condition(self, depth: int) -> str:
        r = self.r
        if depth and r.random() < 0.3:
            return f"({self.condition(depth - 1)} {r.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if depth and r.random() < 0.15:
            return f"(not {self.condition(depth - 1)})"
        if r.random() < 0.25:
            return f"({self.value(0)} > T.float32(3))"
        return f"({self.index(depth and 1)} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {self.index(0)})"

    def value(self, depth: int) -> str:
        r = self.r
        if depth and r.random() < 0.4:
            return f"({self.value(depth - 1)} if {self.condition(1)} else {self.value(depth - 1)})"
        if r.random() < 0.2:
            return f"T.float32({self.index(1)})"
        return f"x[{self.place(depth, 4)}, {self.place(depth, 3)}]"

    def place(self, depth: int, size: int) -> str:
        """An index of an axis, which is mostly inside."""
        kind = self.r.random()
        if kind < 0.12:
            return self.index(depth)
        if kind < 0.4:
            return str(self.r.randrange(size))
        return f"({self.index(depth)} % {size})" if kind < 0.7 else f"T.max(T.min({self.index(depth)}, {size - 1}), 0)"

    def block(self, depth: int) -> list[str]:
        r = self.r
        kind = r.randrange(5) if depth else 4
        before = list(self.names)
        if kind <= 1:
            name = f"i{next(self.numbers)}"
            extent = r.choice(["2", "3", "4", "5", *self.names[:1], f"T.min({self.index(1)}, 4)"])
            word = "range" if not extent.isdigit() else r.choice(["range", "range", "T.unrolled"])
            self.names.append(name)
            result = [f"for {name} in {word}({extent}):"]
        elif kind == 2:
            result = [f"if {self.condition(2)}:"]
        elif kind == 3:
            name = f"i{next(self.numbers)}"
            result = [f"{name} = {self.index(2)} + 0 * T.int64(idx[0])"]
            self.names.append(name)
            result += self.block(depth - 1)
            self.names = before
            return result
        else:
            return [f"out[{self.place(2, 5)}, {self.place(2, 4)}] = {self.value(2)}"]
        for _ in range(r.choice([1, 1, 2])):
            result += ["    " + line for line in self.block(depth - 1)]
        self.names = before
        return result


def drawn(seed: int) -> tuple[list[str], list[int]]:
    program = Drawn(seed)
    lines = [line for _ in range(2) for line in program.block(3)]
    return lines, [program.r.randrange(0, 4) for _ in range(5)]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    lines, idx = drawn(seed)
    for target in ("debug", "llvm"):
        agree(lines, idx, target)


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_random_programs(seed: int) -> None:
    """What a side of a choice reads that is not taken gets no adjoint, wherever it would lie."""
    lines, indices = drawn(seed)
    idx, x = np.array(indices, np.int32), X + np.float32(0.25)
    if by_python(lines, x, idx) is None:
        return
    loss = "        z = R.sum(R.multiply(y, y))\n        return z\n"
    module = from_source(text_of(lines).replace("        return y\n", loss).replace("float32", "float64"))
    lines = [line.replace("float32", "float64") for line in lines]
    steps = np.eye(12).reshape(12, 4, 3) * 1e-3
    ahead, behind = ([by_python(lines, x + sign * step, idx) for step in steps] for sign in (1.0, -1.0))
    expected = [((a**2).sum() - (b**2).sum()) / 2e-3 for a, b in zip(ahead, behind, strict=True)]
    for target in ("debug", "llvm"):
        compiled = pullback.compile(Gradient("main", require_grads=["x"])(module), target)
        _, (dx,) = compiled.function("main_adjoint")(x.astype(np.float64), idx)
        np.testing.assert_allclose(np.array(dx).ravel(), expected, rtol=1e-6, atol=1e-6, err_msg="\n".join(lines))


def test_random_programs_are_of_both_kinds() -> None:
    results = [by_python(lines, X, np.array(idx, np.int32)) for lines, idx in map(drawn, range(40))]
    assert 5 <= sum(r is None for r in results) <= 35


def test_the_message_names_the_place() -> None:
    lines = ["for i in range(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"]
    for target in ("debug", "llvm"):
        with pytest.raises(ArgumentError) as caught:
            pullback.compile(from_source(text_of(lines)), target).function("main")(X, np.full(5, 9, np.int32))
        text = str(caught.value)
        assert "k: an index is outside axis 0 of x" in text and "hint: indices count from 0" in text
        assert "x[T.int64(idx[i]), 1]\n" in text and "^^^" in text


def test_the_message_is_that_of_this_text() -> None:
    """The cache gives no program the place of another one."""
    lines = ["for i in range(5):", "    out[i, 0] = x[T.int64(idx[i]), 1]"]
    places = set()
    for above in (0, 3):
        with pytest.raises(ArgumentError) as caught:
            main = pullback.compile(from_source("\n" * above + text_of(lines)), "llvm").function("main")
            main(X, np.full(5, 9, np.int32))
        places.add(next(line.rsplit(":", 2)[1] for line in str(caught.value).splitlines() if "-->" in line))
    assert len(places) == 2


def test_many_accesses_share_a_flag() -> None:
    lines = [f"out[{k % 5}, {k % 4}] = x[T.int64(idx[{k % 5}]), {k % 3}]" for k in range(20)]
    assert len(checked(from_source(text_of(lines))["k"])[1]) == MOST_FLAGS
    for idx in ([0, 1, 2, 3, 0], [0, 0, 0, 4, 0], [-1, 0, 0, 0, 0]):
        for target in ("debug", "llvm"):
            agree(lines, idx, target)


def test_an_empty_buffer_is_not_read() -> None:
    text = text_of(PROGRAMS["gather"]).replace("(4, 3)", "(0, 3)")
    for target in ("debug", "llvm"):
        with pytest.raises(ArgumentError, match="outside"):
            pullback.compile(from_source(text), target).function("main")(X[:0], np.zeros(5, np.int32))


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_sizes_are_known_when_it_runs(target: str) -> None:
    text = """
@I.ir_module
class M:
    @T.prim_func
    def k(x: T.Buffer(("n", 2), "float32"), out: T.Buffer(("n", 2), "float32")):
        n = T.int64()
        for i, j in T.grid(n, 2):
            out[i, j] = x[<index>, j]

    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        n = T.int64()
        y = R.call_tir(M.k, (x,), R.Tensor((n, 2), "float32"))
        return y
"""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    for index, rows in [
        ("n - 1 - i", [3, 2, 1, 0]),
        ("i // 2", [0, 0, 1, 1]),
        ("i + n - 4", [0, 1, 2, 3]),
        ("i + 1", None),
    ]:
        main = pullback.compile(from_source(text.replace("<index>", index)), target).function("main")
        if rows is None:
            with pytest.raises(ArgumentError, match="axis 0 of x"):
                main(x)
        else:
            np.testing.assert_array_equal(main(x), x[rows])
    with pytest.raises(ArgumentError, match="axis 0 of x"):
        pullback.compile(from_source(text.replace("<index>", "i + n - 4")), target).function("main")(x[:3])


@pytest.mark.parametrize(
    "body",
    ["out[0, 0] = T.float32()", "out[T.int64(), 0] = x[0, 0]", "out[0, 0] = x[i, 0]", "out[0, 0] = T.float32(v)"],
)
def test_names_that_are_not_bound(body: str) -> None:
    with pytest.raises(UserError, match=r"is not (bound here|defined)"):
        pullback.compile(from_source(text_of([body])))


def test_not_takes_bools() -> None:
    with pytest.raises(UserError, match="not needs a bool, got int64"):
        from_source(text_of(["for i in range(4):", "    out[i, not i] = x[0, 0]"]))


def test_indices_that_overflow() -> None:
    """i · 2⁶² // 2⁶² is 0, 1, -2, -1, 0 in 64 bits."""
    for index, fits in [("(i * 4611686018427387904) // 4611686018427387904", False), ("(i * 2**60) // 2**60", True)]:
        lines = ["for i in range(4):", f"    out[i, 0] = x[{index}, 0]"]
        for target in ("debug", "llvm"):
            found = by_us(lines, target, X, np.zeros(5, np.int32))
            assert (found is not None) == fits


def test_arguments_are_not_written() -> None:
    module = from_source(text_of(["x[0, 0] = T.float32(100)", "out[0, 0] = x[0, 0]"]))
    for target in ("debug", "llvm"):
        with pytest.raises(ArgumentError, match="k writes to x, which main gives it as an argument"):
            pullback.compile(module, target)


@pytest.mark.parametrize("outer", ["parallel", "vectorized"])
def test_parallel_loops_are_not_nested(outer: str) -> None:
    lines = [f"for i in T.{outer}(5):", "    for j in T.parallel(4):", "        out[i, j] = T.float32(1)"]
    with pytest.raises(UserError, match="parallel loop over j is inside a parallel or vectorized loop"):
        by_us(lines, "llvm", X, np.zeros(5, np.int32))


def test_large_local_buffers() -> None:
    lines = ["for i in range(5):", "    b = T.alloc_buffer((200000,), 'float32')", "    b[i] = T.float32(i)"]
    lines += ["    out[i, 0] = b[i] + b[199999 - i]"]
    found = by_us(lines, "llvm", X, np.zeros(5, np.int32))
    assert found is not None and found[:, 0].tolist() == [0, 1, 2, 3, 4]
    lines[0] = "for i in T.parallel(5):"
    with pytest.raises(UserError, match="local buffer b of a task or a lane needs 800000 bytes: 262144 are allowed"):
        by_us(lines, "llvm", X, np.zeros(5, np.int32))
    lines[:2] = ["for i in range(5):", "    b = T.alloc_buffer((2**62,), 'float32')"]
    for target in ("debug", "llvm"):
        with pytest.raises(MemoryError, match="out of memory: could not allocate"):
            by_us(lines, target, X, np.zeros(5, np.int32))
