"""What a model consists of and what a step of it takes: ``trainer.summary()`` and ``net.summary(x)``.

Parameters, states, FLOPs and bytes are exact: they are counted from the compiled step's own loops and memory plan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from pullback.driver.memory import MemoryReport
from pullback.driver.profile import Layers, Work
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.convention import BACKBONE, OPTIMIZER, PARAMETER, STEP
from pullback.relax.expr import Call, Function, Tuple, TupleGetItem, Var
from pullback.relax.struct_info import StructInfo, TensorStructInfo, flat_infos, format_shape, symbolic_vars
from pullback.relax.training.interface import Interface
from pullback.relax.training.notebook import in_notebook
from pullback.runtime.report import REST, WHOLE_MODEL, Report
from pullback.runtime.tables import Table
from pullback.tir.expr import Var as Size

if TYPE_CHECKING:
    from pullback.relax.training.trainer import Trainer

ROWS = 64  # of a batch whose size nobody says, as in fit
Shown = TypeVar("Shown")


@dataclass(frozen=True)
class Layer:
    """A call of a module while a model was exported: the module's dotted name, its class, the types it returned."""

    name: str
    kind: str
    outputs: tuple[StructInfo, ...] = ()


@dataclass(frozen=True)
class Row:
    """One layer of a summary. ``parameters`` are the elements of its own parameters, ``frozen`` those of them that are
    not trained, ``states`` those of its states. ``flops``: its part of a step, with its gradient and the updates
    that are computed in one kernel with that; ``share``: its part of the step's time, after a profile. Both are None
    where they are not known."""

    name: str
    kind: str
    output: str
    parameters: int = 0
    frozen: int = 0
    states: int = 0
    flops: int | None = None
    share: float | None = None


@dataclass(frozen=True, repr=False)
class Summary:
    """The layers of a model, and what they sum up to. Printing it gives tables; so does a notebook.

    ``rows``: the layers, each with what is its own, so columns add up to the totals. ``parameters`` counts elements,
    ``frozen`` those that are not trained; ``sizes`` are (elements, bytes) of parameters, states and optimizer states.
    With a compiled step: ``rows_of_batch``, how many rows the step takes that the rest is about; ``flops`` of the step,
    forward, backward and update; ``kernels``, how many it calls; ``memory``, what it holds at its peak, by category.
    """

    title: str
    rows: tuple[Row, ...]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rows_of_batch: int | None = None
    flops: int | None = None
    kernels: int | None = None
    memory: MemoryReport | None = None

    @property
    def parameters(self) -> int:
        """The number of elements of all parameters."""
        return self.sizes["parameters"][0]

    @property
    def frozen(self) -> int:
        """The number of elements of the parameters that are not trained."""
        return sum(row.frozen for row in self.rows)

    def table(self) -> Table:
        """The layers. Columns without any entry are left out."""
        columns: list[tuple[str, list[str], str]] = [
            ("layer", [row.name for row in self.rows], "total"),
            ("type", [row.kind for row in self.rows], ""),
            ("output", [row.output for row in self.rows], ""),
            _numbers("parameters", [row.parameters for row in self.rows]),
            _numbers("frozen", [row.frozen for row in self.rows]),
            _numbers("states", [row.states for row in self.rows]),
            _numbers("FLOPs of a step", [row.flops for row in self.rows], self.flops),
            ("time", ["" if r.share is None else f"{r.share:.1%}" for r in self.rows], ""),
        ]
        kept = [c for k, c in enumerate(columns) if k in (0, 3) or any(c[1])]
        left = sum(name in ("layer", "type", "output") for name, _, _ in kept)
        rows = list(zip(*(cells for _, cells, _ in kept), strict=True))
        return Table([n for n, _, _ in kept], rows, self.title, left, [total for _, _, total in kept])

    def totals(self) -> Table:
        """What is kept between steps, and the memory of a step by category."""
        rows = [[name, f"{count:,}", f"{nbytes:,}"] for name, (count, nbytes) in self.sizes.items() if count]
        if self.memory is None:
            return Table(["memory", "elements", "bytes"], rows)
        others = {name: n for name, n in self.memory.categories.items() if n and name not in self.sizes}
        rows += [[name, "", f"{n:,}"] for name, n in others.items()]
        rows += [[f"\u2003{name}", "", f"{n:,}"] for name, n in self.memory.arena.items() if n]
        return Table(["memory", "elements", "bytes"], rows, last=["peak of a step", "", f"{self.memory.total:,}"])

    @property
    def headline(self) -> str:
        """What share of the parameters is trained, where not all are, and what a step takes, where one is known."""
        return "\n".join(line for line in (self._trained_line(), self._step_line()) if line)

    def _trained_line(self) -> str:
        if not self.frozen:
            return ""
        trained = self.parameters - self.frozen
        share = f"{100 * trained / self.parameters:.2g} %"
        return f"Trained: {trained:,} of {self.parameters:,} parameters ({share})."

    def _step_line(self) -> str:
        if self.flops is None or self.memory is None:
            return ""
        rows = "" if self.rows_of_batch is None else f" of {self.rows_of_batch:,} rows"
        size = decimal(self.memory.total)
        return f"A step{rows}: {self.flops:,} FLOPs in {self.kernels:,} kernels, {size} at its peak."

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(self.table(), *([Text(self.headline)] if self.headline else []), self.totals())

    def __str__(self) -> str:
        parts = (str(self.table()), self.headline, str(self.totals()))
        return "\n\n".join(part.strip("\n") for part in parts if part)

    def __repr__(self) -> str:
        return f"Summary({self.title}; {self.parameters:,} parameters in {len(self.rows)} rows)"

    def _repr_html_(self) -> str:
        return f"{self.table().html()}<div style='padding:6px 0'>{escape(self.headline)}</div>{self.totals().html()}"


