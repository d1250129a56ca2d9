"""WebAssembly, which an engine compiles once more: the order of its operations, its addresses, its multiply-adds."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from pullback import codegen
from pullback.codegen.poly import Atom, Poly
from pullback.target import Target
from pullback.tir import Buffer, PrimFunc, const, fma, loop, maximum, minimum, select, store
from tests.driver.test_targets import Products, assembly

WASM = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128"
RELAXED = WASM + ",+relaxed-simd"
MADD = "f32x4.relaxed_madd"


def multiply_adds(**attrs):
    x, y, z = (Buffer(name, (64,)) for name in "xyz")
    body = loop("i", 64, lambda i: store(z, i, fma(x[i], y[i], z[i])), "vectorized")
    return PrimFunc("kernel", (x, y, z), body, attrs)


def assembly_of(kernel, spec=RELAXED):
    target = Target(spec)
    return codegen.compile_assembly(codegen.emit_module([kernel], target), target)


def test_schedules_take_the_relaxed_multiply_add_and_users_the_exact_one():
    """Engines may round the product, which a program that says fma can rely on not to happen."""
    scheduled, users = assembly_of(multiply_adds(scheduled=True)), assembly_of(multiply_adds())
    assert MADD in scheduled and "fmaf" not in scheduled
    assert MADD not in users and re.search(r"call\s+fmaf", users)
    assert MADD not in assembly_of(multiply_adds(scheduled=True), WASM)


def test_products_are_relaxed_multiply_adds():
    text = assembly(Products, RELAXED)
    assert MADD in text and "fmaf" not in text


def test_no_other_instruction_is_relaxed():
    """The engine would choose what a maximum with NaN is."""
    x, y, z = (Buffer(name, (64,)) for name in "xyz")

    def body(i):
        relu = select(x[i] < 0.0, const(0.0, "float32"), x[i])
        return store(z, i, maximum(minimum(maximum(relu, y[i]), x[i]), select(y[i] > x[i], x[i], y[i])))

    text = assembly_of(PrimFunc("kernel", (x, y, z), loop("i", 64, body, "vectorized"), {"scheduled": True}))
    assert "f32x4.pmax" in text and "f32x4.pmin" in text and "relaxed_m" not in text


def test_sums_of_several_terms_are_computed_in_their_order():
    """No multiply-add waits on the stack for the one of the next term, whose factors would take registers too."""
    text = assembly(Products, RELAXED)
    assert text.count(MADD) > 24 and not re.search(rf"{MADD}\s+{MADD}", text)


def read_with(index):
    x, y = Buffer("x", (64, 64)), Buffer("y", (64, 64))
    body = loop("i", 60, lambda i: loop("j", 4, lambda j: store(y, (i, j), x[index(i), j]), "vectorized"))
    return codegen.emit_module([PrimFunc("kernel", (x, y), body)], Target(WASM))


@pytest.mark.parametrize(
    ("index", "folds"),
    [
        (lambda i: i + 3, True),
        (lambda i: i % 7 * 8 + 3, True),
        (lambda i: 63 - i, False),  # the address before it lies in front of the buffer
        (lambda i: i - 4 + 4 * (i // 60) + 4, False),  # no constant at all
    ],
)
def test_constants_are_part_of_loads(index, folds):
    text = read_with(index)
    assert ("getelementptr nuw float" in text) == folds


def test_constants_are_no_variables():
    """Each would take a register of the engine's."""
    x, y = Buffer("x", (64, 64)), Buffer("y", (64,))
    rows = [0, 5, 11, 23]
    body = loop("i", 60, lambda i: store(y, i, x[0, i] * x[5, i] + x[11, i] * x[23, i]))
    text = assembly_of(PrimFunc("kernel", (x, y), body), WASM)
    for row in rows[1:]:
        assert re.search(rf"f32\.load\s+{row * 256}\b", text)


def test_natural_numbers():
    """Random sums of remainders and multiples: what is said to be natural has no value below 0."""
    random, natural = np.random.default_rng(0), 0
    for _ in range(300):
        low = int(random.integers(-3, 3))
        x = Atom("x", 1, (low, 40))
        divisor = int(random.integers(2, 9))
        numerator = Poly.of(x).scaled(int(random.integers(1, 4))) + Poly.of(int(random.integers(-4, 5)))
        limits = tuple(end // divisor for end in numerator.range)
        quotient = Atom("q", 2, limits, quotient=(numerator, divisor))
        y = Atom("y", 3, (0, 5))
        parts = random.integers(-3, 5, 4)
        remainder = numerator - Poly.of(quotient).scaled(divisor)
        poly = remainder.scaled(int(parts[0])) + Poly.of(y).scaled(int(parts[1])) + Poly.of(int(parts[2]))
        poly = poly + Poly.of(quotient).scaled(int(parts[3]) if parts[3] < 0 else 0)
        values = [value_at(poly, {x: a, y: b, quotient: value_at(numerator, {x: a}) // divisor})
                  for a, b in itertools.product(range(low, 41), range(6))]  # fmt: skip
        if poly.is_natural:
            natural += 1
            assert min(values) >= 0
    assert natural > 30


def value_at(poly, atoms):
    return sum(c * int(np.prod([atoms[a] for a in m], dtype=np.int64)) for m, c in poly.terms.items())


def test_remainders_are_natural():
    x = Atom("x", 1, (0, 100))
    quotient = Atom("q", 2, (0, 4), quotient=(Poly.of(x), 22))
    remainder = Poly.of(x) - Poly.of(quotient).scaled(22)
    assert remainder.range[0] < 0 and remainder.scaled(6).is_natural
    assert not (remainder - Poly.of(1)).is_natural and not remainder.scaled(-1).is_natural
