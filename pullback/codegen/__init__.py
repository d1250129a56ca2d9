"""Loop IR to LLVM IR to object code to functions in memory. The only room that imports llvmlite."""

from pullback.codegen.compile import Library, compile_assembly, compile_object, load_object
from pullback.codegen.module import emit_module, exported_symbol, traced_kernels

__all__ = [
    "Library", "compile_assembly", "compile_object", "emit_module", "exported_symbol", "load_object", "traced_kernels",
]  # fmt: skip
