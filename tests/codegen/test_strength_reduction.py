"""LLVM's options, which all of a process shares, are as they were after a compile."""

from __future__ import annotations

import pytest

from pullback.codegen import host, worker
from pullback.codegen.compile import compile_assembly, compile_object
from pullback.ir.errors import InternalError
from pullback.target import Target

# The address of every other row changes by a stride that is no instruction's: with strength reduction it is a variable.
TEXT = """
define void @f(ptr %x, i64 %n, i64 %stride) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul nsw i64 %i, %stride
  %place = getelementptr float, ptr %x, i64 %offset
  store float 1.0, ptr %place
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
FEW_REGISTERS, ARM = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu"


def others(text: str, target: Target) -> str:
    """What somebody else gets from LLVM in this process."""
    machine = host.machine(target.triple, target.cpu, target.features)
    return machine.emit_assembly(worker.optimized(text, machine))


@pytest.mark.parametrize(("target", "multiplies"), [(X86, True), (FEW_REGISTERS, False), (ARM, False)])
def test_strength_reduction_is_left_out_where_addresses_are_added_by_instructions(target, multiplies):
    kind = Target(target)
    before = others(TEXT, kind)
    assert "mul" not in before
    assert ("mul" in compile_assembly(TEXT, kind)) == multiplies
    assert compile_object(TEXT, kind)
    assert others(TEXT, kind) == before


def test_it_is_there_again_after_a_text_that_is_refused():
    kind = Target(X86)
    with pytest.raises(InternalError, match="not well-formed"):
        compile_object("define void @f( {", kind)
    with pytest.raises(ZeroDivisionError), worker.without_strength_reduction():
        raise ZeroDivisionError
    assert "mul" not in others(TEXT, kind)
