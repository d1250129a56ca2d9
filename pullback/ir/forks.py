"""Forks: what the child of an ``os.fork`` has to find in order, all of it registered here.

The child has one thread, the one that forked, and a copy of everything as the others left it: a lock that one of them
held stays locked for good. So there are three duties, each a line where the lock is made:

* :func:`renewed`: a lock that protects what Python code does. The child gets a new one.
* :func:`finished_first`: a lock that is held around native code which overwrites memory. The fork waits for it, so the
  child has the values before or after, not half of them.
* :func:`around`, :func:`in_child`: other things to do before and after.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

Holder = TypeVar("Holder")
_RLOCK: type[Any] = type(threading.RLock())  # whose instances tell who holds them, by a method without a stub

_forking = threading.RLock()  # held during a fork: so nothing that a fork waits for is added meanwhile
_renewed: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
_awaited: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_around: list[tuple[Callable[[], None], Callable[[], None]]] = []
_actions: list[Callable[[], None]] = []
_taken: list[Any] = []  # the locks that this fork took


def renewed(holder: Holder, *names: str) -> Holder:
    """Have these attributes of an object, class or module, locks or NumPy generators (which hold one), made anew in a
    child; returns the holder. It is not kept alive."""
    _renewed[holder] = names
    return holder


def finished_first(holder: Holder, name: str) -> Holder:
    """Have forks wait for this lock, which nobody keeps for long or while waiting for another; returns the holder."""
    with _forking:
        _awaited[holder] = name
    return holder


def around(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call ``before`` before each fork, when the locks that forks wait for are taken, and ``after`` after it, in parent
    and child."""
    _around.append((before, after))


def in_child(action: Callable[[], None]) -> None:
    """Call this in each child, when its locks are new."""
    _actions.append(action)


def _before() -> None:
    _forking.acquire()
    for holder, name in list(_awaited.items()):
        lock = getattr(holder, name)
        lock.acquire()
        _taken.append(lock)
    for before, _ in _around:
        before()


def _after() -> None:
    for _, after in reversed(_around):
        after()
    while _taken:
        _taken.pop().release()
    _forking.release()


def _in_child() -> None:
    for holder, names in list(_renewed.items()):
        for name in names:
            setattr(holder, name, _fresh(getattr(holder, name)))
    _renew_cached_properties()
    for action in _actions:
        action()
    _after()


def _fresh(value: Any) -> Any:
    """One like it that nobody holds, but for a lock that the forking thread itself holds: it goes on in the child."""
    if isinstance(value, np.random.Generator):
        return copy.deepcopy(value)
    if isinstance(value, threading.Condition):
        return threading.Condition()
    if isinstance(value, _RLOCK):
        return value if value._is_owned() else threading.RLock()
    return threading.Lock()


def _renew_cached_properties() -> None:
    """Until Python 3.12 each cached property has a lock, which is held while any object's value is computed."""
    if sys.version_info >= (3, 12):
        return
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pullback":
            for kind in [v for v in vars(module).values() if isinstance(v, type)]:
                for value in vars(kind).values():
                    if isinstance(value, functools.cached_property):
                        vars(value)["lock"] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
