"""Loop IR to LLVM IR to object code to functions in memory. The only room that imports llvmlite."""

from pullback.codegen.compile import (
    LLVM_VERSION,
    LLVMLITE_VERSION,
    Library,
    compile_assembly,
    compile_object,
    load_object,
)
from pullback.codegen.module import (
    called_kernels,
    emit_data,
    emit_host,
    emit_kernel,
    emit_library,
    emit_module,
)
from pullback.codegen.objects import CompilerDied, compile_objects
from pullback.codegen.symbols import exported_symbol

__all__ = [
    "LLVMLITE_VERSION", "LLVM_VERSION", "CompilerDied", "Library", "called_kernels", "compile_assembly",
    "compile_object", "compile_objects", "emit_data", "emit_host", "emit_kernel", "emit_library", "emit_module",
    "exported_symbol", "load_object",
]  # fmt: skip
