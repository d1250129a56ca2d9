"""Runs kernels natively, and beside the interpreter."""

import ctypes

import numpy as np
import pytest

from pullback.codegen import compile_object, emit_module, load_object
from pullback.target import Target
from pullback.tir import interpreter
from pullback.tir.expr import Buffer

OF_INTEGERS = ("not", "reinterpret", "philox4x32", "pair", "pair_dot")  # intrinsics not defined on every float

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_NEXT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_NOW = ctypes.CFUNCTYPE(ctypes.c_int64)


class Runtime(ctypes.Structure):
    """A stand-in for the C runtime that runs tasks last first, in pieces of uneven size, and counts the time."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("abi", "parallel_for", "now_ns", "parallel_share")]

    def __init__(self):
        self.pieces, self.clock, self.shares = [], 0, 0
        self._callbacks = _PARALLEL_FOR(self.run), _NOW(self.now), _PARALLEL_FOR(self.share)
        super().__init__(3, *(ctypes.cast(c, ctypes.c_void_p) for c in self._callbacks))

    def run(self, table, task, closure, count):
        assert table == self.address
        for begin, end in self._pieces(count):
            _TASK(task)(closure, begin, end)

    def share(self, table, work, closure, count):
        """As two threads would, one after the other: the pieces of one after those of the other."""
        assert table == self.address
        pieces = list(self._pieces(count))
        for part in (pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]):
            if not part:
                continue
            self.shares += 1

            def following(_, spot, part=part):
                if not part:
                    return 0
                spot[0], spot[1] = part.pop(0)
                return 1

            callback = _NEXT(following)
            pointer = ctypes.c_void_p(ctypes.cast(callback, ctypes.c_void_p).value)
            _WORK(work)(closure, ctypes.addressof(pointer))

    def _pieces(self, count):
        end = count
        while end > 0:
            begin = max(0, end - 1 - end % 3)
            self.pieces.append((begin, end))
            yield begin, end
            end = begin

    def now(self):
        self.clock += 1
        return self.clock

    @property
    def address(self):
        return ctypes.addressof(self)


class Native:
    """Compiles functions for this machine and calls them."""

    def __init__(self):
        self.runtime = Runtime()

    def load(self, functions, target=None):
        target = target or Target("llvm")
        return load_object(compile_object(emit_module(functions, target), target))

    def call(self, library, func, arguments):
        values = [
            a.ctypes.data_as(ctypes.c_void_p) if isinstance(p, Buffer) else ctypes.c_int64(a)
            for p, a in zip(func.params, arguments, strict=True)
        ]
        types = [ctypes.c_void_p if isinstance(p, Buffer) else ctypes.c_int64 for p in func.params]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, *types)(library.address(func.name))(self.runtime.address, *values)

    def __call__(self, func, *arguments):
        """Run one kernel on arrays and numbers."""
        self.call(self.load([func]), func, arguments)

    def host(self, library, name, buffers, arena_bytes=0, trace=0):
        """Call an exported host function: its status and its trace."""
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(b.ctypes.data for b in buffers))
        arena = np.zeros(arena_bytes + 64, np.uint8)
        times = np.zeros(trace, np.int64) if trace else None
        function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(library.address(name))
        start = arena.ctypes.data + -arena.ctypes.data % 64
        return function(self.runtime.address, pointers, start, times.ctypes.data if trace else None), times

    def check(self, func, *arguments, ulp=0, library=None):
        """Run natively and by the interpreter on equal copies: results must agree up to ``ulp``. Gives the arrays."""
        ours = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        self.call(library or self.load([func]), func, ours)
        interpreter.run(func, theirs)
        for param, a, b in zip(func.params, ours, theirs, strict=True):
            if isinstance(a, np.ndarray):
                same(a, b, ulp, f"{func.name}: {param.name}")
        return ours


def same(ours, expected, ulp=0, what=""):
    """Equal values (NaN equals NaN), or at most ``ulp`` units in the last place apart. The CPU's own instruction makes
    subnormal bfloat16 0."""
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, expected, err_msg=what)
        return
    with np.errstate(all="ignore"):
        a, b = ours.astype(np.float64), expected.astype(np.float64)
        unit = np.abs(np.spacing(expected)).astype(np.float64)
        good = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= ulp * unit)
        if expected.dtype.name == "bfloat16" and Target("llvm").abilities.pair_dot:
            good |= (a == 0) & (np.abs(b) < 2.0**-126)
    if not good.all():
        bad = np.flatnonzero(~good.ravel())[:5]
        raise AssertionError(f"{what}: got {a.ravel()[bad]}, expected {b.ravel()[bad]} at {bad}")


@pytest.fixture(scope="session")
def native():
    return Native()


@pytest.fixture(scope="session")
def close():
    return same
