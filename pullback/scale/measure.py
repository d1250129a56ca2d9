"""A step of a trainer, measured on this machine: what a simulation of many ranks is made of.

The gradient and the update are measured apart, as they run where collectives stand between them. Both overwrite what
they give, as a step does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pullback.driver.artifact import Layout
from pullback.driver.executable import CompiledFunction, Executable
from pullback.driver.memory import bytes_at
from pullback.driver.pipeline import plan_function, whole_function
from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.analysis import used_vars
from pullback.relax.convention import ADJOINT, GRADIENT, OPTIMIZER, PARAMETER, STEP
from pullback.relax.expr import Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.struct_info import flat_infos
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.library import get_num_threads
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor, zeros
from pullback.tir import HostCall, KernelCall
from pullback.tir.visitor import walk

RUNS = 7
FORMAT = 1  # of the file
_GRADIENT, _UPDATE = "__measured_gradient", "__measured_update"


@dataclass(frozen=True)
class Kernel:
    """One kernel call. ``reads``: numbers of the parameters that it reads; ``gives``: of those whose gradient it
    finishes, in an update of those that it updates; ``live``: bytes of temporaries while it runs."""

    name: str
    seconds: float
    reads: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    live: int = 0


@dataclass(frozen=True)
class Parameter:
    """A parameter: its elements, the bytes of one, and the elements and bytes of what the optimizer keeps for it in its
    shape."""

    name: str
    elements: int
    itemsize: int
    states: tuple[tuple[int, int], ...] = ()
    trained: bool = True

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize


@dataclass(frozen=True)
class Step:
    """A step of one rank for so many ``rows``: the kernels of forward and backward part (from ``backward`` on) in
    order, then those of the update; all times are seconds on ``threads`` threads.

    ``needs_all``: the update of a parameter needs gradients of others, as clipping by a global norm does. ``fixed``:
    bytes that each rank holds whatever it does: states of the model, scalars of the optimizer, constants; ``data``:
    those of inputs and targets. ``call``: seconds of a step outside of kernels. ``alone``: seconds of the step of one
    process, in which updates are part of the kernels that compute gradients.
    """

    title: str
    rows: int
    threads: int
    parameters: tuple[Parameter, ...]
    gradient: tuple[Kernel, ...]
    update: tuple[Kernel, ...]
    backward: int
    needs_all: bool
    fixed: int
    data: int
    call: float
    alone: float

    @property
    def parameter_bytes(self) -> int:
        return sum(p.nbytes for p in self.parameters)

    @property
    def gradient_bytes(self) -> int:
        return sum(p.nbytes for p in self.parameters if p.trained)

    @property
    def state_bytes(self) -> int:
        return sum(elements * size for p in self.parameters for elements, size in p.states)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"))

    def save(self, path: str | Path) -> None:
        """Write a file that :func:`load` reads."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")


