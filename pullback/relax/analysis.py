"""Facts about graph functions: free variables, well-formedness, users of a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.declared import declared_of
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from pullback.relax.matching import bind_sizes, match_info
from pullback.relax.op_calls import has_effects, is_call_tir, kernel_name, kernel_sizes
from pullback.relax.recursion import RECURSE, check_self
from pullback.relax.regions import is_self, regions
from pullback.relax.struct_info import (
    Dim,
    TensorStructInfo,
    fields_of,
    format_info,
    symbolic_vars,
)
from pullback.tir.bounds import check_bounds
from pullback.tir.expr import Buffer
from pullback.tir.expr import Var as SizeVar
from pullback.tir.stmt import BufferStore, PrimFunc
from pullback.tir.visitor import statements

ATOMS = (Var, Constant, ShapeExpr, PrimValue, GlobalVar)


def sub_exprs(expr: Any) -> Iterator[Any]:
    """The direct sub-expressions of an expression (not those inside functions and branches)."""
    if isinstance(expr, Call):
        if isinstance(expr.op, Expr):
            yield expr.op
        yield from expr.args
    elif isinstance(expr, Tuple):
        yield from expr.fields
    elif isinstance(expr, TupleGetItem):
        yield expr.tuple_value
    elif isinstance(expr, If):
        yield expr.condition


def used_vars(expr: Any) -> Iterator[Var]:
    """The variables in an expression, in order, with repetitions; those of a part that is there twice, once. Of a
    function or a branch, those around it that it reads."""
    rest, seen = [expr], set()
    while rest:
        current = rest.pop()
        if isinstance(current, Var):
            yield current
        elif isinstance(current, (Call, Tuple, TupleGetItem, If)) and id(current) not in seen:
            seen.add(id(current))
            rest += reversed(list(sub_exprs(current)))
            if isinstance(current, If):
                yield from _free_in(current.then, ())
                yield from _free_in(current.otherwise, ())
        elif isinstance(current, Function) and id(current) not in seen:
            seen.add(id(current))
            yield from free_vars(current)


def post_order_visit(expr: Any, visit: Any) -> None:
    """Call ``visit`` on every node of an expression or function, operands first."""
    if isinstance(expr, (Function, SeqExpr)):
        for binding in expr.bindings:
            post_order_visit(binding.value, visit)
        post_order_visit(expr.body if isinstance(expr, SeqExpr) else expr.body.body, visit)
        visit(expr)
        return
    rest = [(expr, False)]
    while rest:
        current, is_done = rest.pop()
        if isinstance(current, Function):
            post_order_visit(current, visit)
            continue
        if is_done:
            for body in inner_bodies(current):
                post_order_visit(body, visit)
            visit(current)
            continue
        rest.append((current, True))
        rest += [(sub, False) for sub in reversed(list(sub_exprs(current)))]
        if isinstance(current, Call) and not isinstance(current.op, Expr):
            visit(current.op)


def inner_bodies(expr: Any) -> list[Function | SeqExpr]:
    """The bodies inside an expression: the branches of an if, and the regions of a call."""
    if isinstance(expr, If):
        return [expr.then, expr.otherwise]
    return [function for _, function in regions(expr)]


def users(function: Function) -> dict[Var, list[Binding]]:
    """The bindings that read each variable."""
    result: dict[Var, list[Binding]] = {}
    for binding in function.bindings:
        for var in dict.fromkeys(used_vars(binding.value)):
            result.setdefault(var, []).append(binding)
    return result


def called_functions(function: Any) -> list[str]:
    """Names of the module's functions that a function, or an expression, mentions."""
    names: dict[str, None] = {}
    rest: list[Any] = [function]
    while rest:
        expr = rest.pop()
        if isinstance(expr, GlobalVar):
            names[expr.name] = None
        elif isinstance(expr, (Function, SeqExpr)):
            body = expr if isinstance(expr, SeqExpr) else expr.body
            rest += [body.body, *(b.value for b in reversed(list(body.bindings)))]
        elif isinstance(expr, Call):
            rest += [*reversed(inner_bodies(expr)), *reversed(expr.args), expr.op]
        else:
            rest += [*reversed(inner_bodies(expr)), *reversed(list(sub_exprs(expr)))]
    return list(names)


def free_vars(function: Function) -> list[Var]:
    """Variables that are used but neither parameters nor bound before. A function inside may call itself."""
    return _free_in(function.body, function.params)


