"""Functions of the graph IR as native code, called again and again with little ado."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from pullback.driver import compile as compile_module
from pullback.driver.executable import CompiledFunction
from pullback.ir.digest import structural_hash
from pullback.ir.forks import renewed
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relax.struct_info import flat_infos, symbolic_vars
from pullback.runtime.tensor import Tensor
from pullback.target import Target

_REMEMBERED = 512  # compiled functions


class NativeFunction:
    """The function ``main`` of a module: flat tensors in, flat tensors out. Threads may share it."""

    def __init__(self, module: IRModule, target: Target) -> None:
        self.module = module
        self.function: CompiledFunction = compile_module(module, target).function("main")
        main = module["main"]
        self.symbolic = bool(symbolic_vars(main.struct_info))
        self.count = sum(len(flat_infos(p.struct_info)) for p in main.params)
        self._idle: dict[Any, deque[Any]] = {}  # prepared calls by the shapes of their arguments

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The results, in new memory.

        Raises ShapeError or DTypeError where a tensor does not fit.
        """
        key = tuple([t.shape for t in tensors]) if self.symbolic else None
        idle = self._idle.get(key)
        if idle is None:
            idle = self._idle.setdefault(key, deque())
        try:
            call = idle.pop()
        except IndexError:
            call = self.function.bind(tensors)
        else:
            for k, value in enumerate(tensors):
                call.set(k, value)
        results = call()
        idle.append(call)
        return results


class _Known:
    """Native functions by the structure of their modules; the one that was used last is kept longest."""

    def __init__(self) -> None:
        self.functions: OrderedDict[Any, list[NativeFunction]] = OrderedDict()
        self.lock = threading.Lock()
        renewed(self, "lock")

    def find(self, key: Any, module: IRModule) -> NativeFunction | None:
        with self.lock:
            for function in self.functions.get(key, ()):
                if structural_equal(function.module, module):
                    self.functions.move_to_end(key)
                    return function
        return None

    def add(self, key: Any, function: NativeFunction) -> None:
        with self.lock:
            self.functions.setdefault(key, []).append(function)
            while len(self.functions) > _REMEMBERED:
                self.functions.popitem(last=False)


_known = _Known()


def native_function(module: IRModule, target: Target) -> NativeFunction:
    """The function ``main`` of a module as native code; modules of one structure share it."""
    key = (structural_hash(module), target.key)
    found = _known.find(key, module)
    if found is None:
        found = NativeFunction(module, target)
        _known.add(key, found)
    return found