def load(path: str | Path) -> Step:
    """What :meth:`Step.save` wrote. An ArgumentError for anything else."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        if fields.pop("format") != FORMAT:
            raise ValueError("it has another version")
        kernels = {part: tuple(map(_kernel, fields.pop(part))) for part in ("gradient", "update")}
        parameters = tuple(map(_parameter, fields.pop("parameters")))
        step = Step(parameters=parameters, **kernels, **fields)
        numbers = {n for k in (*step.gradient, *step.update) for n in (*k.reads, *k.gives)}
        if not all(0 <= n < len(parameters) for n in numbers):
            raise ValueError("a kernel reads a parameter that is not there")
        return step
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        hint = "python -m pullback simulate MODEL --save step.json writes one"
        raise ArgumentError(f"{path} is no measured step: {error}", hint=hint) from None


def _kernel(fields: dict[str, Any]) -> Kernel:
    reads, gives = (tuple(map(int, fields[name])) for name in ("reads", "gives"))
    return Kernel(str(fields["name"]), float(fields["seconds"]), reads, gives, int(fields["live"]))


def _parameter(fields: dict[str, Any]) -> Parameter:
    states = tuple((int(elements), int(size)) for elements, size in fields["states"])
    elements, size = int(fields["elements"]), int(fields["itemsize"])
    return Parameter(str(fields["name"]), elements, size, states, bool(fields["trained"]))


def measure(trainer: Trainer, inputs: Any, targets: Any, *, title: str = "", runs: int = RUNS) -> Step:
    """Measure a step of a trainer on a batch: each kernel's time is the median of so many runs. Nothing is updated.

    Raises a UserError where the step cannot be measured: the trainer is interpreted, or has no values.
    """
    interface: Interface = trainer._interface
    program, given, labels = trainer._arguments(inputs, targets)
    executable = program.training_vm.executable
    if executable.target is None:
        raise UserError("the interpreter has no kernel times", hint='make the trainer with target="llvm"')
    trainer._values.check_complete(interface)
    values, convention = trainer._values.copy(), interface.convention
    adjoint, optimizer = convention[ADJOINT], convention[OPTIMIZER]
    module = executable.module.copy()
    results = adjoint.returned(GRADIENT)
    module[_GRADIENT] = _overwriting(module[ADJOINT], results)
    module[_UPDATE] = module[OPTIMIZER].with_attrs({"donate": optimizer.donated, "private": True})
    measured = Executable(module, executable.target)

    gradients = _gradients(module[ADJOINT], results)
    numbers = [adjoint.returns[k][1] for k in results]
    arguments = values.arguments(program.interface, ADJOINT, given, labels)
    backward = _Measured.of(measured.function(_GRADIENT), [*arguments, *gradients], runs)
    known = dict(zip(convention.kept, values.all, strict=False))
    known |= {(GRADIENT, n): g for n, g in zip(numbers, gradients, strict=True)}
    updated = _Measured.of(measured.function(_UPDATE), optimizer.arrange(known), runs)
    step = values.arguments(program.interface, STEP, given, labels)
    alone = _Measured.of(measured.function(STEP), step, runs)

    loss = next((p.first for p in backward.layout.places if (p.place, p.index) == ("output", 0)), 0)
    states, trained = _states_of(interface), set(numbers)
    parameters = tuple(
        Parameter(s.name, _elements(s), s.numpy_dtype.itemsize, states.get(s.name, ()), k in trained)
        for k, s in enumerate(interface.params)
    )
    of_adjoint = {i: adjoint.takes[i][1] for i in adjoint.taken(PARAMETER)}
    of_optimizer = {i: optimizer.takes[i][1] for i in optimizer.taken(PARAMETER)}
    kept = sum(t.nbytes for t in values.all if t is not None)
    divided = sum(p.nbytes + sum(n * size for n, size in p.states) for p in parameters)
    constants = sum(p.nbytes for p in backward.layout.places if p.role == "constant")
    return Step(
        title=title or type(trainer.model).__name__,
        rows=given[0].shape[0] if given and given[0].shape else 1,
        threads=get_num_threads(),
        parameters=parameters,
        gradient=backward.kernels(of_adjoint, {len(arguments) + k: n for k, n in enumerate(numbers)}),
        update=updated.kernels(of_optimizer, of_optimizer),
        backward=sum(k <= loss for k in backward.numbers),
        needs_all=_needs_all(whole_function(module, OPTIMIZER, {}), len(numbers)),
        fixed=kept - divided + constants,
        data=sum(t.nbytes for t in (*given, *labels)),
        call=max(0.0, alone.wall - sum(alone.seconds)),
        alone=alone.wall,
    )


@dataclass(frozen=True)
class _Measured:
    """A function's kernels in order: names, seconds, and the plan that they follow."""

    names: tuple[str, ...]
    seconds: tuple[float, ...]
    wall: float
    layout: Layout
    touched: tuple[frozenset[int], ...]  # numbers of the inputs that each kernel reads or overwrites

    @staticmethod
    def of(function: CompiledFunction, flat: Sequence[Tensor], runs: int) -> _Measured:
        call: Any = function.bind(flat)
        call()
        reports: list[Report] = [call.profile() for _ in range(runs)]
        seconds = tuple(median(r.calls[k].microseconds for r in reports) / 1e6 for k in range(len(reports[0].calls)))
        executable = function.executable
        assert executable.target is not None
        plan = plan_function(executable.module, function.name, function.sizes_of(flat), executable.target)
        names, wall = tuple(c.name for c in reports[0].calls), median(r.wall for r in reports) / 1e6
        touched = tuple(_touched(plan))
        assert tuple(plan.steps) == names and len(touched) == len(names)
        return _Measured(names, seconds, wall, Layout.of(plan), touched)

    @property
    def numbers(self) -> list[int]:
        """Of each kernel, its number among kernels and checks, by which the layout counts."""
        return [k for k, name in enumerate(self.layout.timeline) if name != "check"]

    def kernels(self, params: dict[int, int], given: dict[int, int]) -> tuple[Kernel, ...]:
        """The kernels: ``params`` and ``given`` have the numbers of parameters, by those of the inputs that hold them,
        and in whose memory their results are."""
        ready: dict[int, list[int]] = {}
        for place in self.layout.places:
            if place.role == "result" and place.place == "input" and place.index in given:
                ready.setdefault(place.first, []).append(given[place.index])
        found = []
        for name, seconds, touched, k in zip(self.names, self.seconds, self.touched, self.numbers, strict=True):
            reads, live = {params[i] for i in touched if i in params}, sum(bytes_at(self.layout.places, k).values())
            found.append(Kernel(name, seconds, tuple(sorted(reads)), tuple(sorted(ready.get(k, ()))), live))
        return tuple(found)