def _free_in(body: SeqExpr, params: Sequence[Var]) -> list[Var]:
    bound = set(params)
    free: dict[Var, None] = {}
    for binding in body.bindings:
        if isinstance(binding.value, Function):
            bound.add(binding.var)
        free.update((v, None) for v in used_vars(binding.value) if v not in bound)
        bound.add(binding.var)
    free.update((v, None) for v in used_vars(body.body) if v not in bound)
    return list(free)


def well_formed(module: IRModule | Function) -> bool:
    """Whether :func:`check_well_formed` finds nothing."""
    try:
        check_well_formed(module)
    except UserError:
        return False
    return True


def check_well_formed(module: IRModule | Function) -> None:
    """Raise a UserError at the first breach: a variable used before or outside its scope, bound twice, or shadowed; an
    argument that is no atom; a dataflow variable that leaves its block; an unknown function; a size bound nowhere; a
    kernel that is called with values it does not take, or that reads or writes beside its buffers."""
    functions = module.functions if isinstance(module, IRModule) else {"function": module}
    for name, function in functions.items():
        if isinstance(function, Function):
            _Checker(name, functions if isinstance(module, IRModule) else None).check(function)
        elif isinstance(function, PrimFunc):
            check_bounds(function)


class _Checker:
    """Goes through one function, and raises at the first breach of form."""

    def __init__(self, name: str, functions: Mapping[str, Any] | None) -> None:
        self.name, self.functions = name, functions
        self.kernels: dict[str, _KernelType] = {}  # of those that have been called
        self.visible: set[Var] = set()
        self.known_sizes: set[Any] = set()
        self.recursions: dict[str, Call] = {}  # those around, by their labels

    def check(self, function: Function) -> None:
        declared_of(function)  # raises where that does not fit
        self.params(function)
        self.body(function.body, function)

    def bind(self, var: Var) -> None:
        if var in self.visible:
            raise UserError(f"{self.name}: variable {var.name} is bound twice", span=var.span)
        self.visible.add(var)

    def use(self, expr: Any, node: Any) -> None:
        for var in used_vars(expr):
            if var not in self.visible:
                message = f"{self.name}: variable {var.name} is used where it is not defined"
                raise UserError(message, span=node.span, hint="make it a parameter of the function, or bind it before")
        if self.functions is None:
            return
        for sub in [expr, *sub_exprs(expr)]:
            if isinstance(sub, GlobalVar):
                self.require(self.functions, sub.name, "names", node)
        if isinstance(expr, Call):
            self.call(expr, self.functions, node)

    def require(self, functions: Mapping[str, Any], name: str, verb: str, node: Any) -> None:
        """Raise unless the module has the function that something ``names`` or ``calls``."""
        if name not in functions:
            raise UserError(
                f"{self.name}: there is no function {name} in the module",
                span=node.span,
                hint=f"add it to the module, or mend the name: cls.name {verb} a function of the module",
            )

    def call(self, call: Call, functions: Mapping[str, Any], node: Any) -> None:
        callee = call.op
        if isinstance(callee, GlobalVar):
            self.require(functions, callee.name, "calls", node)
            if not isinstance(functions[callee.name], Function):
                hint = f"write R.call_tir(cls.{callee.name}, (x, …), R.Tensor(…))"
                message = f"{self.name}: {callee.name} is a kernel of the loop IR, not a graph function"
                raise UserError(message, span=node.span, hint=hint)
        if is_call_tir(call):
            kernel = kernel_name(call)
            if kernel not in self.kernels:
                self.kernels[kernel] = _KernelType.of(self.name, kernel, functions[kernel], node.span)
            self.kernels[kernel].check_call(self.name, call, node.span)

    def params(self, inner: Function) -> None:
        for param in inner.params:
            if isinstance(param, DataflowVar):
                message = f"{self.name}: parameter {param.name} cannot be a dataflow variable"
                raise UserError(message, span=param.span)
            self.bind(param)
            self.known_sizes.update(symbolic_vars(param.struct_info))

    def inner(self, value: Any) -> None:
        """What stands inside of a value: what it binds is not visible outside."""
        outer, around = self.visible, self.recursions
        if isinstance(value, Call) and value.op is RECURSE:
            self.recursions = {**around, value.attrs["label"]: value}
        elif is_self(value):
            check_self(value, around.get(value.attrs["label"]))
        for body in [value] if isinstance(value, Function) else inner_bodies(value):
            self.visible = set() if isinstance(value, Call) else set(outer)
            if isinstance(body, Function):
                self.params(body)
                self.body(body.body, body)
            else:
                self.body(body, value)
        self.visible, self.recursions = outer, around

    def body(self, body: SeqExpr, whole: Any) -> None:
        for block in body.blocks:
            for binding in block.bindings:
                if not isinstance(block, DataflowBlock) and isinstance(binding.var, DataflowVar):
                    raise UserError(f"{self.name}: {binding.var.name} is a dataflow variable outside a dataflow block")
                self.binding(binding)
            self.visible.difference_update([b.var for b in block.bindings if isinstance(b.var, DataflowVar)])
        self.use(body.body, whole)

    def binding(self, binding: Binding) -> None:
        is_function = isinstance(binding.value, Function)
        if is_function:  # it may call itself
            self.bind(binding.var)
        self.use(binding.value, binding)
        self.inner(binding.value)
        for arg in sub_exprs(binding.value):
            if not isinstance(arg, ATOMS) and not (isinstance(arg, Tuple) and _atomic_tuple(arg)):
                raise UserError(f"{self.name}: {binding.var.name} has a nested argument", span=binding.span)
        if isinstance(binding, MatchCast):
            self.known_sizes.update(symbolic_vars(binding.target))
        for size in symbolic_vars(binding.var.struct_info):
            if size not in self.known_sizes and not is_function:
                raise UserError(f"{self.name}: the symbolic size {size.name} is bound nowhere", span=binding.span)
        if not is_function:
            self.bind(binding.var)


