"""Texts of both IRs with tokens deleted, exchanged and repeated, numbers blown up, and parts nested deeply."""

from __future__ import annotations

import functools
import io
import random
import tokenize
from pathlib import Path
from typing import Any

import numpy as np

import pullback
from pullback.ir import IRModule, structural_equal
from pullback.relax.expr import Function
from pullback.relax.struct_info import TensorStructInfo
from pullback.script import from_source
from tests.hostile.oracle import Finding, outcome

NUMBERS = ["0", "-1", "1", "2", "7", "1.5", "1e400", "2**31", str(2**63), "9" * 50, "9" * 5000, "0x" + "f" * 40, "1j"]
WORDS = [
    "x", "y", "w", "R", "T", "I", "None", "True", "()", "[]", "{}", "''", '"float32"', '"n"', "...", "lambda: 0",
    "*", "**",
    "-", "~", "not", "if", "else", "for", "in", "return", "def", "class", "with", "=", "==", ":", ",", "(", ")", "[",
    "]",
    "@", ".", "\n", "\t", "    ", "\\", "#", "\0", "é", "R.add", "R.matmul", "R.const", "R.Tensor", "T.float32",
    "async",
    "yield", "await", ":=", "f'{x}'", "R.call_tir", "R.nn.relu", "R.dataflow()",
]  # fmt: skip


@functools.cache
def texts() -> tuple[str, ...]:
    from tests.errors.models import counting, counting_trainer, linear

    kernels = from_source(
        """
@I.ir_module
class M:
    @T.prim_func
    def f(a: T.Buffer((4, 5), "float32"), b: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            b[i] = T.float32(0)
            for j in range(5):
                if i < j:
                    b[i] = b[i] + T.exp(a[i, j]) * T.float32(2)
"""
    )
    return linear.script(), counting.script(), kernels.script(), counting_trainer().mod.script()


def tokens_of(text: str) -> list[str]:
    """The tokens with the space before each, so that joined they are the text."""
    lines, result, at = text.splitlines(True), [], (1, 0)

    def between(a: tuple[int, int], b: tuple[int, int]) -> str:
        if a[0] == b[0]:
            return lines[a[0] - 1][a[1] : b[1]] if a[0] <= len(lines) else ""
        middle = "".join(lines[a[0] : b[0] - 1])
        return lines[a[0] - 1][a[1] :] + middle + (lines[b[0] - 1][: b[1]] if b[0] <= len(lines) else "")

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT):
            continue
        result.append(between(at, token.end))
        at = token.end
    return result


def mutated(text: str, r: random.Random) -> str:
    tokens = tokens_of(text)
    for _ in range(r.choice([1, 1, 1, 2, 5])):
        place, other = r.randrange(len(tokens)), r.randrange(len(tokens))
        kind = r.choice(["delete", "repeat", "exchange", "number", "word", "insert", "nest", "line", "cut", "rename"])
        if kind == "delete":
            del tokens[place : place + r.choice([1, 1, 2, 5])]
        elif kind == "repeat":
            tokens[place:place] = tokens[place : place + r.choice([1, 2, 20])] * r.choice([1, 2, 300])
        elif kind == "exchange":
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind == "number":
            places = [i for i, t in enumerate(tokens) if t.strip()[:1].isdigit()]
            if places:
                tokens[r.choice(places)] = " " + r.choice(NUMBERS)
        elif kind == "word":
            tokens[place] = " " + r.choice(WORDS)
        elif kind == "insert":
            tokens.insert(place, " " + r.choice(WORDS))
        elif kind == "nest":
            depth = r.choice([2, 50, 90, 250, 3000, 100_000])
            before, after = r.choice(
                [("(", ")"), ("[", "]"), ("-", ""), ("R.add(x, ", ")"), ("not ", ""), ("(x, ", ")"), ("x + ", "")]
            )
            tokens[place] = f" {before * depth}{tokens[place].strip()}{after * depth}"
        elif kind == "line":
            lines = "".join(tokens).splitlines(True)
            first, second = r.randrange(len(lines)), r.randrange(len(lines))
            lines[first], lines[second] = lines[second], lines[first]
            tokens = ["".join(lines)]
        elif kind == "cut":
            tokens = tokens[: max(1, place)]
        else:
            tokens[place] = tokens[other]
        tokens = tokens or [" "]
    return "".join(tokens)


def case(r: random.Random, folder: Path) -> None:
    text = mutated(r.choice(texts()), r)
    (folder / "text.py").write_text(text, "utf-8", "surrogatepass")
    what = f"from_source of {folder / 'text.py'}"
    found, error = outcome(what, lambda: from_source(text))
    if error is not None:
        return
    printed, error = outcome(f"{what}, printed", lambda: found.script())
    if error is not None:
        return
    if "I.opaque" in printed:
        return  # it holds a value that has no text, and says so
    again, error = outcome(f"{what}, read again", lambda: from_source(printed))
    if error is not None or not structural_equal(found, again):
        raise Finding(f"{what}: its print reads as something else: {error}")
    module = found if isinstance(found, IRModule) else IRModule({"main": found})
    for name, function in module.items():
        if isinstance(function, Function) and is_small(function):
            compare(what, module, name, function, r)


def is_small(function: Function) -> bool:
    """Whether everything in it is of known size and takes little memory."""
    infos = [p.struct_info for p in function.params] + [b.var.struct_info for b in function.bindings]
    return all(
        isinstance(i, TensorStructInfo) and i.is_static and 0 <= np.prod(i.shape, dtype=float) < 1e4 for i in infos
    )


def compare(what: str, module: IRModule, name: str, function: Function, r: random.Random) -> None:
    """Compiled code gives what the interpreter gives."""
    generator = np.random.default_rng(r.randrange(2**32))
    arguments = [
        generator.integers(0, 3, p.struct_info.shape).astype(pullback.runtime.dtype.numpy_dtype(p.struct_info.dtype))
        for p in function.params
    ]
    results: list[Any] = []
    for target in ("debug", "llvm"):
        call = lambda target=target: pullback.compile(module, target).function(name)(*arguments)  # noqa: E731
        results.append(outcome(f"{what}: {name} for {target}", call))
    (expected, first), (value, second) = results
    if (first is None) != (second is None):
        raise Finding(f"{what}: {name} fails for one of the targets alone: {first or second}")
    for a, b in zip(_leaves(expected), _leaves(value), strict=True) if first is None else ():
        if not np.allclose(a.astype(float), b.astype(float), 1e-3, 1e-3, equal_nan=True):
            raise Finding(f"{what}: {name} gives {b} compiled, {a} interpreted")


def _leaves(value: Any) -> list[np.ndarray]:
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, tuple) else [value.numpy()]