def _numbers(name: str, values: Sequence[int | None], total: int | None = None) -> tuple[str, list[str], str]:
    """A column of counts, zeros left blank, with its sum or the given total."""
    total = sum(v or 0 for v in values) if total is None else total
    return name, [f"{v:,}" if v else "" for v in values], f"{total:,}"


def decimal(nbytes: int) -> str:
    """Bytes in the unit that fits: ``1.5 MB``."""
    size, unit = float(nbytes), 0
    while size >= 1000 and unit < 4:
        size, unit = size / 1000, unit + 1
    return f"{nbytes:,} bytes" if unit == 0 else f"{nbytes:,} bytes ({size:.3g} {'kMGT'[unit - 1]}B)"


def show(thing: Shown, printed: bool = True) -> Shown:
    """Print what has a table: with lines in a terminal, as plain text elsewhere. Returns it, so that a notebook, where
    nothing is printed, shows it as HTML. ``printed``: whether this is the rank that prints."""
    if in_notebook() or not printed:
        return thing
    if sys.stdout.isatty():
        import rich

        rich.print(thing)
    else:
        print(thing)
    return thing


# ---- of a trainer ----------------------------------------------------------------------------------------------------


def summarize(
    trainer: Trainer, layers: Sequence[Layer], profile: Report | None, batch_size: int | None, depth: int | None,
    sizes: Mapping[str, int],
) -> Summary:  # fmt: skip
    """The summary of a trainer. ``layers``: those of its model, if it was made of a module; ``profile``: of a step, if
    there was one."""
    interface: Interface = trainer._interface
    rows_of_batch, vm, bound = _step_of(trainer, batch_size, sizes)
    memory, work = None, ()
    if vm.executable.target is not None:
        memory, work = vm.executable.function(STEP).work(**bound)
    frozen = frozen_parameters(trainer.mod)
    held = [(s.name, _elements(s.info), s.name in frozen) for s in interface.params]
    states = [(s.name, _elements(s.info)) for s in interface.states]
    labels = Layers(trainer.mod, BACKBONE)
    rows = _rows_of_modules(layers, held, states) if layers else _rows_of_script(trainer.mod, labels, held, states)
    rows = _with_work(rows, work, profile)
    rows = rows if depth is None else _folded(rows, depth)
    model = trainer.model
    record = interface.record
    title = "the model" if model is None else type(model).__name__
    title = f"{title}: {record.loss or 'loss'}, {record.optimizer or 'optimizer'}"
    groups = {"parameters": interface.params, "states": (*interface.states, *interface.random)}
    groups["optimizer states"] = interface.optimizer_states
    counted = {name: (sum(_elements(s.info) for s in g), sum(_bytes(s) for s in g)) for name, g in groups.items()}
    flops = sum(w.flops or 0 for w in work) if work else None
    return Summary(title, _named(rows), counted, rows_of_batch, flops, len(work) if work else None, memory)


