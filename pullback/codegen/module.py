"""Functions of the loop IR as one LLVM module, in text: kernels, host functions, or data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.codegen.builder import Globals
from pullback.codegen.host import whole_triple
from pullback.codegen.host_function import HostFunction, is_inner
from pullback.codegen.kernel import Kernel
from pullback.codegen.symbols import exported_symbol, quoted
from pullback.codegen.values import register_type
from pullback.ir.depth import deep
from pullback.ir.errors import InternalError
from pullback.target import Target
from pullback.tir.expr import Buffer
from pullback.tir.stmt import (
    KernelCall,
    PrimFunc,
)
from pullback.tir.visitor import walk


@deep
def emit_module(functions: Sequence[PrimFunc], target: Target) -> str:
    """The LLVM IR of the functions. Host functions are exported; kernels too when there are no host functions."""
    hosts = [f for f in functions if f.attrs.get("kind") == "host"]
    kernels = [f for f in functions if f.attrs.get("kind") != "host"]
    names = [f.name for f in functions]
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise InternalError(f"functions of one module with the same name: {', '.join(repeated)}")
    shared = Globals()
    linkage = "internal " if hosts else ""
    symbols = {k.name: f"kernel.{k.name}" if hosts else exported_symbol(k.name) for k in kernels}
    texts = [text for k in kernels for text in Kernel(k, target, shared, symbols[k.name], linkage).emit()]
    by_name = {k.name: k for k in kernels}
    callees = {f.name: (f, exported_symbol(f.name)) for f in hosts}
    for f in hosts:
        texts.append(HostFunction(f, target, shared, by_name, symbols, "internal " * is_inner(f), callees).emit())
    return _module(target, shared, texts)


@deep
def emit_kernel(kernel: PrimFunc, target: Target, symbol: str) -> str:
    """The LLVM IR of a module with one kernel, whose symbol is seen by the objects that it is linked with alone."""
    shared = Globals()
    texts = Kernel(kernel, target, shared, symbol, "hidden ").emit()
    return _module(target, shared, texts)


@deep
def emit_host(
    host: PrimFunc,
    target: Target,
    kernels: Mapping[str, PrimFunc],
    symbols: Mapping[str, str],
    inner: Mapping[str, PrimFunc] | None = None,
) -> str:
    """The LLVM IR of a module with one host function and those that it calls; the kernels are in other objects, under
    the given symbols."""
    shared, inner = Globals(), inner or {}
    for name in dict.fromkeys(called_kernels(host, *inner.values())):
        types = ["ptr" if isinstance(p, Buffer) else register_type(p.dtype) for p in kernels[name].params]
        symbol = quoted(symbols[name])
        shared.declare(symbol, f"declare hidden void @{symbol}({', '.join(['ptr', *types])})")
    return _module(target, shared, _hosts(host, target, shared, kernels, symbols, inner))


def _hosts(
    host: PrimFunc,
    target: Target,
    shared: Globals,
    kernels: Mapping[str, PrimFunc],
    symbols: Mapping[str, str],
    inner: Mapping[str, PrimFunc],
    linkage: str = "",
) -> list[str]:
    """A host function, and those that it calls under names that begin with its own."""
    callees = {name: (f, f"{host.name}.{name}") for name, f in inner.items()}
    texts = [HostFunction(host, target, shared, kernels, symbols, linkage, callees).emit()]
    for f, symbol in callees.values():
        texts.append(HostFunction(f.renamed(symbol), target, shared, kernels, symbols, "internal ", callees).emit())
    return texts


@deep
def emit_library(
    hosts: Mapping[str, tuple[PrimFunc, Mapping[str, PrimFunc], Mapping[str, PrimFunc]]], target: Target
) -> str:
    """The LLVM IR of a module with host functions, each under the symbol that is its key, which only what it is linked
    with sees, and the kernels and the host functions that they call. Kernels that compute the same are one."""
    shared = Globals()
    texts: dict[str, list[str]] = {}
    for symbol, (host, kernels, inner) in hosts.items():
        symbols = {name: f"kernel.{hashlib.sha256(k.digest).hexdigest()[:32]}" for name, k in kernels.items()}
        for name, kernel in kernels.items():
            if symbols[name] not in texts:
                texts[symbols[name]] = Kernel(kernel, target, shared, symbols[name], "internal ").emit()
        texts[symbol] = _hosts(replace(host, name=symbol), target, shared, kernels, symbols, inner, "hidden ")
    return _module(target, shared, [text for parts in texts.values() for text in parts])


def emit_data(blocks: Mapping[str, bytes], target: Target) -> str:
    """The LLVM IR of a module with read-only data, each block under its symbol and aligned to 64 bytes."""
    lines = [
        f'@{quoted(symbol)} = hidden constant [{len(data)} x i8] c"{_bytes(data)}", align 64'
        for symbol, data in blocks.items()
    ]
    return _module(target, Globals(), lines)


_ESCAPED = [chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in range(256)]


def _bytes(data: bytes) -> str:
    return "".join(map(_ESCAPED.__getitem__, data))


def _module(target: Target, shared: Globals, texts: Sequence[str]) -> str:
    head = f'target triple = "{whole_triple(target.triple)}"\n'
    return "\n".join([head, *shared.declarations.values(), *shared.definitions.values(), *texts])


def called_kernels(*hosts: PrimFunc) -> list[str]:
    """The names of the kernels that host functions call, one after another."""
    return [n.name for host in hosts for n in walk(host.body) if isinstance(n, KernelCall)]
