"""Random graph functions with branches, loops, functions inside and names that are assigned again, as text that Python
runs too: over NumPy it is the meaning that the function must have."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

SCALAR, ROWS = 'R.Tensor((), "float64")', 'R.Tensor((4,), "float64")'


class Writer:
    """Writes one function. ``a``, ``b`` and ``xs`` are parameters that are never assigned, so functions inside may read
    them; every body assigns ``s``, so that no branch or loop is in vain."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def function(self) -> str:
        self.lines = ["@R.function", f"def main(a: {SCALAR}, b: {SCALAR}, xs: {ROWS}):"]
        names = ["a", "b", "s", "h"]
        self.add(1, "s = a * b", "h = a")
        names = self.body(1, names, {}, 3, self.random.randint(3, 7))
        if self.random.random() < 0.5:
            self.add(1, f"if {self.condition(names)}:", f"    return s, {names[-1]}")
            self.add(1, "else:", f"    k = {self.value(names)}", "    return k, s")
        else:
            self.add(1, f"return ({', '.join(names)})")
        return "\n".join(self.lines) + "\n"

    def add(self, level: int, *lines: str) -> None:
        self.lines += ["    " * level + line for line in lines]

    def body(self, level: int, names: list[str], functions: dict[str, int], depth: int, length: int) -> list[str]:
        """Statements; the scalars that are known after them."""
        names, functions = list(names), dict(functions)
        for _ in range(length):
            kinds: list[Callable[..., list[str]]] = [self.plain, self.plain, self.swap]
            if depth > 0:
                kinds += [self.branch, self.loop, self.loop, self.inner, self.call]
            names = self.random.choice(kinds)(level, names, functions, depth)
        self.add(level, f"s = {self.value(['s', *names])} + s * 0.25")
        return names

    # -- expressions

    def value(self, names: list[str], functions: dict[str, int] | None = None) -> str:
        pick = self.random.choice
        x, y = pick(names), pick(names)
        texts = [f"R.sin({x}) + {y}", f"{x} * 0.5 - {y}", f"R.tanh({x} * {y})", f"R.cos({x})", x]
        texts += [f"{f}({', '.join(pick(names) for _ in range(n))}) * 0.5" for f, n in (functions or {}).items()]
        return pick(texts)

    def condition(self, names: list[str]) -> str:
        return f"{self.random.choice(names)} {self.random.choice('<>')} {self.random.choice(['0.1', *names])}"

    def target(self, names: list[str]) -> str:
        """A name that may be assigned, new or not: not ``s``, which is always made of its last value."""
        return self.random.choice([n for n in names if n not in ("a", "b", "s") and n[0] != "x"] + ["h", "k", "t"])

    # -- statements

    def plain(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        name = self.target(names)
        if name in names and self.random.random() < 0.3:
            self.add(level, f"{name} {self.random.choice('+-*')}= {self.value(names, functions)}")
        else:
            self.add(level, f"{name} = {self.value(names, functions)}")
        return _with(names, name)

    def swap(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        one, other = self.target(names), self.target(names)
        if one == other:
            return names
        if self.random.random() < 0.5:
            self.add(level, f"{one}, {other} = {self.value(names)}, {self.value(names)}")
        else:
            self.add(level, f"pair = ({self.value(names)}, ({self.value(names)}, a))", f"{one}, ({other}, _) = pair")
        return _with(names, one, other)

    def branch(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        known = []
        for word in self.random.choice([("if",), ("if", "else"), ("if", "elif", "else"), ("if", "elif")]):
            self.add(level, "else:" if word == "else" else f"{word} {self.condition(names)}:")
            known.append(self.body(level + 1, names, functions, depth - 1, self.random.randint(0, 2)))
        everywhere = [n for n in known[0] if all(n in k for k in known)]
        return [n for n in everywhere if n in names or word == "else"]

    def loop(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        kind = self.random.choice(["while", "range", "from", "rows", "two", "call", "scan"])
        length = self.random.randint(0, 2)
        self.count += 1
        if kind in ("call", "scan"):
            return self.called(level, names, functions, depth, kind == "scan")
        if kind == "while":
            count = f"n{self.count}"  # of steps, so that it ends
            self.add(level, f"{count} = R.const(0.0, 'float64')")
            self.add(level, f"while R.logical_and({count} < 3.0, {self.condition(names)}):")
            self.add(level + 1, "R.loop_attr({'max_steps': 5})", f"{count} = {count} + 1.0")
            self.body(level + 1, names, functions, depth - 1, length)
            return names
        i, x = f"i{self.count}", f"x{self.count}"
        head = {
            "range": f"for {i} in R.range(3):",
            "from": f"for {i} in R.range(1, 3, max_steps=7):",
            "rows": f"for {x} in xs:",
            "two": f"for {x}, {i} in R.rows(xs, xs):",
        }[kind]
        self.add(level, head)
        if kind in ("range", "from"):
            self.add(level + 1, f"{x} = R.astype({i}, 'float64')")
        self.body(level + 1, [*names, x], functions, depth - 1, length)
        return names

    def called(self, level: int, names: list[str], functions: dict[str, int], depth: int, is_scan: bool) -> list[str]:
        """A loop that is a call with functions."""
        f, ask = f"f{self.count}", f"g{self.count}"
        self.add(level, f"def {f}(s: {SCALAR}, h: {SCALAR}, x: {SCALAR}):")
        known = ["a", "b", "s", "h", "x"]
        self.body(level + 1, known, functions, depth - 1, 1)
        if is_scan:
            self.add(level + 1, "return (s, h), (s * 2.0,)")
            self.add(level, f"(s, h), (ys,) = R.scan({f}, (s, a), (xs,), reverse={self.random.random() < 0.5})")
            self.add(level, "h = h + R.sum(ys)")
            return _with(names, "h")
        self.add(level + 1, "return s * 0.5 + 0.01, h, x + 1.0")
        self.add(level, f"def {ask}(s: {SCALAR}, h: {SCALAR}, x: {SCALAR}) -> R.Tensor((), 'bool'):")
        self.add(level + 1, "return x < 2.5")
        self.add(level, f"s, h, t = R.while_loop({ask}, {f}, (s, b, R.const(0.0, 'float64')))")
        return _with(names, "h")

    def inner(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        self.count += 1
        f, params = f"f{self.count}", self.random.choice([["h"], ["s", "k"]])
        self.add(level, f"def {f}({', '.join(f'{p}: {SCALAR}' for p in params)}) -> {SCALAR}:")
        if "s" not in params:
            self.add(level + 1, f"s = {params[0]} + a")
        self.body(level + 1, ["a", "b", "s", *params], functions, depth - 1, self.random.randint(0, 2))
        self.add(level + 1, f"return R.sin(s + {params[0]})")
        functions[f] = len(params)
        return names

    def call(self, level: int, names: list[str], functions: dict[str, int], depth: int) -> list[str]:
        if not functions:
            return names
        name = self.target(names)
        f = self.random.choice(list(functions))
        self.add(level, f"{name} = {f}({', '.join(self.value(names) for _ in range(functions[f]))})")
        return _with(names, name)


def _with(names: list[str], *more: str) -> list[str]:
    return list(dict.fromkeys([*names, *more]))


# -- Python's meaning


def _while_loop(condition: Any, body: Any, carries: Any) -> Any:
    while condition(*carries):
        carries = body(*carries)
    return carries


def _scan(body: Any, carries: Any, xs: Any, reverse: bool) -> Any:
    rows: list[Any] = []
    for row in reversed(list(zip(*xs, strict=True))) if reverse else zip(*xs, strict=True):
        carries, ys = body(*carries, *row)
        rows.append(ys)
    rows = rows[::-1] if reverse else rows
    return carries, tuple(np.array(y) for y in zip(*rows, strict=True))


PYTHON = SimpleNamespace(
    function=lambda f: f, Tensor=lambda *_: None, sin=np.sin, cos=np.cos, tanh=np.tanh, abs=np.abs, sum=np.sum,
    const=lambda value, dtype: np.float64(value), astype=lambda x, dtype: np.float64(x), logical_and=np.logical_and,
    range=lambda *bounds, max_steps=None: range(*bounds), rows=lambda *arrays: zip(*arrays, strict=True),
    loop_attr=lambda attrs: None, while_loop=_while_loop, scan=_scan, dataflow=contextlib.nullcontext,
)  # fmt: skip


def run_by_python(text: str, arguments: list[np.ndarray]) -> Any:
    """What the text computes as a program of Python."""
    names: dict[str, Any] = {"R": PYTHON}
    exec(text, names)
    with np.errstate(all="ignore"):
        return names["main"](*(np.float64(a) if a.ndim == 0 else a for a in arguments))  # += changes no scalar
