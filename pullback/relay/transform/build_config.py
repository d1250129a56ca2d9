"""``build_config``: a context of passes, by the name that it had before :class:`PassContext`.

with relay.transform.build_config(opt_level=3):
    module, params = relay.optimize(module)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pullback.ir.instrument import PassInstrument
from pullback.ir.pass_context import PassContext, PassInfo


class _Trace(PassInstrument):
    def __init__(self, trace: Callable[[Any, PassInfo, bool], Any]) -> None:
        self.trace = trace

    def run_before_pass(self, module: Any, info: PassInfo) -> None:
        self.trace(module, info, True)

    def run_after_pass(self, module: Any, info: PassInfo) -> None:
        self.trace(module, info, False)


def build_config(
    opt_level: int = 2,
    required_pass: Iterable[str] | None = None,
    disabled_pass: Iterable[str] | None = None,
    trace: Callable[[Any, PassInfo, bool], Any] | None = None,
) -> PassContext:
    """A :class:`PassContext`; ``trace(module, info, is_before)`` is called before and after each pass."""
    return PassContext(opt_level, required_pass, disabled_pass, None if trace is None else [_Trace(trace)])
