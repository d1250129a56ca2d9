"""Global functions by name."""

from __future__ import annotations

import pytest

from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.runtime.registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)


@pytest.fixture
def name():
    yield "tests.function"
    remove_global_func("tests.function")


def test_a_function_a_decorator_and_a_functions_own_name(name):
    register_func(name, lambda x: x + 1)
    assert get_global_func(name)(2) == 3
    assert name in list_global_func_names()

    @register_func(name, override=True)
    def double(x):
        return 2 * x

    assert get_global_func(name) is double

    @register_func
    def tests_own_name():
        return 7

    assert get_global_func("tests_own_name")() == 7
    remove_global_func("tests_own_name")


def test_what_is_not_there_and_what_is(name):
    assert get_global_func(name, allow_missing=True) is None
    with pytest.raises(NameNotFound, match=r"there is no global function .tests\.function."):
        get_global_func(name)
    register_func(name, len)
    with pytest.raises(ArgumentError, match=r"there is a global function .tests\.function. already"):
        register_func(name, len)
    with pytest.raises(NameNotFound, match=r"did you mean tests\.function"):
        get_global_func("tests.functoin")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((3,), "name is a string"), (("",), "name is a string"), (("x", 3), "must be a function")],
)
def test_mistakes(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        register_func(*arguments)
