"""JoinRun: a whole training, epochs and batches, as one function of the trainer module.

    train(inputs, targets, params, states, optim_states, epochs, order)
        -> (losses, epochs done, new params, new states, new optim_states)

    for epoch in range(epochs):                          while it is not to stop
        for rows in order[epoch] cut into batches:       then what is left, with a step of its own
            params, states, optim_states, loss = step(inputs[rows], targets[rows], params, states, optim_states)
        losses[epoch] = mean of the losses of the batches

All but ``epochs`` and ``order`` are tuples of tensors. Inputs and targets hold all rows of the data set, in the
declared dtypes; ``states`` are the model's, then the random state of one that draws; ``order`` has a row for each
epoch, the numbers of the data's rows as they are to come, and ``losses`` a float64 for each, NaN of epochs that were
not run. It is what ``fit`` does with the same order, without Python between the steps: rows are gathered, losses of
batches weighed by their divisors, and random numbers counted on in the same way.

The loops are those of the graph IR: epochs a ``fori_loop``, or a ``while_loop`` with a ``stop``; batches a ``scan``
over a row of ``order``. What they call is the step of ``JoinStep``, inlined, as the private function ``__train_step``,
and for the rows that are left ``__train_last_step``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import structural_equal
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import called_functions
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import fori_loop, scan, while_loop
from pullback.relax.convention import (
    ATTRIBUTE,
    DIVISOR_VALUE,
    EPOCHS,
    INPUT,
    LOSS_VALUE,
    LOSSES,
    OF_OPTIMIZER,
    ORDER,
    PARAMETER,
    RANDOM,
    STATE,
    STEP,
    TARGET,
    TRAIN,
    Convention,
    Roles,
    Value,
)
from pullback.relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var, const
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import Dim, StructInfo, TensorStructInfo, TupleStructInfo, as_tuple
from pullback.relax.training.data import in_batches
from pullback.relax.training.interface import Interface
from pullback.relax.training.rebatch import rebatched
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.join_step import JoinStep
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.tir.expr import Var as SizeVar

_STEP, _LAST_STEP = "__train_step", "__train_last_step"
_COUNT = TensorStructInfo((), "int64")
_SUM = TensorStructInfo((), "float64")


@guided
@dataclass(frozen=True)
class JoinRun(Pass):
    """Add ``train`` to a trainer module: a training over ``rows`` rows as one function.

        for batch in batches: __step(batch, …)        →        train(inputs, targets, params, …, epochs, order)

    >>> module = SetupTrainer(loss, optimizer, [prediction_info, target_info])(model)
    >>> module = JoinRun(rows=len(x), stop=lambda epoch, losses: R.take(losses, epoch) < 0.1)(module)
    >>> vm = relax.VirtualMachine(pullback.compile(module), device)
    >>> found = vm["train"]((x,), (y,), params, states, optim_states, epochs, order)
    >>> losses, done, params, states, optim_states = found

    Args:
        rows: of the data.
        batch_size: by default that of the model. The last batch of an epoch has the rows that are left, unless
            ``drop_last``.
        drop_last: leaves out the rows at the end that are no whole batch.
        max_epochs: the first size of ``order``; by default it is symbolic. To ask for more epochs than ``order`` has
            rows is an error when it runs, and so is a row number that is none.
        stop: a function of graph values, ``stop(epoch, losses)``, which is asked after each epoch: its number, from 0
            on, and the losses so far, with NaN behind them. It gives a bool scalar: whether that was the last epoch.

    Raises:
        ArgumentError: for what is no trainer module and for numbers that make no batch.
        UserError: where the model cannot be derived for batches of that size, and for a module of several ranks.

    Checks: as above. The step's functions stay.
    """

    rows: int
    batch_size: int | None = None
    drop_last: bool = False
    max_epochs: int | None = None
    stop: Callable[[Var, Var], Any] | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "batch_size", "max_epochs"):
            value = getattr(self, name)
            if (value is not None or name == "rows") and (type(value) is not int or value < 1):
                raise ArgumentError(f"{name} must be an int ≥ 1, got {value!r}", hint="give a whole number, 1 or more")
        if not isinstance(self.drop_last, bool):
            raise ArgumentError(f"drop_last must be True or False, got {self.drop_last!r}")
        if self.stop is not None and not callable(self.stop):
            hint = "stop=lambda epoch, losses: R.take(losses, epoch) < 0.1"
            raise ArgumentError(f"stop must be a function of graph values, got {self.stop!r:.60}", hint=hint)

    def run(self, module: IRModule) -> IRModule:
        interface = Interface.of(module)
        if interface.distributed is not None:
            message = f"JoinRun joins a training of one process, and this one is that of {interface.distributed.ranks}"
            raise UserError(f"{message} ranks", hint="set it up without distributed=; trainer.fit trains on all ranks")
        size = self._size(interface)
        whole, left = in_batches(self.rows, size, self.drop_last)
        result = module.copy()
        steps: dict[int, GlobalVar] = {}
        if whole:
            steps[size] = _add_step(result, _STEP, *_step(module, interface, size))
        if left:
            is_same = whole and not isinstance(interface.batch, int)  # any number of rows
            steps[left] = steps[size] if is_same else _add_step(result, _LAST_STEP, *_step(module, interface, left))
        run = _Run(interface, self, steps, size, whole, left)
        result[TRAIN] = function = run.function()
        roles = Convention({**interface.convention.functions, TRAIN: run.roles})
        roles._check(TRAIN, run.roles, function)
        return result.with_attr(ATTRIBUTE, roles.attribute)

    def _size(self, interface: Interface) -> int:
        """The number of rows of a batch."""
        batch = interface.batch
        if batch is None:
            raise ArgumentError("the model's first input has no batch dimension, so there are no rows to run over")
        if self.batch_size is None and not isinstance(batch, int):
            hint = "JoinRun(rows=1000, batch_size=64)"
            raise ArgumentError("the model takes any number of rows, so JoinRun needs a batch_size", hint=hint)
        size = self.batch_size if self.batch_size is not None else int(batch)
        if self.drop_last and self.rows < size:
            message = f"drop_last leaves no batch: there are {self.rows} rows, and batches have {size}"
            raise ArgumentError(message, hint="give a smaller batch_size, or leave drop_last out")
        return size


def _step(module: IRModule, interface: Interface, rows: int) -> tuple[Function, IRModule]:
    """The step for batches of so many rows, in ops and without calls of graph functions; and the module that has its
    kernels."""
    module = RaiseOps()(module)
    if isinstance(interface.batch, int) and interface.batch != rows:
        module = rebatched(module, interface, rows, trains=True)
    joined = JoinStep()(module)
    step = inline_calls(joined[STEP], joined)
    return Function(step.params, step.body, step.ret_struct_info, {"private": True}, span=step.span), joined


def _add_step(result: IRModule, name: str, step: Function, origin: IRModule) -> GlobalVar:
    """Add a step, and the kernels of its module that it calls, under other names where these are taken."""
    names: dict[str, str] = {}
    for kernel in called_functions(step):
        names[kernel] = kernel
        if kernel in result and not structural_equal(result[kernel], origin[kernel]):
            names[kernel] = result.unique_name(kernel)
        result[names[kernel]] = origin[kernel]
    changed = {old: new for old, new in names.items() if old != new}
    result[name] = _Renamed(changed, result).function(step) if changed else step
    return result.get_global_var(name)


class _Renamed(ExprMutator):
    def __init__(self, names: Mapping[str, str], module: IRModule) -> None:
        super().__init__()
        self.names, self.module = names, module

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, GlobalVar) and expr.name in self.names:
            return self.module.get_global_var(self.names[expr.name])
        return super().expr(expr)


@dataclass(frozen=True)
class _Run:
    """What the function is made of. ``steps``: by number of rows."""

    interface: Interface
    options: JoinRun
    steps: Mapping[int, GlobalVar]
    size: int
    whole: int
    left: int

    @property
    def kept(self) -> tuple[Value, ...]:
        return self.interface.convention.kept

    @property
    def roles(self) -> Roles:
        step = self.interface.convention[STEP]
        data = [v for kind in (INPUT, TARGET) for v in sorted(step.takes) if v[0] == kind]
        takes = (*data, *self.kept, (EPOCHS, 0), (ORDER, 0))
        return Roles(takes, ((LOSSES, 0), (EPOCHS, 0), *self.kept))

    def function(self) -> Function:
        most: Dim = SizeVar("epochs", "int64") if self.options.max_epochs is None else self.options.max_epochs
        order = Var("order", TensorStructInfo((most, self.options.rows), "int64"))
        epochs = Var("epochs", _COUNT)
        groups = (
            Var("inputs", self._data(self.interface.inputs)),
            Var("targets", self._data(self.interface.targets)),
            Var("params", _types(self.interface.params)),
            Var("states", _types((*self.interface.states, *self.interface.random))),
            Var("optim_states", _types(self.interface.optimizer_states)),
        )
        params = (*groups, epochs, order)
        builder = BlockBuilder()
        builder.begin([p.name for p in params])
        fields = [[builder.emit(TupleGetItem(g, k), f"{g.name}_{k}") for k in range(_count(g))] for g in groups]
        data, kept = [*fields[0], *fields[1]], [v for group in fields[2:] for v in group]
        losses = builder.emit(ops.full(TensorStructInfo((most,), "float64").shape, float("nan"), "float64"), "losses")
        epoch = builder.emit(self._epoch(data, order, [v.struct_info for v in kept], losses.struct_info), "epoch")
        if self.options.stop is None:
            looped = builder.emit(fori_loop(epochs, epoch, [*kept, losses], self.options.max_epochs), "trained")
            done: Expr = epochs
            values: list[Expr] = [TupleGetItem(looped, k) for k in range(len(kept) + 1)]
        else:
            done, values = self._until(builder, epoch, epochs, [*kept, losses])
        *new, found = values
        body = builder.finish(Tuple((found, done, *self._grouped(new))))
        return Function(params, body, span=None)

    def _until(
        self, builder: BlockBuilder, epoch: Var, epochs: Var, carries: Sequence[Expr]
    ) -> tuple[Expr, list[Expr]]:
        """The loop that may stop: how many epochs it made, and the carries after it."""
        stop = self.options.stop
        assert stop is not None
        infos = [_COUNT, TensorStructInfo((), "bool"), *(c.struct_info for c in carries)]

        def goes_on(inner: BlockBuilder, number: Var, goes: Var, *_: Var) -> Expr:
            return ops.logical_and(ops.less(number, epochs), goes)

        def body(inner: BlockBuilder, number: Var, _: Var, *values: Var) -> Expr:
            after = inner.emit(epoch(number, *values), "after")
            new = [inner.emit(TupleGetItem(after, k)) for k in range(len(values))]
            last = inner.emit(stop(number, new[-1]), "last")
            if not isinstance(last.struct_info, TensorStructInfo) or last.struct_info != TensorStructInfo((), "bool"):
                hint = "a comparison of scalars is one: R.take(losses, epoch) < 0.1"
                raise ArgumentError(f"stop must give a bool scalar, it gives {last.struct_info}", hint=hint)
            return Tuple((ops.add(number, const(1, "int64")), ops.logical_not(last), *new))

        condition, function = (builder.emit(_traced(f, infos), n) for f, n in ((goes_on, "goes_on"), (body, "body")))
        begin = [const(0, "int64"), Constant(np.array(True)), *carries]
        looped = builder.emit(while_loop(condition, function, begin, self.options.max_epochs), "trained")
        return TupleGetItem(looped, 0), [TupleGetItem(looped, k + 2) for k in range(len(carries))]

    def _epoch(self, data: Sequence[Var], order: Var, kept: Sequence[StructInfo], losses: StructInfo) -> Function:
        """(number, what is kept…, losses) -> (what is kept…, losses) after one epoch."""

        def epoch(builder: BlockBuilder, number: Var, *carries: Var) -> Expr:
            rows = builder.emit(ops.take(order, number, axis=0), "rows")
            is_there = ops.greater_equal(rows, const(0, "int64"))  # take counts negative ones from the end
            rows = builder.emit(ops.where(is_there, rows, const(self.options.rows, "int64")), "rows")
            zero = const(0.0, "float64")
            values: list[Expr] = [*carries[:-1], zero, zero]
            first = self.whole * self.size
            if self.whole:
                own = ops.reshape(_slice(rows, 0, first), (self.whole, self.size))
                body = builder.emit(self._batch(data, self.steps[self.size], self.size, [*kept, _SUM, _SUM]), "batch")
                result = builder.emit(scan(body, values, (builder.emit(own, "batches"),)), "scanned")
                after = builder.emit(TupleGetItem(result, 0), "after")
                values = [builder.emit(TupleGetItem(after, k)) for k in range(len(values))]
            if self.left:
                own = builder.emit(_slice(rows, first, first + self.left), "last_rows")
                values = self._stepped(builder, data, self.steps[self.left], values, own)
            *new, total, divisor = values
            if (DIVISOR_VALUE, 0) not in self.interface.convention[STEP].returns:  # it adds up
                divisor = const(float(first + self.left), "float64")
            loss = ops.reshape(ops.divide(total, divisor), (1,))
            return Tuple((*new, ops.scatter_elements(carries[-1], ops.reshape(number, (1,)), loss)))

        return _traced(epoch, [_COUNT, *kept, losses])

    def _batch(self, data: Sequence[Var], step: GlobalVar, rows: int, carries: Sequence[StructInfo]) -> Function:
        """(what is kept…, sum of losses, of divisors, rows of a batch) -> (these after a step, ())."""

        def batch(builder: BlockBuilder, *given: Var) -> Expr:
            *values, own = given
            return Tuple((Tuple(tuple(self._stepped(builder, data, step, values, own))), Tuple(())))

        return _traced(batch, [*carries, TensorStructInfo((rows,), "int64")])

    def _stepped(
        self, builder: BlockBuilder, data: Sequence[Var], step: GlobalVar, values: Sequence[Expr], rows: Expr
    ) -> list[Expr]:
        """What is kept, and the sums, after a step on these rows."""
        *kept, total, counted = values
        slots = (*self.interface.inputs, *self.interface.targets)
        pairs = zip(slots, data, strict=True)
        batch = [builder.emit(ops.take(d, rows, axis=0)) if self.interface.has_rows(s) else d for s, d in pairs]
        given = dict(zip(self.roles.takes[: len(data)], batch, strict=True)) | dict(zip(self.kept, kept, strict=True))
        roles = self.interface.convention[STEP]
        result = builder.emit(step(*roles.arrange(given)), "step")
        new = {v: builder.emit(TupleGetItem(result, k)) for k, v in enumerate(roles.returns)}
        loss = ops.astype(new[LOSS_VALUE, 0], "float64")
        if (DIVISOR_VALUE, 0) in new:  # a batch that counts nothing has a loss that is no number
            divisor = builder.emit(ops.astype(new[DIVISOR_VALUE, 0], "float64"))
            zero = const(0.0, "float64")
            loss = ops.where(ops.equal(divisor, zero), zero, ops.multiply(loss, divisor))
            counted = builder.emit(ops.add(counted, divisor))
        total = builder.emit(ops.add(total, loss))
        return [*(new[v] for v in self.kept), total, counted]

    def _data(self, slots: Sequence[Any]) -> TupleStructInfo:
        """The types of the whole data."""
        interface, rows = self.interface, self.options.rows
        return TupleStructInfo(
            tuple(
                TensorStructInfo((rows, *s.info.sizes[1:]), s.info.dtype) if interface.has_rows(s) else s.info
                for s in slots
            )
        )

    def _grouped(self, kept: Sequence[Expr]) -> list[Tuple]:
        """What is kept, as it is taken: parameters, states, the optimizer's states."""
        pairs = list(zip(self.kept, kept, strict=True))
        groups = ((PARAMETER,), (STATE, RANDOM), OF_OPTIMIZER)
        return [Tuple(tuple(e for (kind, _), e in pairs if kind in kinds)) for kinds in groups]


def _traced(function: Callable[..., Expr], infos: Sequence[StructInfo]) -> Function:
    """The graph function that ``function(builder, *variables)`` gives."""
    params = tuple(Var(f"v_{k}", info) for k, info in enumerate(infos))
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    return Function(params, builder.finish(function(builder, *params)))


def _types(slots: Sequence[Any]) -> TupleStructInfo:
    return TupleStructInfo(tuple(slot.info for slot in slots))


def _count(var: Var) -> int:
    return len(as_tuple(var.struct_info).fields)


def _slice(x: Expr, first: int, last: int) -> Expr:
    return ops.strided_slice(x, (0,), (first,), (last,))
