"""The catalogue of ops: what `python -m pullback ops` prints, and the page `docs/ops.md`.

Everything is read from the registry. Which dtypes an op takes is asked of its type rule, with the op's own samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.op import Op
from pullback.relax.op.family import DTYPE_CLASSES, zero_gradient
from pullback.relax.op.sample import Bools, Domain, Floats, Ints
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.runtime.tables import Table
from pullback.tir.expr import DTYPES, FLOATS

KINDS = {
    "rule": "a rule of its own",
    "composed": "that of the ops which it is composed of",
    "loops": "its loops are differentiated",
    "zero": "arguments get no adjoint",
}
REASONS = {  # why there is none
    "whole": "results are whole numbers or truth values",
    "given": "no argument is a real number",
    "steps": "constant almost everywhere",
}
INTRODUCTION = """\
# Operators

Written by `python -m pullback ops --markdown`; a test compares it with the registry. `R.name` in scripts,
`pullback.relax.op.name` in Python. Where the reference system has the op, it has the same name.

*Gradient*: `rule`, {rule}; `composed`, {composed}; `loops`, {loops}; `zero`, {zero}, since what
follows: `whole`, {whole}; `given`, {given}; `steps`, {steps}.

*Dtypes* are those of the arguments whose type is free: `float` is float16, bfloat16, float32 and float64; `number` also
integers; `any` also bool.

*Mixed* is what mixed precision does with float32 arguments: `low`, computed from bfloat16 or float16; `same`, in the
type that its large arguments have by then; `data`, the same for the first argument, while the others stay float32;
`full`, in float32. `-`: no argument is a float.
"""


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue."""

    op: Op
    kind: str  # a key of KINDS
    dtypes: str

    @property
    def gradient(self) -> str:
        """How the op is differentiated, and if it is not, why."""
        return f"zero: {self.reason}" if self.kind == "zero" else self.kind

    @property
    def reason(self) -> str:
        """Why arguments get no adjoint: a key of REASONS."""
        taken = DTYPE_CLASSES.get(self.dtypes) or tuple(self.dtypes.split(", "))
        if not set(taken) & set(FLOATS):
            return "given"
        return "whole" if self._is_whole() else "steps"

    def _is_whole(self) -> bool:
        """Whether no result of the op's samples is of floats, when arguments are."""
        if isinstance(self.op.samples, Domain):
            count = len(self.op.signature.tensors)
            infos = [_result(self.op, [TensorStructInfo((1,), "float32")] * count, {})]
        else:
            infos = [_result(self.op, [_info(a, "float32") for a in s.args], s.attrs) for s in self.op.samples or ()]
        fields = [f for i in infos for f in (i.fields if isinstance(i, TupleStructInfo) else [i])]
        return all(f.dtype not in FLOATS for f in fields if isinstance(f, TensorStructInfo))

    @property
    def mixed(self) -> str:
        """What mixed precision does with it."""
        return "-" if self.dtypes in ("fixed", "bool", "integer", "integer or bool") else self.op.precision

    @property
    def name(self) -> str:
        return self.op.short

    @property
    def summary(self) -> str:
        """The documentation as one line."""
        return " ".join(self.op.doc.split())


def entries() -> list[Entry]:
    """All ops by family, then by name; what only gradients call (``grad.…``) and kernel calls are none."""
    ops = [op for op in Op.registry.values() if op.samples]
    found = [Entry(op, gradient_kind(op), _dtypes(op)) for op in ops if not op.short.startswith("grad.")]
    return sorted(found, key=lambda e: (e.op.family, e.name))


def gradient_kind(op: Op) -> str:
    """How the op is differentiated: a key of KINDS."""
    if op.gradient is None:
        return "composed" if op.decompose is not None else "loops"
    return "zero" if op.gradient is zero_gradient else "rule"


def markdown() -> str:
    """The page."""
    lines = [INTRODUCTION.format(**KINDS, **REASONS), summary(), ""]
    for family, group in groupby(entries(), lambda e: e.op.family):
        lines += [f"## {family}", "", "| op | gradient | dtypes | mixed | what |", "|---|---|---|---|---|"]
        lines += [
            f"| `{e.name}({_signature(e.op)})` | {e.gradient} | {e.dtypes} | {e.mixed} | {_cell(e.summary)} |"
            for e in group
        ]
        lines.append("")
    return "\n".join(lines)


def summary() -> str:
    """How many ops there are, and how they are differentiated."""
    found = entries()
    counts = {kind: sum(e.kind == kind for e in found) for kind in KINDS}
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"{len(found)} ops in {len({e.op.family for e in found})} families. Gradients: {told}."


def _signature(op: Op) -> str:
    return _cell(str(op.signature))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _dtypes(op: Op) -> str:
    """The class of dtypes that the op's free arguments may have."""
    if isinstance(op.samples, Domain):
        return op.samples.dtypes
    taken = tuple(dtype for dtype in DTYPES if any(_takes(op, s, dtype) for s in op.samples or ()))
    if not taken:
        return "fixed"
    return next((name for name, members in DTYPE_CLASSES.items() if set(members) == set(taken)), ", ".join(taken))


def _takes(op: Op, sample: Any, dtype: str) -> bool:
    if not any(_is_free(a) for a in sample.args):
        return False
    result = _result(op, [_info(a, dtype) for a in sample.args], sample.attrs)
    return isinstance(result, (TensorStructInfo, TupleStructInfo))


def _result(op: Op, infos: Sequence[TensorStructInfo], given: Mapping[str, Any]) -> Any:
    """The type of a call on arguments of these types; None where it is refused."""
    attrs = {name: given.get(name, default) for name, default in op.signature.attrs.items()}
    try:
        return op.infer(*infos, **attrs)
    except UserError:
        return None


def _is_free(argument: Any) -> bool:
    return not isinstance(argument, (Ints, Bools, np.ndarray))


def _info(argument: Any, dtype: str) -> TensorStructInfo:
    if isinstance(argument, Ints):
        return TensorStructInfo(argument.shape, argument.dtype)
    if isinstance(argument, np.ndarray):
        return TensorStructInfo(argument.shape, argument.dtype.name)
    if isinstance(argument, Bools):
        return TensorStructInfo(argument.shape, "bool")
    shape = np.shape(argument) if isinstance(argument, list) else _shape(argument)
    return TensorStructInfo(shape, dtype)


def _shape(argument: Any) -> Sequence[int]:
    return argument.shape if isinstance(argument, Floats) else argument


def table() -> Table:
    """The catalogue for a terminal."""
    return Table(
        ["op", "gradient", "dtypes", "what"], [[e.name, e.gradient, e.dtypes, e.summary] for e in entries()], left=4
    )


def lines() -> Iterator[str]:
    """The catalogue, an op a line."""
    width = max(len(e.name) for e in entries())
    for e in entries():
        yield f"{e.name:{width}}  {e.gradient:11}  {e.dtypes:16}  {e.summary}"
