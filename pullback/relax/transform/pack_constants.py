"""PackConstants: what kernels would make of a constant in every call is made when the module is compiled.

    def conv(x, w, y):                             def conv_packed(x, panels, y):
        for task in parallel(48):                      for task in parallel(48):
            panels = alloc_buffer(…)                       …
            for k: panels[k, j] = w[j, k]      →
            …
    y = R.call_tir(conv, (x, R.const(w)), …)       y = R.call_tir(conv_packed, (x, R.const(panels)), …)

Copies of a weight into panels, and the transforms of a Winograd convolution: statements that read constants alone, the
same in all tasks, and fill buffers of the kernel that nothing else writes. The interpreter executes them, so results
stay the same bit for bit. It runs on lowered functions; constants become larger, and a weight that several kernels read
lies in memory in the form of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import Pass
from pullback.relax.analysis import called_functions
from pullback.relax.expr import Call, Constant, Expr, Function, Tuple, as_relax
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_call_tir, kernel_name, kernel_operands
from pullback.tir.expr import Buffer, BufferLoad, Var
from pullback.tir.interpreter import numpy_dtype, run
from pullback.tir.stmt import Allocate, BufferStore, Check, For, KernelCall, Let, Prefetch, PrimFunc, Seq, Stmt, seq
from pullback.tir.visitor import Mutator, Substitute, walk


@dataclass(frozen=True)
class PackConstants(Pass):
    """Execute what depends on constants only, and leave it out of the kernels.

    Checks: it comes after LowerToTir. The statements read constants alone, do the same in all tasks, and fill a buffer
    that nothing else writes. Results stay the same, bit for bit.
    """

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if isinstance(function, Function):
                result[name] = _Pack(module, result).function(function)
        called = {n for f in result.functions.values() if isinstance(f, Function) for n in called_functions(f)}
        for name in [n for n, f in result.items() if isinstance(f, PrimFunc) and n not in called]:
            del result[name]
        return result


class _Pack(ExprMutator):
    def __init__(self, module: IRModule, result: IRModule) -> None:
        super().__init__()
        self.module, self.result = module, result
        self.names = {f.digest: name for name, f in result.items() if isinstance(f, PrimFunc)}

    def rewrite_call(self, call: Call) -> Expr:
        if not is_call_tir(call):
            return call
        kernel, values = self.module[kernel_name(call)], kernel_operands(call)
        given = dict(zip(kernel.buffers, values, strict=False))
        packing = _Packing.of(kernel, {b: v.data for b, v in given.items() if isinstance(v, Constant)})
        if packing is None:
            return call
        packed = {new: Constant(array) for new, array in packing.arrays().items()}
        made = packing.rest(len(values))
        taken = made.buffers[: len(made.buffers) - len(call.sinfo_args)]
        inputs = Tuple(tuple(packed[b] if b in packed else given[b] for b in taken))
        callee = as_relax(GlobalVar(self.share(kernel.name, made)))
        return Call(call.op, (callee, inputs, *call.args[2:]), call.attrs, call.sinfo_args, span=call.span)

    def share(self, name: str, kernel: PrimFunc) -> str:
        """The name of an equal kernel of the module, or that under which it becomes one."""
        if kernel.digest not in self.names:
            fresh = self.result.unique_name(f"{name}_packed")
            self.result[fresh] = kernel.renamed(fresh)
            self.names[kernel.digest] = fresh
        return self.names[kernel.digest]


@dataclass(frozen=True)
class _Packing:
    """Of a kernel: the statements that constants suffice for, and the buffers that they fill, as new parameters."""

    kernel: PrimFunc
    constants: Mapping[Buffer, np.ndarray]
    fills: tuple[Stmt, ...]
    params: Mapping[Buffer, Buffer]

    @staticmethod
    def of(kernel: PrimFunc, constants: Mapping[Buffer, np.ndarray]) -> _Packing | None:
        """None where there are none."""
        if not constants:
            return None
        own = {n.buffer for n in walk(kernel.body) if isinstance(n, Allocate)}
        known: set[Buffer] = set(constants) | own  # to be read by what is left; it shrinks
        while True:
            fills, changed = _divided(kernel.body, known, own)
            if not known & changed:
                break
            known -= changed
        filled = [b for s in fills for b in _stored(s)]
        made = _made_of(fills, set(constants))
        params = {b: Buffer(b.name, b.shape, b.dtype) for b in dict.fromkeys(filled) if b in made}
        fills = [s for s in fills if all(b in made for b in _stored(s))]
        if not params or not all(isinstance(size, int) for b in params for size in _sizes(b)):
            return None
        return _Packing(kernel, constants, tuple(fills), params)

    def arrays(self) -> dict[Buffer, np.ndarray]:
        """What the statements write, by new parameter. What they leave out is 0: nothing reads it."""
        made = {new: np.zeros(_sizes(new), numpy_dtype(new.dtype)) for new in self.params.values()}
        body = Substitute(buffers=self.params).stmt(seq(*self.fills))
        read = {n.buffer for n in walk(body) if isinstance(n, BufferLoad)}
        given = {b: np.ascontiguousarray(a).reshape(_sizes(b)) for b, a in self.constants.items() if b in read}
        run(PrimFunc("pack", (*given, *made), body), [*given.values(), *made.values()])
        return made

    def rest(self, inputs: int) -> PrimFunc:
        """The kernel without these statements, which reads the new parameters behind its other inputs."""
        body = _Without(self.fills, self.params).stmt(self.kernel.body)
        read, params = {n.buffer for n in walk(body) if isinstance(n, BufferLoad)}, self.kernel.params
        gone = {b for b in self.constants if b not in read}
        body = _WithoutPrefetches(gone).stmt(body)
        made = (*(p for p in params[:inputs] if p not in gone), *self.params.values(), *params[inputs:])
        attrs = dict(self.kernel.attrs)
        streamed = [params[k] for k in attrs.pop("streamed", ())]
        attrs |= {"streamed": tuple(k for k, p in enumerate(made) if p in streamed)} if streamed else {}
        return PrimFunc(self.kernel.name, made, body, attrs)


def _divided(body: Stmt, known: set[Buffer], own: set[Buffer]) -> tuple[list[Stmt], set[Buffer]]:
    """The statements that fill own buffers from known ones, whatever the task; and the buffers that others write too,
    or have read before they are filled."""
    fills: list[Stmt] = []
    changed: set[Buffer] = set()
    read: set[Buffer] = set()  # by others so far
    for statement in _spine(body, lambda s: _is_fill(s, known, own)):
        if _is_fill(statement, known, own):
            fills.append(statement)
            changed |= read.intersection(_stored(statement))
        else:
            changed.update(_stored(statement))
            read |= {n.buffer for n in walk(statement) if isinstance(n, BufferLoad)}
    return fills, changed


def _spine(node: Stmt, is_whole: Any) -> Iterator[Stmt]:
    """The statements one after the other that are executed once in a task, or before tasks begin."""
    if is_whole(node):
        yield node
    elif isinstance(node, Seq):
        for statement in node.stmts:
            yield from _spine(statement, is_whole)
    elif isinstance(node, Allocate) or (isinstance(node, For) and node.kind == "parallel"):
        yield from _spine(node.body, is_whole)
    else:
        yield node


def _is_fill(node: Stmt, known: set[Buffer], own: set[Buffer]) -> bool:
    nodes = list(walk(node))
    if any(isinstance(n, (KernelCall, Check)) for n in nodes):
        return False
    inside = {n.buffer for n in nodes if isinstance(n, Allocate)}
    bound = {n.var for n in nodes if isinstance(n, (For, Let))}
    stored = [b for b in _stored(node) if b not in inside]
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)} - inside
    is_closed = all(n in bound for n in nodes if isinstance(n, Var))
    return bool(stored) and is_closed and read <= known and all(b in own and b in known for b in stored)


def _stored(node: Stmt) -> list[Buffer]:
    nodes = list(walk(node))
    inside = {n.buffer for n in nodes if isinstance(n, Allocate)}
    found = dict.fromkeys(n.buffer for n in nodes if isinstance(n, BufferStore))
    return [b for b in found if b not in inside]


def _made_of(fills: list[Stmt], constants: set[Buffer]) -> set[Buffer]:
    """The buffers that hold something of a constant: one of zeros, say, is faster written than read."""
    made: set[Buffer] = set()
    for statement in fills:
        read = {n.buffer for n in walk(statement) if isinstance(n, BufferLoad)}
        if read & (constants | made):
            made.update(_stored(statement))
    return made


def _sizes(buffer: Buffer) -> list[Any]:
    return [getattr(size, "value", size) for size in buffer.shape]


class _Without(Substitute):
    """Leaves statements out, and reads parameters in the place of what they filled."""

    def __init__(self, fills: tuple[Stmt, ...], params: Mapping[Buffer, Buffer]) -> None:
        super().__init__(buffers=params)
        self.fills = {id(s) for s in fills}

    def stmt(self, node: Stmt) -> Stmt:
        if id(node) in self.fills:
            return Seq(())
        if isinstance(node, Seq):
            return seq(*map(self.stmt, node.stmts))
        if isinstance(node, Allocate) and node.buffer in self.buffers:
            return self.stmt(node.body)
        return super().stmt(node)


class _WithoutPrefetches(Mutator):
    """Asks no longer for what nothing reads."""

    def __init__(self, gone: set[Buffer]) -> None:
        super().__init__()
        self.gone = gone

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, Prefetch) and node.buffer in self.gone:
            return Seq(())
        return seq(*map(self.stmt, node.stmts)) if isinstance(node, Seq) else super().stmt(node)
