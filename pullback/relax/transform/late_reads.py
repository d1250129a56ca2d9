"""Which results of a function's calls are read so late that no cache holds them until then.

What a step saves for its backward part comes back after everything else; what the next kernel reads is still there.
A kernel that computes long on each line had better write the former past the caches and the latter into them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.relax.analysis import used_vars
from pullback.relax.expr import Call, Function, TupleGetItem, Var
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relax.transform.compose import is_view
from pullback.tir.expr import nbytes

_SMALL = 4096  # bytes: what waits for no other kernel's data to speak of can be computed at any time

Result = tuple[Var, int]  # of a call: the variable it is bound to, and the result's number


def late_reads(function: Function, smallest: int, least: int) -> dict[Var, set[int]]:
    """For the variable of each call, the numbers of its results, of ``smallest`` bytes or more, between which and their
    first reader calls touch ``least`` bytes or more, and of those that no call reads.

    A reader is taken to run as soon as all is there that it reads, but for small values: updates, which stand at the
    end, do (``memory/order.py``).
    """
    origin: dict[Var, Result] = {}  # of an item of a tuple and of a view: the result that it is
    written: dict[Result, int] = {}  # what had been touched when it was
    late: set[Result] = set()
    unread: set[Result] = set()
    touched = 0
    for binding in function.bindings:
        var, value = binding.var, binding.value
        if isinstance(value, (TupleGetItem, Var)) or is_view(value):
            origin.update((var, result) for result in _results_behind(value, origin))
            continue
        used = tuple(dict.fromkeys(used_vars(value)))
        read = [(result, written[result]) for v in used for result in _results_of(v, origin) if result in written]
        ready = max((end for (v, k), end in read if _bytes(v, k) > _SMALL), default=0)
        late.update(result for result, end in read if result in unread and ready - end >= least)
        unread.difference_update(result for result, _ in read)
        touched += sum(map(_bytes, (*used, var)))
        if isinstance(value, Call):
            own = _results_of(var, origin)
            written.update(dict.fromkeys(own, touched))
            unread.update((v, k) for v, k in own if _bytes(v, k) >= smallest)
    found: dict[Var, set[int]] = {}
    for var, k in late | unread:
        found.setdefault(var, set()).add(k)
    return found


def _results_behind(value: Any, origin: dict[Var, Result]) -> list[Result]:
    """The result that an item or a view is, if it is one of a call."""
    if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
        return [(value.tuple_value, value.index)]
    source = value.args[0] if isinstance(value, Call) else value
    return _results_of(source, origin)[:1] if isinstance(source, Var) else []


def _results_of(var: Var, origin: dict[Var, Result]) -> list[Result]:
    """The results of calls that a variable stands for: a tuple for all of its items."""
    if var in origin:
        return [origin[var]]
    info = var.struct_info
    return [(var, k) for k in range(len(info.fields) if isinstance(info, TupleStructInfo) else 1)]


def _bytes(var: Var, k: int | None = None) -> int:
    """Of a value; of an item, if it is a tuple."""
    info = var.struct_info
    fields: Sequence[StructInfo] = info.fields if isinstance(info, TupleStructInfo) else [info]
    fields = fields if k is None else [fields[k]]
    tensors = [t for t in fields if isinstance(t, TensorStructInfo) and t.is_static]
    return sum(nbytes(t.dtype) * math.prod(t.static_shape) for t in tensors)
