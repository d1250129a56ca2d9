"""VMap: a function of one element becomes a function of a batch.

    def f(x, w):                       def f_vmap(x, w):                       # x has one more axis
        y = R.matmul(x, w)                 y = R.matmul(x, w)
        z = R.sum(y)            →          z = R.sum(y, axis=1)
        return z                           return z

Every value either has the axis of the batch, before its own, or is the same for all elements. What is made of a call is
said in ``relax/op/batching.py``. A branch whose condition has the axis computes both sides, and chooses element by
element; a loop whose condition or count has it goes on while any element does, and keeps the values of the others. A
handle never has the axis: the tensors in its box have it, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import GlobalVar, IRModule, own_attributes
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.boxes import BOX, NULL, UNBOX, box, is_boxing, is_handle, unbox
from pullback.relax.control import BRANCH, CUSTOM, LOOP, STEP, branch, custom, loop, row, with_floats
from pullback.relax.expr import Binding, Call, Expr, Function, MatchCast, Tuple, TupleGetItem, Var
from pullback.relax.op.batching import batch_info, over_batch, with_axis
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.op.namespace import ops
from pullback.relax.op_calls import is_call_tir, kernel_name, kernel_sizes
from pullback.relax.recursion import RECURSE, SELF, call_self, has_recursion, outer_labels, recurse
from pullback.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_tensor,
    fields_of,
    flat_infos,
    format_info,
    symbolic_vars,
)
from pullback.relax.transform.batch_ending import Ending
from pullback.relax.transform.batch_values import (
    Value,
    any_flag,
    expr_of,
    flags_of,
    like,
    moved_axis,
    nested,
    parts_of,
    tensors_of,
    value_of,
    with_flag,
    with_tensors,
)
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.joint_region import leaves
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.tir.batched import batched
from pullback.tir.expr import Buffer
from pullback.tir.expr import Var as SizeVar
from pullback.tir.stmt import PrimFunc

Axes = Any  # an axis for all parameters or results, or one for each; None: it has no axis of the batch


@guided
@dataclass(frozen=True)
class VMap(Pass):
    """Add ``<f>_vmap``, which computes f for each element of a batch.

    Args:
        func_name: the function, a name or a GlobalVar.
        in_axes: which axis of each parameter the batch is along; a sequence of them, or one for all; None: it is the
            same for all elements. The tensors of a tuple have theirs in common.
        out_axes: which axis of each result the batch is along; all results have it.
        axis_size: how many elements there are; by default that is a symbolic size, which arguments tell.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        ...     return R.sum(a * b)
        >>> module = relax.transform.VMap("main", in_axes=(0, None))(pullback.IRModule({"main": main}))
        >>> vm = relax.VirtualMachine(pullback.compile(module))
        >>> vm["main_vmap"](np.ones((2, 3), "float32"), np.ones(3, "float32"))
        tensor([3., 3.], shape=(2,), dtype=float32)

    Checks: raises ArgumentError where these do not fit the function. The function itself stays.
    """

    func_name: str | GlobalVar
    in_axes: Axes = 0
    out_axes: Axes = 0
    axis_size: int | None = None

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        raised = RaiseOps()(module)
        function = raised[name]
        if not isinstance(function, Function):
            raise ArgumentError(
                f"VMap: {name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        closed = inline_calls(function, raised)
        axes = _for_each("in_axes", self.in_axes, [p.struct_info for p in function.params], "parameters")
        if all(axis is None for axis in axes):
            raise ArgumentError(f"VMap: no parameter of {name} has the axis of the batch", hint="in_axes=0")
        size = _size_for(function) if self.axis_size is None else whole("axis_size", self.axis_size)
        result = module.copy()
        result[f"{name}_vmap"] = _VMap(result, size).function(closed, axes, self.out_axes)
        return result


def _for_each(what: str, given: Axes, infos: Sequence[StructInfo], of: str) -> list[int | None]:
    """The axis for each parameter or result, counted from the front."""
    if isinstance(given, (tuple, list)):
        if len(given) != len(infos):
            hint = "one number for all, or a number or None for each"
            raise ArgumentError(f"VMap: {what} has {len(given)} entries for {len(infos)} {of}", hint=hint)
        axes = list(given)
    else:
        axes = [given] * len(infos)
    return [_axis(what, axis, info) for axis, info in zip(axes, infos, strict=True)]


def _axis(what: str, axis: Any, info: StructInfo) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ArgumentError(f"VMap: {what} are numbers of axes or None, got {axis!r}", hint="in_axes=(0, None)")
    ndim = min((i.ndim for i in _leaves_of(info)), default=0) + 1
    if not -ndim <= axis < ndim:
        message = f"VMap: {what} says axis {axis}, and with the axis of the batch {format_info(info)} has {ndim}"
        raise ArgumentError(message, hint="0 is the first axis")
    return axis


def _leaves_of(info: StructInfo) -> list[TensorStructInfo]:
    if isinstance(info, TupleStructInfo):
        return [leaf for f in info.fields for leaf in _leaves_of(f)]
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise UserError(f"VMap: {format_info(info)} has no axes", hint="declare the shape")
    return [info]


def _size_for(function: Function) -> SizeVar:
    taken = {v.name for v in symbolic_vars(function.struct_info)}
    name = "batch"
    while name in taken:
        name += "_"
    return SizeVar(name)


class _VMap:
    """What a function and its regions have in common: the module, to which kernels are added, and the batch's size."""

    def __init__(self, module: IRModule, size: int | SizeVar) -> None:
        self.module, self.size = module, size
        self.kernels: dict[Any, str] = {}
        self.recursions: dict[str, _Recursion] = {}  # whose functions are being brought over the batch

    def function(self, function: Function, in_axes: Sequence[int | None], out_axes: Axes) -> Function:
        """The function over the batch, which is along these axes of the parameters and results."""
        params = [
            Var(p.name, p.struct_info if axis is None else self.at_axis(p.struct_info, axis), span=p.span)
            for p, axis in zip(function.params, in_axes, strict=True)
        ]
        infos = fields_of(function.ret_struct_info)
        axes = _for_each("out_axes", out_axes, infos, "results")
        if None in axes:
            raise ArgumentError("VMap: results have the axis of the batch", hint="out_axes are numbers")
        builder = BlockBuilder()
        builder.begin([p.name for p in params])
        with builder.dataflow():
            sweep = Sweep(self, builder)
            for param, outer, axis in zip(function.params, params, in_axes, strict=True):
                sweep.values[param] = value_of(self.moved(outer, axis, True), axis is not None)
            found = sweep.body(function)
            if isinstance(function.ret_struct_info, TupleStructInfo):
                moved = [self.moved(self.whole(v), axis, False) for v, axis in zip(found, axes, strict=True)]
                result = builder.as_output(Tuple(tuple(moved)))
            else:
                result = builder.as_output(self.moved(self.whole(found), axes[0], False))
        attrs = own_attributes(function.attrs)
        return remove_dead_bindings(Function(tuple(params), builder.finish(result), None, attrs, span=function.span))

    def at_axis(self, info: StructInfo, axis: int) -> StructInfo:
        """The type of a batch along an axis."""
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo(tuple(self.at_axis(f, axis) for f in info.fields))
        tensor = as_tensor(info)
        sizes = list(tensor.sizes)
        sizes.insert(axis % (len(sizes) + 1), self.size)
        return TensorStructInfo(sizes, tensor.dtype)

    def moved(self, value: Expr, axis: int | None, to_front: bool) -> Expr:
        """The value with the axis of the batch brought to the front, or from there to its place."""
        if axis is None:
            return value
        if isinstance(value.struct_info, TupleStructInfo):
            return Tuple(tuple(self.moved(part, axis, to_front) for part in parts_of(value)))
        axis = axis % as_tensor(value.struct_info).ndim
        return moved_axis(value, axis, 0) if to_front else moved_axis(value, 0, axis)

    def whole(self, value: Value) -> Expr:
        """The value as an expression that has the axis everywhere but in handles."""
        if isinstance(value, list):
            return Tuple(tuple(map(self.whole, value)))
        if is_handle(value[0].struct_info):
            return value[0]
        return with_axis(value[0], value[1], self.size)

    def region(
        self,
        function: Function,
        has: Sequence[bool],
        arrange: Callable[[Sweep, list[Var], Value], Expr],
        more: Sequence[Var] = (),
    ) -> Function:
        """``function`` over the batch; ``has``: which parameters have the axis. ``more`` are parameters after the
        first one. ``arrange(sweep, params, value)`` gives the result."""
        params = [
            Var(p.name, batch_info(p.struct_info, self.size) if h else p.struct_info, span=p.span)
            for p, h in zip(function.params, has, strict=True)
        ]
        builder = BlockBuilder()
        builder.begin([p.name for p in (*params, *more)])
        with builder.dataflow():
            sweep = Sweep(self, builder)
            value = sweep.over(function, list(zip(params, has, strict=True)))
            result = builder.as_output(arrange(sweep, params, value))
        whole = (*params[:1], *more, *params[1:])
        return remove_dead_bindings(Function(whole, builder.finish(result), span=function.span))

    def flags(self, function: Function, has: Sequence[bool]) -> Any:
        """Which of the results have the axis, where these parameters have it: a list for a tuple."""
        found: list[Any] = []

        def look(sweep: Sweep, params: list[Var], value: Value) -> Expr:
            found.append(flags_of(value))
            return Tuple(())

        self.region(function, has, look)
        return found[0]

    def kernel(self, name: str, has: tuple[bool, ...]) -> str:
        """The name of a kernel of the module over the batch."""
        if (name, has) not in self.kernels:
            function = self.module[name]
            assert isinstance(function, PrimFunc)
            fresh = self.module.unique_name(f"{name}_vmap")
            pairs = zip(function.buffers, has, strict=True)
            whole = {b: Buffer(b.name, (self.size, *b.shape), b.dtype) for b, h in pairs if h}
            params = [whole.get(p, p) if isinstance(p, Buffer) else p for p in function.params]
            params += [] if isinstance(self.size, int) else [self.size]
            body = batched(function.body, whole, self.size)
            self.module[fresh] = PrimFunc(fresh, tuple(params), body, function.attrs, span=function.span)
            self.kernels[name, has] = fresh
        return self.kernels[name, has]


