"""The loop IR: scalar expressions, loops over buffers, kernels and host functions."""

from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    Var,
    as_expr,
    binary,
    call,
    cast,
    const,
    fma,
    maximum,
    minimum,
    select,
)
from pullback.tir.stmt import (
    Allocate,
    BufferStore,
    Check,
    For,
    HostCall,
    If,
    KernelCall,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    Stop,
    While,
    loop,
    seq,
    store,
)

__all__ = [
    "Allocate", "Binary", "Buffer", "BufferLoad", "BufferStore", "Call", "Cast", "Check", "FloatImm", "For",
    "HostCall", "If", "IntImm", "KernelCall", "Let", "Prefetch", "PrimExpr", "PrimFunc", "Select", "Seq", "Stmt",
    "Stop", "Var", "While", "as_expr", "binary", "call", "cast", "const", "fma", "loop", "maximum", "minimum",
    "select", "seq", "store",
]  # fmt: skip
