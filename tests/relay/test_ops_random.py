"""relay's random operators: functions of a key, with the right distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay import op
from pullback.relay.expr import Function, TupleWrapper, as_expr, const, var
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import TensorType
from tests.relay.differences import run

KEY = TensorType((10,), "uint64")
COUNT = 20000


def _draw(build: Any, seed: int = 0, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    key = var("key", KEY)
    others = [var(f"x{i}", TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)]
    function = run_infer_type(Function([key, *others], as_expr(build(key, *others))))
    found = run(function, op.random.threefry_key(seed).data.numpy(), *arrays)
    assert [t.shape for t in function.body.checked_type.fields] == [f.shape for f in found]
    return found


DRAWS = {
    "uniform": lambda key: op.random.uniform(key, (COUNT,)),
    "normal": lambda key: op.random.normal(key, (COUNT,)),
    "words": lambda key: op.random.threefry_generate(key, (COUNT,)),
    "multinomial": lambda key: op.random.multinomial(key, const(np.ones(9, "float32")), num_samples=COUNT),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_key_says_the_numbers(name: str) -> None:
    key, numbers = _draw(DRAWS[name])
    again = _draw(DRAWS[name])
    np.testing.assert_array_equal(numbers, again[1])
    assert (_draw(DRAWS[name], 1)[1] != numbers).any()
    assert (key != op.random.threefry_key(0).data.numpy()).any()


@pytest.mark.parametrize("name", DRAWS)
def test_the_next_key_gives_others(name: str) -> None:
    def twice(key: Any) -> Any:
        first = DRAWS[name](key)
        second = DRAWS[name](first[0])
        assert isinstance(first, TupleWrapper)
        return [first[1], second[1]]

    first, second = _draw(twice)
    assert (first != second).mean() > 0.5


def test_uniform() -> None:
    low, high = np.float32([0.0, 10.0]).reshape(2, 1), np.float32([1.0, 14.0]).reshape(2, 1)
    numbers = _draw(lambda key, a, b: op.random.uniform(key, (2, COUNT), "float32", a, b), 3, low, high)[1]
    assert (numbers >= low).all() and (numbers <= high).all()
    np.testing.assert_allclose(numbers.mean(1, keepdims=True), (low + high) / 2, atol=0.06)
    np.testing.assert_allclose(numbers.std(1, keepdims=True), (high - low) / np.sqrt(12), atol=0.03)


def test_normal() -> None:
    numbers = _draw(lambda key: op.random.normal(key, (COUNT,), "float64", 5.0, 2.0))[1]
    assert numbers.dtype == "float64"
    assert abs(numbers.mean() - 5) < 0.06 and abs(numbers.std() - 2) < 0.04
    assert abs(((numbers - 5) / 2 < -1).mean() - 0.1587) < 0.01


def test_words() -> None:
    words = _draw(DRAWS["words"])[1]
    assert words.dtype == "uint64"
    bits = np.unpackbits(words.view("uint8")).reshape(COUNT, 64)
    np.testing.assert_allclose(bits.mean(0), 0.5, atol=0.02)


def test_multinomial() -> None:
    probabilities = np.float32([[0.1, 0.6, 0.3], [1, 0, 0]])
    places = _draw(lambda key, p: op.random.multinomial(key, p, num_samples=COUNT), 0, probabilities)[1]
    assert places.shape == (2, COUNT) and places.dtype == "int32"
    frequencies = [np.bincount(row, minlength=3) / COUNT for row in places]
    np.testing.assert_allclose(frequencies, probabilities, atol=0.02)


def test_split() -> None:
    def both(key: Any) -> Any:
        left, right = op.random.threefry_split(key)
        return [op.random.uniform(k, (COUNT,))[1] for k in (key, left, right)]

    drawn = _draw(both)
    correlation = np.corrcoef(drawn)
    np.testing.assert_allclose(correlation, np.eye(3), atol=0.03)


def test_keys_of_any_seed() -> None:
    assert op.random.threefry_key(-1).data.numpy()[3] == 2**64 - 1
