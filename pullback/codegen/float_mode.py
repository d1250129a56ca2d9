"""Subnormal numbers as zeros: a host function that sets its CPU to take them so, for as long as it runs.

A multiplication with a number below 1.2e-38 costs an Intel core some 150 cycles, and training makes such numbers:
gradients of what a model has learnt. x86-64 has two bits for it in MXCSR (operands as zeros, results as zeros), AArch64
one in FPCR for both. Elsewhere there is none (RISC-V, WebAssembly), or vectors take them for zeros always (ARMv7).
The thread pool gives a caller's mode to its workers, so the kernels' tasks follow.
"""

from __future__ import annotations

from pullback.codegen.builder import ATTRIBUTES, Globals

_SIGNATURE = "(ptr %rt, ptr %buffers, ptr %arena, ptr %trace)"
_X86 = ("x86_64", "amd64")
_ARM = ("aarch64", "arm64")
_MXCSR = 1 << 15 | 1 << 6  # results, operands
_FPCR = 1 << 24


def flushes(arch: str) -> bool:
    """Whether code for this architecture has a mode to set."""
    return arch in _X86 or arch in _ARM


def flushing(symbol: str, body: str, arch: str, shared: Globals, linkage: str = "") -> str:
    """The host function ``symbol``, which runs the host function ``body`` in that mode and then sets the caller's."""
    run = f"  %status = call i32 @{body}{_SIGNATURE}"
    if arch in _X86:
        for name in ("stmxcsr", "ldmxcsr"):
            shared.declare(f"llvm.x86.sse.{name}", f"declare void @llvm.x86.sse.{name}(ptr)")
        lines = [
            "  %before = alloca i32, align 4", "  %within = alloca i32, align 4",
            "  call void @llvm.x86.sse.stmxcsr(ptr %before)", "  %old = load i32, ptr %before",
            f"  %new = or i32 %old, {_MXCSR}", "  store i32 %new, ptr %within",
            "  call void @llvm.x86.sse.ldmxcsr(ptr %within)", run,
            "  call void @llvm.x86.sse.ldmxcsr(ptr %before)",
        ]  # fmt: skip
    else:
        shared.declare("llvm.aarch64.get.fpcr", "declare i64 @llvm.aarch64.get.fpcr()")
        shared.declare("llvm.aarch64.set.fpcr", "declare void @llvm.aarch64.set.fpcr(i64)")
        lines = [
            "  %old = call i64 @llvm.aarch64.get.fpcr()", f"  %new = or i64 %old, {_FPCR}",
            "  call void @llvm.aarch64.set.fpcr(i64 %new)", run,
            "  call void @llvm.aarch64.set.fpcr(i64 %old)",
        ]  # fmt: skip
    text = "\n".join([*lines, "  ret i32 %status"])
    return f"define {linkage}i32 @{symbol}{_SIGNATURE} nounwind {ATTRIBUTES} {{\n{text}\n}}\n"