@dataclass
class _Recursion:
    """A recursive function over the batch: which operands have the axis. Its results have it."""

    has: list[bool]


class _EndsByItself(Exception):
    """Whether a function with one of the ``labels`` calls itself differs from element to element."""

    def __init__(self, labels: set[str]) -> None:
        super().__init__()
        self.labels = labels


class Sweep:
    """Goes through the bindings of a closed function; ``values``: what its variables are over the batch."""

    def __init__(self, vmap: _VMap, builder: BlockBuilder) -> None:
        self.vmap, self.builder, self.size = vmap, builder, vmap.size
        self.values: dict[Var, Value] = {}

    def over(self, function: Function, arguments: Sequence[Value]) -> Value:
        """What a region gives for arguments."""
        inner = Sweep(self.vmap, self.builder)
        inner.values.update(zip(function.params, arguments, strict=True))
        return inner.body(function)

    def body(self, function: Function) -> Value:
        for binding in function.bindings:
            with span_scope(binding.span):
                self.values[binding.var] = self.bound(binding)
        return self.value(function.body.body)

    def bound(self, binding: Binding) -> Value:
        value, name = self.value(binding.value, binding.var.name), binding.var.name
        if isinstance(binding, MatchCast):
            expr, has = value
            return self.builder.match_cast(
                expr, batch_info(binding.target, self.size) if has else binding.target, name
            ), has
        return value

    def value(self, expr: Any, name: str = "lv") -> Value:
        if isinstance(expr, Var):
            return self.values[expr]
        if isinstance(expr, Tuple):
            return [self.value(f) for f in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self.value(expr.tuple_value)[expr.index]
        return self.call(expr, name) if isinstance(expr, Call) else (expr, False)

    def call(self, call: Call, name: str) -> Value:
        if not isinstance(call.op, Op):
            raise UserError("a call of an unknown function cannot be brought over a batch", span=call.span)
        if is_boxing(call):
            return self.boxing(call, name)
        rules = {BRANCH: self.branch, LOOP: self.loop, CUSTOM: self.custom, RECURSE: self.recurse, SELF: self.call_self}
        special = rules.get(call.op)
        if special is None and is_call_tir(call):
            special = self.call_tir
        if special is not None:
            values = [self.value(a) if isinstance(a, Expr) else a for a in call.args]
            moves = any(any_flag(flags_of(v)) for v in values if isinstance(v, (list, tuple)))
            if moves or _hands_on_boxes(call) or outer_labels(call) & self.vmap.recursions.keys():
                return special(call, values)
            plain = [expr_of(v) if isinstance(v, (list, tuple)) else v for v in values]
            same = Call(call.op, tuple(plain), call.attrs, call.sinfo_args, call.info, span=call.span)
            return value_of(self.builder.emit(same, name), False)
        found, has = over_batch(call, {a: self.value(a) for a in call.args if isinstance(a, Var)}, self.size)
        return value_of(self.emit(found, name), has)

    def emit(self, expr: Expr, name: str = "lv") -> Expr:
        """The expression, bound to variables."""
        if isinstance(expr, Tuple):
            return Tuple(tuple(self.emit(f, name) for f in expr.fields))
        return expr if isinstance(expr, Var) else self.builder.emit(expr, name)

    def boxing(self, call: Call, name: str) -> Value:
        """All that is boxed has the axis, so what is unboxed has it too."""
        if call.op is BOX:
            return self.builder.emit(box([self.vmap.whole(self.value(a)) for a in call.args]), name), False
        if call.op is UNBOX:
            infos = [i if is_handle(i) else batch_info(i, self.size) for i in fields_of(call.struct_info)]
            return value_of(self.builder.emit(unbox(self.value(call.args[0])[0], infos), name), True)
        return self.builder.emit(call, name), False

    # -- calls with functions and kernels

    def branch(self, call: Call, values: Sequence[Value]) -> Value:
        (condition, is_chosen_by_each), operands = values
        if is_chosen_by_each and self.recurses(call):
            return self.scanned(call, values)
        regions = [call.attrs[name] for name in ("then", "otherwise")]
        if not is_chosen_by_each:
            has = [h for _, h in operands]
            functions = [self.vmap.region(f, has, lambda sweep, params, v: self.vmap.whole(v)) for f in regions]
            result = branch(condition, [e for e, _ in operands], *functions)
            return value_of(self.builder.emit(result, "chosen"), True)
        sides = [parts_of(self.vmap.whole(self.over(f, operands))) for f in regions]
        return [self.chosen(condition, *pair) for pair in zip(*sides, strict=True)]

    def chosen(self, condition: Expr, then: Expr, otherwise: Expr) -> tuple[Expr, bool]:
        """One of two values for each element; of handles the one that is not null, as both sides are computed."""
        if not is_handle(then.struct_info):
            return self.builder.emit(ops.where(like(condition, then), then, otherwise), "chosen"), True
        made = [h for h in (then, otherwise) if not self.is_null(h)]
        if len(made) > 1:
            raise UserError("a branch that each element takes for itself has boxes on both sides in one place")
        return (made or [then])[0], False

    def is_null(self, handle: Expr) -> bool:
        value = self.builder.lookup(handle) if isinstance(handle, Var) else handle
        return isinstance(value, Call) and value.op is NULL

    def custom(self, call: Call, values: Sequence[Value]) -> Value:
        """A function and its adjoint over the batch; what is the same for all elements gets the sum of its adjoints."""
        (operands,) = values
        function, adjoint = call.attrs["function"], call.attrs["adjoint"]
        has = [h for _, h in operands]
        floats = [h for p, h in zip(function.params, has, strict=True) if with_floats([p.struct_info])]

        def summed(sweep: Sweep, params: list[Var], value: Value) -> Expr:
            parts = parts_of(self.vmap.whole(value))
            return Tuple(tuple(p if h else ops.sum(p, axis=0) for p, h in zip(parts, floats, strict=True)))

        seeds = [True] * (len(adjoint.params) - len(has))
        result = custom(
            [e for e, _ in operands],
            self.vmap.region(function, has, lambda sweep, params, v: self.vmap.whole(v)),
            self.vmap.region(adjoint, [*has, *seeds], summed),
        )
        return value_of(self.builder.emit(result, "result"), True)

    def call_tir(self, call: Call, values: Sequence[Value]) -> Value:
        """A user's kernel, in a loop; one with a gradient that the user gave, by a scan."""
        operands = values[1]
        if "te_grad_name" in call.attrs:
            return self.scanned(call, values)
        flags = (*(h for _, h in operands), *[True] * len(call.sinfo_args))
        kernel = GlobalVar(self.vmap.kernel(kernel_name(call), flags))
        sizes = list(kernel_sizes(call))
        sizes += [] if isinstance(self.size, int) else [self.size]
        infos = [batch_info(i, self.size) for i in call.sinfo_args]
        result = call_tir(kernel, Tuple(tuple(e for e, _ in operands)), infos, sizes or None)
        return value_of(self.builder.emit(result, kernel.name), True)

    def recurse(self, call: Call, values: Sequence[Value]) -> Value:
        """A recursive function over the batch; where it ends for each element by itself, one call after another."""
        (operands,), label, around = values, call.attrs["label"], dict(self.vmap.recursions)
        if _hands_on_boxes(call):
            raise _gradient_of_recursion(call)
        function: Function = call.attrs["function"]
        recursion = self.vmap.recursions[label] = _Recursion([h for _, h in operands])
        try:
            before = None
            while before != (before := list(recursion.has)):  # until what has the axis does not grow
                region = self.vmap.region(function, before, lambda sweep, params, v: self.vmap.whole(v))
        except _EndsByItself as error:
            if error.labels != {label}:
                raise
            self.vmap.recursions = around
            return self.scanned(call, values)
        finally:
            self.vmap.recursions = around
        given = [with_flag(v, h, self.size) for v, h in zip(operands, recursion.has, strict=True)]
        return value_of(self.builder.emit(recurse(given, region, label, call.attrs["max_depth"]), label), True)

    def call_self(self, call: Call, values: Sequence[Value]) -> Value:
        (operands,), label = values, call.attrs["label"]
        recursion = self.vmap.recursions[label]
        recursion.has = [a or h for a, (_, h) in zip(recursion.has, operands, strict=True)]
        given = [with_flag(v, h, self.size) for v, h in zip(operands, recursion.has, strict=True)]
        infos = [batch_info(i, self.size) for i in fields_of(call.struct_info)]
        return value_of(self.builder.emit(call_self(given, label, infos), label), True)

    def recurses(self, call: Call) -> bool:
        """Whether functions call themselves in a branch or a loop, which no element may do that does not take it.
        Raises where the function is one around: each element has to call that by itself."""
        labels = outer_labels(call) & self.vmap.recursions.keys()
        if labels:
            raise _EndsByItself(labels)
        return has_recursion(call)

    def scanned(self, call: Call, values: Sequence[Any]) -> Value:
        """One call after another: the elements are the rows of a loop."""
        operands = [leaf for v in values for leaf in tensors_of(v)]
        if _hands_on_boxes(call):
            raise _gradient_of_recursion(call)
        step = Var("step", STEP)
        params = [Var(f"x{k}", row(e.struct_info) if h else e.struct_info) for k, (e, h) in enumerate(operands)]
        order = [k for k, (_, h) in enumerate(operands) if h] + [k for k, (_, h) in enumerate(operands) if not h]
        builder, given = BlockBuilder(), iter(params)
        builder.begin([p.name for p in (step, *params)])
        with builder.dataflow():
            arguments = tuple(with_tensors(v, given) for v in values)
            one = builder.emit(Call(call.op, arguments, call.attrs, call.sinfo_args, call.info, span=call.span))
            ys = builder.as_output(Tuple(tuple(leaves(one))))
        body = Function((step, *(params[k] for k in order)), builder.finish(Tuple((Tuple(()), ys))))
        rows, fixed = ([e for e, h in operands if h == has] for has in (True, False))
        looped = self.builder.emit(loop(None, (), rows, fixed, body, None, self.size), "looped")
        stacks = iter([(self.builder.emit(part), True) for part in parts_of(TupleGetItem(looped, 1))])
        return nested(call.struct_info, stacks)

    def flags_of_loop(
        self, call: Call, carries: Sequence[Any], of_rows: Sequence[bool], fixed: Sequence[bool], counted: bool
    ) -> tuple[list[bool], list[bool], bool] | None:
        """Which carries come to have the axis, which ys have it, and whether each element ends by itself; None where
        each does, and functions call themselves in the loop."""
        body, condition = call.attrs["body"], call.attrs["condition"]
        moves = [has for _, has in carries]
        while True:  # until what has the axis does not grow
            kept, stacked = self.vmap.flags(body, [False, *moves, *of_rows, *fixed])
            alone = counted or (condition is not None and self.vmap.flags(condition, [False, *moves, *fixed]))
            if alone and self.recurses(call):
                return None
            more = [a or b or alone for a, b in zip(moves, kept, strict=True)]
            more = [m and not is_handle(e.struct_info) for m, (e, _) in zip(more, carries, strict=True)]
            if more == moves:
                return moves, stacked, alone
            moves = more

    def loop(self, call: Call, values: Sequence[Value]) -> Value:
        """A loop whose carries have the axis where they come to have it."""
        count, carries, xs, invariants = values
        counts = count if isinstance(count, tuple) else (None, False)  # an empty list: as many steps as rows
        body, condition, size = call.attrs["body"], call.attrs["condition"], self.size
        of_rows, fixed = ([h for _, h in group] for group in (xs, invariants))
        flags = self.flags_of_loop(call, carries, of_rows, fixed, counts[1])
        if flags is None:
            return self.scanned(call, values)
        moves, stacked, alone = flags
        own, asking = (Ending(size, counts[1], condition, moves, fixed) if alone else None for _ in range(2))
        extra = own.params if own is not None else []

        def take(sweep: Sweep, params: list[Var], value: Value) -> Expr:
            if own is None:
                wanted = (moves, stacked)
                groups = [
                    [with_flag(v, m, size) for v, m in zip(g, w, strict=True)]
                    for g, w in zip(value, wanted, strict=True)
                ]
            else:
                groups = own.step(sweep, params, value)
            return Tuple(tuple(Tuple(tuple(group)) for group in groups))

        def ask_all(sweep: Sweep, params: list[Var], value: Value) -> Expr:
            return value[0] if asking is None else ops.any(asking.going(params[0], with_axis(value[0], value[1], size)))

        new_body = self.vmap.region(body, [False, *moves, *of_rows, *fixed], take, extra)
        new_condition = None
        if condition is not None:
            new_condition = self.vmap.region(
                condition, [False, *moves, *fixed], ask_all, asking.params if asking is not None else []
            )
        begin = [with_flag(v, m, size) for v, m in zip(carries, moves, strict=True)]
        rows = [moved_axis(x, 0, 1) if has else x for x, has in xs]
        attrs = call.attrs
        looped = self.builder.emit(
            loop(
                ops.max(counts[0]) if counts[1] else counts[0],
                [*(own.begin(counts[0]) if own is not None else ()), *begin], rows, [e for e, _ in invariants],
                new_body, new_condition, attrs["length"], attrs["reverse"], attrs["checkpoint"],
            ),
            "looped",
        )  # fmt: skip
        groups = [self.builder.emit(TupleGetItem(looped, k)) for k in range(3)]
        first = len(extra)
        after = [(self.builder.emit(TupleGetItem(groups[0], first + k)), m) for k, m in enumerate(moves)]
        ys = [(self.builder.emit(TupleGetItem(groups[1], k)), alone or h) for k, h in enumerate(stacked)]
        batched_ys = [(y, has and not is_handle(y.struct_info)) for y, has in ys]
        found = [(self.emit(moved_axis(y, 1, 0)) if h else y, h) for y, h in batched_ys]
        steps = (groups[2], False) if own is None else (self.builder.emit(TupleGetItem(groups[0], 1), "steps"), True)
        return [after, found, steps]


def _gradient_of_recursion(call: Call) -> UserError:
    label = call.attrs.get("label", "that is called here")
    message = f"the gradient of the recursive function {label} cannot be brought over a batch"
    hint = "bring the function itself over the batch, and differentiate that: VMap, then Gradient"
    return UserError(message, span=call.span, hint=hint)


def _hands_on_boxes(call: Call) -> bool:
    """Whether handles come into it or out of it."""
    infos = [call.struct_info, *(a.struct_info for a in call.args if isinstance(a, Expr))]
    return any(is_handle(leaf) for info in infos for leaf in flat_infos(info))
