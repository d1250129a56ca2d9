"""What is written about each pass and schedule: the rewrite, before → after, and its checks.

One format: an indented or aligned block with an arrow, in the first lines of the file or of the class; and in the
docstring of the class a last paragraph that begins with "Checks:": what it requires, refuses, and leaves as it was.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from pullback import relay
from pullback.command.passes import table
from pullback.relax.transform.plan_memory import plan_memory
from pullback.schedule.choose import SCHEDULES
from pullback.tir.batched import batched
from pullback.tir.guard import guard_products
from pullback.tir.in_place import share

FUNCTIONS: tuple[Callable[..., Any], ...] = (  # rewrites that are no passes of the table
    plan_memory, batched, guard_products, share, relay.transform.gradient, relay.transform.to_cps,
    relay.transform.un_cps, relay.transform.Defunctionalization,
)  # fmt: skip
REWRITE = re.compile(r"^ +\S.*→|^ +→|\s{3,}→|→\s{3,}", re.MULTILINE)
ALL = {f"{e.name} of {e.language}": e.make for e in table()} | {f.__name__: f for f in (*SCHEDULES, *FUNCTIONS)}


@pytest.mark.parametrize("name", ALL)
def test_before_after_and_checks(name: str) -> None:
    written = ALL[name]
    own, file = inspect.getdoc(written) or "", inspect.getdoc(inspect.getmodule(written)) or ""
    assert REWRITE.search(own) or REWRITE.search(file), f"{name} shows no rewrite: before → after"
    checks = [p for p in own.split("\n\n") if p.startswith("Checks: ")]
    assert len(checks) == 1, f"{name} has no paragraph that begins with Checks:"
    assert own.endswith(checks[0]), f"the checks of {name} are its last paragraph"
    assert not re.search(r"^Raises ", own, re.MULTILINE), f"what {name} raises is one of its checks"


@pytest.mark.parametrize("text", ["x → y", "Checks: nothing → all", "one\n\nTwo things → three."])
def test_prose_is_no_rewrite(text: str) -> None:
    assert not REWRITE.search(text)
