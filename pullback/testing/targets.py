"""Targets that tests run on, and what they require of the machine. There is one target: the CPU, by LLVM."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from pullback.runtime import Device, device

TARGETS = ("llvm",)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets of this machine, each with its device.

    Returns:
        pairs of a target's name and its device.

    Examples:
        >>> for target, dev in pullback.testing.enabled_targets():
        ...     print(target, dev)
        llvm cpu(0)
    """
    return [(target, device(target)) for target in TARGETS]


def device_enabled(target: Any) -> bool:
    """Whether code for the target runs here: for any whose kind is llvm.

    Args:
        target: a name, a target's text, or a Target.

    Returns:
        whether it does.

    Examples:
        >>> [pullback.testing.device_enabled(target) for target in ("llvm -mcpu=znver4", "cuda")]
        [True, False]
    """
    name = target if isinstance(target, str) else str(getattr(target, "kind", target))
    return bool(name.split()) and name.split()[0] in TARGETS


def _pytest() -> Any:
    import pytest

    return pytest


def parametrize_targets(*targets: Any) -> Any:
    """A decorator of tests with the arguments ``target`` and ``dev``: they run for each of the targets, and are skipped
    for those that this machine lacks. Without targets, those that it has.

    Args:
        targets: their names; or the test, where the decorator is written without a call.

    Returns:
        the decorator; of a test, the test that it makes.

    Examples:
        >>> from pullback import testing
        >>> @testing.parametrize_targets("llvm", "cuda")
        ... def test_relu(target, dev): ...
    """
    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        pytest = _pytest()
        cases = []
        for target in targets or TARGETS:
            if device_enabled(target):
                cases.append(pytest.param(target, device(target), id=str(target)))
            else:
                reason = f"there is no target {target} here"
                cases.append(pytest.param(target, None, id=str(target), marks=pytest.mark.skip(reason=reason)))
        return pytest.mark.parametrize("target, dev", cases)(test)

    return mark


def exclude_targets(*targets: Any) -> Callable[[Any], Any]:
    """A decorator of tests that run for all targets but these.

    Args:
        targets: their names.

    Returns:
        the decorator; tests are skipped where no target is left.
    """
    left = [target for target in TARGETS if target not in targets]
    if left:
        return parametrize_targets(*left)
    return lambda test: _pytest().mark.skip(reason="all targets are excluded")(test)


def known_failing_targets(*targets: Any) -> Callable[[Any], Any]:
    """A decorator of tests that fail for some targets: those run for the others.

    Args:
        targets: the names of those for which they fail.

    Returns:
        the decorator; tests are skipped where no target is left.
    """
    return exclude_targets(*targets)


class Requirement:
    """A decorator of tests that are skipped where something is missing; ``marks()`` are pytest's marks of it.

    Args:
        name: what is required, which the reason of a skip names.
        met: whether it is there; a function is asked when a test is marked.

    Examples:
        >>> import shutil
        >>> from pullback import testing
        >>> requires_cc = testing.Requirement("a C compiler", shutil.which("cc") is not None)
        >>> @requires_cc
        ... def test_export(): ...
    """

    def __init__(self, name: str, met: Callable[[], bool] | bool) -> None:
        self.name, self._met = name, met

    @property
    def met(self) -> bool:
        return self._met() if callable(self._met) else self._met

    def marks(self, support_required: Any = None) -> list[Any]:
        return [_pytest().mark.skipif(not self.met, reason=f"{self.name} is not here")]

    def __call__(self, test: Any = None, *, support_required: Any = None) -> Any:
        if test is None:
            return self
        return functools.reduce(lambda marked, mark: mark(marked), self.marks(), test)

    def __repr__(self) -> str:
        return f"<requires {self.name}>"


requires_llvm = Requirement("LLVM", True)


def requires_package(*packages: str) -> Requirement:
    """Skip the test where one of the packages cannot be imported.

    Args:
        packages: the names by which they are imported.

    Returns:
        the decorator.

    Examples:
        >>> pullback.testing.requires_package("numpy", "no_such_package")
        <requires the package no_such_package>
    """
    missing = [p for p in packages if importlib.util.find_spec(p.partition(".")[0]) is None]
    return Requirement(f"the package {' '.join(missing or packages)}", not missing)


def uses_gpu(*tests: Any) -> Any:
    """A decorator of tests that use a GPU where there is one: it changes nothing.

    Args:
        tests: the test, where the decorator is written without a call.

    Returns:
        the test; of none, the decorator.
    """
    return tests[0] if tests else lambda test: test


def requires(name: str) -> Requirement:
    """``requires_NAME``: a feature of another device, processor or library, none of which tests use here."""
    return Requirement(name, False)
