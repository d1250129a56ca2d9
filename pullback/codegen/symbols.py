"""What all functions in LLVM IR have: a name, the runtime's table, scalar parameters."""

from __future__ import annotations

import re

from pullback.codegen.poly import Poly
from pullback.codegen.statements import Statements
from pullback.codegen.values import Value
from pullback.tir.expr import INTRINSICS, Var

_LIBM = {*INTRINSICS, "fmod", "rint", "fabs"}
SLOTS = {"parallel_for": 1, "now_ns": 2, "parallel_share": 3}
RUNTIME = "{ i64, ptr, ptr, ptr }"  # struct pb_runtime: abi, parallel_for, now_ns, parallel_share


def exported_symbol(name: str) -> str:
    """The symbol under which a function is exported: its name, or ``name_`` for one that is a function of libm."""
    return f"{name}_" if name in _LIBM or (name[-1:] in ("f", "l") and name[:-1] in _LIBM) else name


def quoted(name: str) -> str:
    """A name as LLVM has it in text."""
    return name if re.fullmatch(r"[A-Za-z_.$][A-Za-z0-9_.$]*", name) else '"' + re.sub(r'["\\]', "_", name) + '"'


def scalar_meaning(emitter: Statements, var: Var, ref: str, bounds: tuple[int, int] | None = None) -> Poly | Value:
    if var.dtype == "int64":
        return Poly.of(emitter.atom(ref, bounds))
    return Value(ref, var.dtype)
