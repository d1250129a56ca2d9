"""Old names and arguments: until the version that removes them they work, and warn of it.

    @deprecated(since="0.2", use="optim.SGD", removed_in="0.4")            # a function or a class
    def sgd(lr): ...

    @deprecated_argument("rate", since="0.2", use="lr", removed_in="0.4")  # step(rate=0.1) calls step(lr=0.1)
    def step(lr): ...

    __getattr__ = deprecated_names(                                        # module.OLD is module.NEW
        globals(), {"OLD": deprecated(since="0.2", use="NEW", removed_in="0.4")}
    )

CONTRIBUTING.md says how long a name lives on; tests/ir/test_deprecation.py fails when its time is over.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from pullback.ir.errors import CallError, InternalError
from pullback.ir.places import PACKAGE

P = ParamSpec("P")
T = TypeVar("T")


class PullbackDeprecationWarning(DeprecationWarning):
    """Something of pullback that a later version removes.

    Shown once for each place that uses it, wherever that is (Python hides other DeprecationWarnings but in
    ``__main__``), unless the interpreter was started with ``-W`` or ``PYTHONWARNINGS``.
    """


if not sys.warnoptions:
    warnings.filterwarnings("default", category=PullbackDeprecationWarning)


def version_number(text: str) -> tuple[int, ...]:
    """``"0.10.2"`` → (0, 10, 2), which compares as versions do."""
    return tuple(int(part) for part in text.split("."))


@dataclass(frozen=True)
class deprecated:  # noqa: N801  a decorator
    """Decorator of a function or class that a later version removes.

    Calls warn, with the line of the caller outside of the package; so does a subclass of a class, where it is defined.
    The docstring gets a section "Deprecated".

    Args:
        since: the first version that warns, ``"0.2"``.
        use: what to write instead, as users write it.
        removed_in: the version that no longer has it.

    Examples:
        >>> @deprecated(since="0.2", use="double", removed_in="0.4")
        ... def twice(x):
        ...     return 2 * x
        >>> twice(21)  # PullbackDeprecationWarning: twice() is deprecated since 0.2, …: use double
        42
    """

    since: str
    use: str
    removed_in: str

    def __post_init__(self) -> None:
        if version_number(self.since) >= version_number(self.removed_in):
            raise InternalError(f"deprecated since {self.since}, removed in {self.removed_in}: no time to change")

    @overload
    def __call__(self, target: type[T]) -> type[T]: ...
    @overload
    def __call__(self, target: Callable[P, T]) -> Callable[P, T]: ...
    def __call__(self, target: Any) -> Any:
        target = self._of_class(target) if isinstance(target, type) else self._of_function(target)
        target.__doc__ = f"{inspect.getdoc(target) or ''}\n\nDeprecated:\n    {self.since}: {self.note()}\n"
        return target

    def note(self) -> str:
        """``Will be removed in 0.4: use optim.SGD.``"""
        return f"Will be removed in {self.removed_in}: use {self.use}."

    def warn(self, what: str) -> None:
        """Warn that ``what`` is deprecated, at the line outside of the package that led here."""
        message = f"{what} is deprecated since {self.since}, and will be removed in {self.removed_in}: use {self.use}"
        warnings.warn(message, PullbackDeprecationWarning, stacklevel=_level_of_user())

    def _of_function(self, function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            self.warn(f"{function.__name__}()")
            return function(*args, **kwargs)

        return call

    def _of_class(self, cls: type[T]) -> type[T]:
        begin, derive = cls.__dict__.get("__init__", cls.__init__), cls.__init_subclass__

        @functools.wraps(begin)
        def __init__(instance: T, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            if type(instance) is cls:
                self.warn(f"{cls.__name__}()")
            begin(instance, *args, **kwargs)

        def __init_subclass__(subclass: type[T], **kwargs: Any) -> None:  # noqa: N807
            self.warn(f"{cls.__name__}, which {subclass.__name__} derives from,")
            derive(**kwargs)

        type.__setattr__(cls, "__init__", __init__)
        type.__setattr__(cls, "__init_subclass__", classmethod(__init_subclass__))
        return cls


def deprecated_argument(
    name: str, *, since: str, use: str, removed_in: str
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorator of a function that takes an argument under an old name, or one that it will no longer take.

    A value given as ``name`` is passed as the parameter ``use``. Where the function still has a parameter ``name``, the
    value goes there, and ``use`` is what the warning says to write instead. Stands above ``@explained``.

    Raises:
        CallError: a call gives both names.
        InternalError: the function has neither parameter.
    """
    aged = deprecated(since=since, use=use, removed_in=removed_in)

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        parameters = inspect.signature(function).parameters
        if name not in parameters and use not in parameters:
            raise InternalError(f"{function.__name__} has neither a parameter {name} nor {use}")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            if name in kwargs:
                aged.warn(f"the argument {name} of {function.__name__}()")
                if name not in parameters:
                    given = inspect.signature(function).bind_partial(*args).arguments
                    if use in kwargs or use in given:
                        raise CallError(f"{function.__name__}(): {use} is given twice, once by its old name {name}")
                    kwargs[use] = kwargs.pop(name)
            return function(*args, **kwargs)

        call.__doc__ = f"{inspect.getdoc(function) or ''}\n\nDeprecated:\n    {since}: ``{name}``. {aged.note()}\n"
        return call

    return decorate


def deprecated_names(
    names: dict[str, Any], old: Mapping[str, deprecated], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module with old names: each is the value of its ``use``, a name of the module.

    Args:
        names: the module's ``globals()``.
        old: for each old name, since when, what it is now, and until when.
        otherwise: the ``__getattr__`` for all other names, such as ``missing_from(globals())``; by default they raise
            an AttributeError.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in old:
            old[name].warn(f"{names['__name__']}.{name}")
            return names[old[name].use]
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")

    return __getattr__


def _level_of_user() -> int:
    """The ``stacklevel``, in the caller's call of ``warnings.warn``, of the first frame outside of the package."""
    level, frame = 1, sys._getframe(1)
    while (outer := frame.f_back) is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, outer
    return level
