"""The collector of cyclic garbage, while a module is compiled.

A compiler makes many nodes that live until it is done, and collections look at them again and again: by default after
every 700 new objects, which takes a twelfth of the time to a first step. Rare ones find as much.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pullback.ir.forks import in_child, renewed

_OBJECTS = 10_000  # new ones between two collections: a few MiB
_lock = threading.Lock()
_inside = 0  # threads: the first sets the threshold, the last sets it back
_before = 0


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect cyclic garbage less often meanwhile, unless the process does so anyway, or never."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before, *others = gc.get_threshold()
            if 0 < _before < _OBJECTS:
                gc.set_threshold(_OBJECTS, *others)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside = max(0, _inside - 1)  # 0 already: in a child that was forked in here
            if _inside == 0:
                _restore()


def _restore() -> None:
    """The threshold as it was, unless somebody has set another meanwhile."""
    now, *others = gc.get_threshold()
    if now == _OBJECTS:
        gc.set_threshold(_before, *others)


def _forget() -> None:
    """In a fork's child no other thread is inside, though one may have been when it was forked."""
    global _inside
    if _inside:
        _restore()
    _inside = 0


renewed(sys.modules[__name__], "_lock")
in_child(_forget)
