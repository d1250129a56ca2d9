"""Parameters and fixtures of tests as variables of their module."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

_names = itertools.count()


def _pytest() -> Any:
    import pytest

    return pytest


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: dict[str, Any] | None = None) -> Any:
    """A fixture that has each of the values in turn; tests name the variable it is assigned to.

    Args:
        values: what it has.
        ids: how pytest names them in a test's name; by default it makes names of the values.
        by_dict: the values by their ids, in place of ``values`` and ``ids``.

    Returns:
        the fixture, for a variable of the module.

    Examples:
        >>> from pullback import testing
        >>> batch = testing.parameter(1, 16)
        >>> def test_dense(batch): ...
    """
    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    @_pytest().fixture(params=values, ids=ids)
    def found(request: Any) -> Any:
        return request.param

    return found


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """Several fixtures whose values change together: those of one of the sets.

    Args:
        value_sets: sequences of one length, a value for each fixture.
        ids: how pytest names the sets; by default it makes names of the values.

    Returns:
        the fixtures, for variables of the module.

    Examples:
        >>> from pullback import testing
        >>> rows, columns = testing.parameters((2, 3), (4, 5))
        >>> def test_matrix(rows, columns): ...  # of (2, 3), then of (4, 5)
    """
    pytest = _pytest()
    common = f"_parameters_{next(_names)}"

    @pytest.fixture(name=common, params=list(value_sets), ids=ids)
    def whole(request: Any) -> Any:
        return request.param

    caller = sys._getframe(1).f_globals
    caller[common] = whole  # pytest finds fixtures by the module's variables

    def part(i: int) -> Any:
        def found(**values: Any) -> Any:
            return values[common][i]

        argument = inspect.Parameter(common, inspect.Parameter.KEYWORD_ONLY)
        vars(found)["__signature__"] = inspect.Signature([argument])  # what pytest looks at
        return pytest.fixture(found)

    return [part(i) for i in range(len(value_sets[0]))]


def fixture(function: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """pytest's fixture; with ``cache_return_value`` the value for the same arguments is computed once.

    Args:
        function: computes the value; None where this is called with options: ``@fixture(cache_return_value=True)``.
        cache_return_value: whether a value is kept, by the text of the arguments.

    Returns:
        the fixture; of no function, the decorator.
    """
    if function is None:
        return functools.partial(fixture, cache_return_value=cache_return_value)
    if cache_return_value:
        function = _cached(function)
    return _pytest().fixture(function)


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}
    signature = inspect.signature(function)

    @functools.wraps(function)
    def cached(*args: Any, **kwargs: Any) -> Any:
        key = repr(signature.bind(*args, **kwargs).arguments)
        if key not in known:
            known[key] = function(*args, **kwargs)
        return known[key]

    return cached


def main() -> None:
    """Run the tests of the calling file, with the command line's arguments.

    Raises:
        SystemExit: always, with pytest's exit code.
    """
    file = inspect.getsourcefile(sys._getframe(1))
    sys.exit(_pytest().main([str(file), *sys.argv[1:]]))