@dataclass(frozen=True)
class _KernelType:
    """What a kernel of the loop IR takes: its buffers are those of the arguments, then those of the results."""

    name: str
    buffers: tuple[tuple[str, TensorStructInfo], ...]
    scalars: tuple[SizeVar, ...]
    written: Mapping[int, BufferStore]  # the buffers, by their numbers, with a store to each

    @staticmethod
    def of(caller: str, name: str, kernel: Any, span: Any) -> _KernelType:
        if not isinstance(kernel, PrimFunc):
            message = f"{caller}: R.call_tir calls kernels of the loop IR, {name} is a graph function"
            raise UserError(message, span=span, hint=f"write cls.{name}(…)")
        buffers = [(p.name, TensorStructInfo(p.shape, p.dtype)) for p in kernel.params if isinstance(p, Buffer)]
        numbers = {b: k for k, b in enumerate(kernel.buffers)}
        stores = (s for s in statements(kernel.body) if isinstance(s, BufferStore) and s.buffer in numbers)
        written = {numbers[s.buffer]: s for s in stores}
        return _KernelType(name, tuple(buffers), tuple(p for p in kernel.params if not isinstance(p, Buffer)), written)

    def check_call(self, caller: str, call: Call, span: Any) -> None:
        """The kernel's buffers are not checked at run time."""
        given = [*fields_of(call.args[1].struct_info), *call.sinfo_args]
        values = kernel_sizes(call)
        if len(given) != len(self.buffers) or len(values) != len(self.scalars):
            wanted = f"{len(self.buffers)} buffers and {len(self.scalars)} sizes"
            message = f"{caller}: {self.name} takes {wanted}, got {len(given)} and {len(values)}"
            hint = "buffers are the arguments, then the results that out_sinfo declares; sizes are tir_vars"
            raise ArgumentError(message, span=span, hint=hint)
        for k, (taken, _) in enumerate(self.buffers[: len(given) - len(call.sinfo_args)]):
            if k in self.written:
                message = f"{self.name} writes to {taken}, which {caller} gives it as an argument"
                hint = "it may write to its results, the last buffers, and to those of T.alloc_buffer"
                raise ArgumentError(message, span=self.written[k].span or span, hint=hint)
        sizes: dict[SizeVar, Dim] = dict(zip(self.scalars, values, strict=True))
        for (buffer, takes), info in zip(self.buffers, given, strict=True):
            if not match_info(takes, info, sizes):
                kind = DTypeError if getattr(info, "dtype", None) != takes.dtype else ShapeError
                expected = format_info(bind_sizes(takes, sizes))
                message = f"{caller}: {self.name} takes {buffer} as {expected}, got {format_info(info)}"
                raise kind(
                    message,
                    span=span,
                    hint="the kernel's buffers must have the types of the arguments, then those of out_sinfo",
                )


def _atomic_tuple(expr: Tuple) -> bool:
    return all(isinstance(f, ATOMS) or (isinstance(f, Tuple) and _atomic_tuple(f)) for f in expr.fields)


def has_side_effect(binding: Binding) -> bool:
    """MatchCast checks at run time, so it stays even when nobody reads it; so do calls that do more than compute."""
    return not isinstance(binding, VarBinding) or has_effects(binding.value)
