"""Whole entries of the object cache in each other's places."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from unittest import mock

import pullback
from tests.hostile.caches import X, files, is_right, module, right
from tests.hostile.oracle import Finding, outcome

_numbers = itertools.count()


def case(r: random.Random, folder: Path) -> None:
    cache = folder / f"cache{next(_numbers)}"
    with mock.patch.dict(os.environ, PULLBACK_CACHE_DIR=str(cache)):
        for number in range(4):
            pullback.compile(module(number)).function("main")(X)
        first, second = r.sample(files(cache), 2)
        data = second.read_bytes()
        second.write_bytes(first.read_bytes())
        if r.random() < 0.5:
            first.write_bytes(data)
        what = f"{first.name} in the place of {second.name}"
        for number in range(4):
            value, error = outcome(what, lambda n=number: pullback.compile(module(n)).function("main")(X))
            if error is None and not is_right(value.numpy(), number):
                raise Finding(f"{what}: gives {value.numpy()}, right is {right(number)}")
