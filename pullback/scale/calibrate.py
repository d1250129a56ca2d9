"""Links as they are between ranks that are there: what :class:`.network.Network` wants to know, measured.

The ranks run compiled code in which one collective follows another, by the engine that training uses. The time of a
small reduction is the latency, that of a large gathering tells the bandwidth. How fast a processor adds and copies is
measured by itself.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pullback.driver import compile
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Function, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.runtime.collectives import piece_length
from pullback.runtime.ranks import Ranks, current, run_local
from pullback.runtime.tensor import tensor
from pullback.scale.network import Link, Network

SMALL, LARGE = 2, 1 << 20  # elements of float32
CHAIN, RUNS = 16, 60  # collectives of a run, and runs


def calibrate(ranks: Ranks, network: Network) -> Network:
    """``network`` with the link and the processor of these ranks; all call it alike, and get the same. Where the
    network has all of them on one node, it is the link within a node.

    >>> run_local(2, lambda rank: calibrate(current(), Network(Link(1e9, 1e-5), ranks_per_node=2)))[0]
    """
    if ranks.size < 2:
        raise ArgumentError("one rank has no link", hint="start two or more: mpirun -n 2 python -m pullback simulate …")
    small, start = timed(ranks, "reduce", SMALL)
    large, _ = timed(ranks, "gather_pieces", LARGE)
    peers = ranks.size - 1
    latency = max(0.0, small - start)
    bandwidth = 4 * peers * piece_length(LARGE, ranks.size) / max(large - latency, 1e-9)
    link = Link(bandwidth, latency, start / (2 * peers))
    adding, copying = processor()
    made = replace(network, addition=adding, copying=copying)
    is_local = network.on_node(ranks.size) == ranks.size
    return ranks.broadcast(replace(made, local=link) if is_local else replace(made, link=link))


def calibrate_threads(ranks: int = 2) -> Network:
    """The network of so many ranks that are threads of this process."""
    network = Network(Link(12.5e9, 1e-5), ranks_per_node=ranks)
    return run_local(ranks, lambda rank: calibrate(current(), network))[0]


def timed(ranks: Ranks, kind: str, elements: int) -> tuple[float, float]:
    """Seconds of a collective on an array of float32, and of its start alone, on the rank that takes longest: what one
    in a hundred of those in some chains does not exceed, as others may have the cores meanwhile. Collective."""
    module = IRModule({"chain": _chain(kind, elements, ranks.size)})
    call: Any = compile(module, "llvm").function("chain").bind([tensor(np.zeros(elements, np.float32))])
    call()
    runs = []
    for _ in range(RUNS):
        ranks.barrier()
        calls = call.profile().calls
        phases = {p: [c.microseconds for c in calls if c.name.startswith(f"ccl_{kind}_{p}")] for p in ("start", "wait")}
        runs.append([np.add(phases["start"], phases["wait"]), phases["start"]])
    longest = np.max(ranks.exchange(runs), axis=0)  # (runs, 2, chain)
    seconds, start = (1e-6 * np.quantile(longest, 0.01, axis=(0, 2))).tolist()
    return seconds, start


def processor(elements: int = 1 << 18) -> tuple[float, float]:
    """Bytes a second that a thread adds to others, and that it copies."""
    given, other, taken = np.zeros((3, elements), np.float32)
    times: dict[str, list[float]] = {"add": [], "copy": []}
    for _ in range(50):
        moments = [perf_counter()]
        np.add(given, other, out=taken)
        moments.append(perf_counter())
        np.copyto(taken, given)
        moments.append(perf_counter())
        for name, seconds in zip(times, np.diff(moments), strict=True):
            times[name].append(seconds)
    return float(given.nbytes / median(times["add"])), float(given.nbytes / median(times["copy"]))


def _chain(kind: str, elements: int, ranks: int) -> Function:
    """A function of an array that is reduced, or cut into pieces and gathered, again and again."""
    builder, given = BlockBuilder(), Var("x", TensorStructInfo((elements,)))
    builder.begin(["x"])
    value: Expr = given
    with builder.dataflow():
        for _ in range(CHAIN):
            if kind == "reduce":
                value = builder.emit(ops.ccl.reduce([value]))
            else:
                part = builder.emit(ops.ccl.piece(value, ranks))
                value = builder.emit(ops.ccl.gather_pieces([part], ranks, ((elements,),)))
        result = builder.emit_output(value)
    return Function((given,), builder.finish(result), attrs={"global_symbol": "chain"})
