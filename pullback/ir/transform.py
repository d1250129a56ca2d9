"""Passes and what they run in, under the names that ``transform`` has in the reference system."""

from pullback.ir.instrument import (
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)
from pullback.ir.pass_context import PassContext, PassInfo
from pullback.ir.passes import ModulePass, Pass, PrintIR, Sequential, module_pass

__all__ = [
    "DumpIR", "ModulePass", "Pass", "PassContext", "PassInfo", "PassInstrument", "PassPrintingInstrument",
    "PassTimingInstrument", "PrintAfterAll", "PrintBeforeAll", "PrintIR", "Sequential", "module_pass",
    "pass_instrument",
]  # fmt: skip