def _touched(plan: Plan) -> Iterator[frozenset[int]]:
    """Of each kernel call, the numbers of the inputs among its buffers."""
    inputs = {id(buffer): k for k, buffer in enumerate(plan.host.params[: len(plan.inputs)])}
    for node in walk(plan.host.body):
        if isinstance(node, (KernelCall, HostCall)):
            yield frozenset(inputs[id(b)] for b in node.buffers if id(b) in inputs)


def _overwriting(function: Function, results: Sequence[int]) -> Function:
    """The function, whose last results, these, take over the memory of as many more parameters."""
    infos = flat_infos(function.ret_struct_info)
    assert list(results) == list(range(len(infos) - len(results), len(infos)))
    more = [Var(f"into_{k}", infos[k]) for k in results]
    first = sum(len(flat_infos(p.struct_info)) for p in function.params)
    attrs = dict(function.attrs) | {"donate": tuple(range(first, first + len(more))), "private": True}
    return Function((*function.params, *more), function.body, function.ret_struct_info, attrs, span=function.span)


def _needs_all(function: Function, gradients: int) -> bool:
    """Whether the new value of any parameter depends on several gradients: of the optimizer function, which takes and
    gives a tuple of parameters first, and takes one of gradients second."""
    roots: dict[Var, frozenset[int]] = {}
    fields: dict[Var, list[frozenset[int]]] = {function.params[1]: [frozenset([k]) for k in range(gradients)]}

    def of(expr: Expr) -> frozenset[int]:
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Var) and expr.tuple_value in fields:
            return fields[expr.tuple_value][expr.index]
        found = (roots.get(v) or frozenset().union(*fields.get(v, ())) for v in used_vars(expr))
        return frozenset().union(*found)

    def parts(expr: Expr) -> list[frozenset[int]]:
        if isinstance(expr, Var) and expr in fields:
            return fields[expr]
        return [of(f) for f in expr.fields] if isinstance(expr, Tuple) else [of(expr)]

    for binding in function.bindings:
        roots[binding.var] = of(binding.value)
        if isinstance(binding.value, Tuple):
            fields[binding.var] = parts(binding.value)
    result = function.body.body
    updated = result.fields[0] if isinstance(result, Tuple) else result
    return any(len(found) > 1 for found in parts(updated))


def _gradients(function: Function, results: Sequence[int]) -> list[Tensor]:
    """Memory for results of a function."""
    infos = flat_infos(function.ret_struct_info)
    return [zeros(infos[k].shape, infos[k].dtype) for k in results]  # type: ignore[union-attr,arg-type]


def _elements(slot: Slot) -> int:
    return math.prod(slot.info.sizes)  # type: ignore[arg-type]


def _states_of(interface: Interface) -> dict[str, tuple[tuple[int, int], ...]]:
    """Elements and bytes of an element of the optimizer states that belong to each parameter and have its shape."""
    params = {s.name: s.info.sizes for s in interface.params}
    found: dict[str, list[tuple[int, int]]] = {}
    for label, slot in zip(interface.record.optimizer_states, interface.optimizer_states, strict=True):
        owner = label.partition(" of ")[2]
        if owner in params and slot.info.sizes == params[owner]:
            found.setdefault(owner, []).append((_elements(slot), slot.numpy_dtype.itemsize))
    return {name: tuple(states) for name, states in found.items()}