def _step_of(
    trainer: Trainer, batch_size: int | None, sizes: Mapping[str, int]
) -> tuple[int | None, Any, dict[str, int]]:
    """The number of rows, of several ranks those of this one, the virtual machine that has the step for them, and the
    values of its symbolic sizes."""
    batch = trainer._interface.batch
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise ArgumentError(f"batch_size must be an int ≥ 1, got {batch_size!r}", hint="summary(batch_size=64)")
    rows = batch_size or (batch if isinstance(batch, int) else ROWS if batch is not None else None)
    whole = rows
    if rows is not None and trainer._interface.distributed is not None:
        rows = trainer._placement.share.of(rows).rows
    vm = trainer._programs.of(rows, whole).training_vm
    symbolic = {v.name for v in symbolic_vars(vm.executable.module[STEP].struct_info)}
    bound = dict(sizes)
    if isinstance(batch, Size) and batch.name in symbolic:
        bound.setdefault(batch.name, rows or ROWS)
        rows = bound[batch.name]
    missing = sorted(symbolic - set(bound))
    if missing:
        hint = f"trainer.summary({', '.join(f'{name}=…' for name in missing)})"
        raise ArgumentError(
            f"the model has the symbolic sizes {', '.join(missing)}, whose values a step needs", hint=hint
        )
    return rows, vm, bound


def _rows_of_modules(
    layers: Sequence[Layer], held: Iterable[tuple[str, int, bool]], states: Iterable[tuple[str, int]]
) -> list[Row]:  # fmt: skip
    """A row for each module that was called, and for those that only hold parameters."""
    rows: dict[str, Row] = {}
    calls: dict[str, int] = {}
    for layer in layers:
        calls[layer.name] = calls.get(layer.name, 0) + 1
        output = ", ".join(_shape(info) for info in layer.outputs)
        rows.setdefault(layer.name, Row(layer.name, layer.kind, output))
    for name, count in calls.items():
        if count > 1:
            rows[name] = replace(rows[name], kind=f"{rows[name].kind} ({count} calls)")
    for name, size, is_frozen in held:
        _add(rows, _owner(name), parameters=size, frozen=size * is_frozen)
    for name, size in states:
        _add(rows, _owner(name), states=size)
    return list(rows.values())


def _owner(name: str) -> str:
    """The module that holds a parameter, by their dotted names."""
    return name.rpartition(".")[0]


def _add(rows: dict[str, Row], name: str, **sizes: int) -> None:
    row = rows.get(name) or Row(name, "", "")
    rows[name] = replace(row, **{column: getattr(row, column) + size for column, size in sizes.items()})


def _rows_of_script(
    module: IRModule, labels: Layers, held: Sequence[tuple[str, int, bool]], states: Sequence[tuple[str, int]]
) -> list[Row]:  # fmt: skip
    """A row for each line of the backbone, of code of a module one for the module; a parameter counts where it is first
    used."""
    left: dict[str, dict[str, int]] = {name: {"parameters": size, "frozen": size * f} for name, size, f in held}
    left |= {name: {"states": size} for name, size in states}
    rows: dict[str, Row] = {}
    for binding in module[BACKBONE].bindings:
        call = binding.value
        if not isinstance(call, Call):
            continue
        label = labels.of(call.span)
        label = binding.var.name if label is None else label
        row = rows.get(label) or Row(label, "", "")
        kinds = row.kind.split(", ") if row.kind else []
        op = call.op.short if isinstance(call.op, Op) else getattr(call.op, "name", "")
        kind = ", ".join(dict.fromkeys([*kinds, op]))
        rows[label] = replace(row, kind=kind, output=", ".join(map(_shape, flat_infos(binding.var.struct_info))))
        for argument in _variables(call.args):
            if argument.name in left:
                _add(rows, label, **left.pop(argument.name))
    for name, sizes in left.items():
        _add(rows, name, **sizes)
    return list(rows.values())


def _variables(args: Iterable[Any]) -> Iterable[Var]:
    for arg in args:
        if isinstance(arg, Var):
            yield arg
        elif isinstance(arg, Tuple):
            yield from _variables(arg.fields)


def _with_work(rows: Sequence[Row], work: Sequence[Work], profile: Report | None) -> list[Row]:
    """Rows with FLOPs and times, and one for what is in no layer."""
    flops: dict[str | None, int] = {}
    names = {row.name for row in rows}
    for w in work:
        layer = w.layer if w.layer in names else None
        flops[layer] = flops.get(layer, 0) + (w.flops or 0)
    times: dict[str | None, float] = {}
    for layer, call in (profile.layers() if profile is not None else {}).items():
        layer = layer if layer in names else None
        times[layer] = times.get(layer, 0.0) + call.microseconds
    whole = sum(times.values())
    result = [replace(row, flops=flops.get(row.name), share=_share(times.get(row.name), whole)) for row in rows]
    if None in flops or None in times:
        result.append(Row(REST, "", "", flops=flops.get(None), share=_share(times.get(None), whole)))
    return result


def _share(time: float | None, whole: float) -> float | None:
    return time / whole if time is not None and whole else None


def _folded(rows: Sequence[Row], depth: int) -> list[Row]:
    """Rows of modules down to a depth; those below count for the module they are in."""
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise ArgumentError(f"depth must be an int ≥ 0, got {depth!r}", hint="summary(depth=1) shows the model's parts")
    found: dict[str, Row] = {}
    for row in rows:
        name = row.name if row.name == REST else ".".join(row.name.split(".")[:depth])
        known = found.get(name)
        if known is None:
            found[name] = row if name == row.name else replace(row, name=name, kind="", output="")
            continue
        added = {c: getattr(known, c) + getattr(row, c) for c in ("parameters", "frozen", "states")}
        flops = [r.flops for r in (known, row) if r.flops is not None]
        shares = [r.share for r in (known, row) if r.share is not None]
        found[name] = replace(
            known, **added, flops=sum(flops) if flops else None, share=sum(shares) if shares else None
        )
    return list(found.values())


def _named(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The row without a name is the model's own."""
    return tuple(replace(row, name=row.name or WHOLE_MODEL) for row in rows)


def frozen_parameters(module: IRModule) -> frozenset[str]:
    """The names of the parameters that the optimizer returns as they are."""
    function: Function = module[OPTIMIZER]
    interface = Interface.of(module)
    values = {b.var: b.value for b in function.bindings}

    def value(expr: Any) -> Any:
        while expr in values:
            expr = values[expr]
        if isinstance(expr, TupleGetItem):
            whole = value(expr.tuple_value)
            return value(whole.fields[expr.index]) if isinstance(whole, Tuple) else (whole, expr.index)
        return expr

    def leaves(expr: Any) -> list[Any]:
        expr = value(expr)
        return [leaf for f in expr.fields for leaf in leaves(f)] if isinstance(expr, Tuple) else [expr]

    given = [(p, k) for p in function.params for k in range(len(flat_infos(p.struct_info)))]
    roles, results = interface.convention[OPTIMIZER], leaves(function.body.body)
    taken, returned = roles.taken(PARAMETER), roles.returned(PARAMETER)
    pairs = zip(interface.params, taken, returned, strict=True)
    return frozenset(slot.name for slot, i, k in pairs if k < len(results) and results[k] == given[i])


def _elements(info: TensorStructInfo) -> int:
    size = 1
    for dim in info.sizes:
        size *= dim if isinstance(dim, int) else 0
    return size


def _bytes(slot: Any) -> int:
    return _elements(slot.info) * slot.numpy_dtype.itemsize


def _shape(info: StructInfo) -> str:
    return format_shape(info.shape) if isinstance(info, TensorStructInfo) else str(info)


# ---- of a module without a trainer -----------------------------------------------------------------------------------


def summary_of_layers(
    title: str,
    layers: Sequence[Layer],
    held: Sequence[tuple[str, int, bool]],
    states: Sequence[tuple[str, int]],
    nbytes: Mapping[str, int],
    depth: int | None,
) -> Summary:
    """The summary of a module: layers, and its parameters and states as (name, elements[, frozen])."""
    rows: Sequence[Row] = _rows_of_modules(layers, held, states)
    rows = rows if depth is None else _folded(rows, depth)
    counts = {"parameters": sum(h[1] for h in held), "states": sum(s[1] for s in states)}
    return Summary(title, _named(rows), {name: (count, nbytes[name]) for name, count in counts.items()})
