"""A compiled function with its inputs and results kept beside it: set, run, get."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, ShapeError, suggestion
from pullback.ir.words import guided
from pullback.runtime.device import Device, cpu
from pullback.runtime.param_dict import load_param_dict
from pullback.runtime.tensor import Tensor, tensor, zeros


@dataclass(frozen=True)
class Slot:
    """A tensor that a program takes or gives; sizes that only a call tells are None."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of a tensor whose sizes are known before a call."""
        known = tuple(size for size in self.shape if size is not None)
        assert len(known) == len(self.shape)
        return known

    def check(self, value: Tensor) -> None:
        """Raise a DTypeError or ShapeError unless it fits."""
        if value.dtype != self.dtype:
            hint = f'convert it: array.astype("{self.dtype}")'
            raise DTypeError(f"input {self.name!r} must have dtype {self.dtype}, got {value.dtype}", hint=hint)
        same = len(value.shape) == len(self.shape)
        if not same or any(s not in (None, g) for s, g in zip(self.shape, value.shape, strict=True)):
            sizes = ", ".join("?" if s is None else str(s) for s in self.shape)
            raise ShapeError(f"input {self.name!r} must have shape ({sizes}), got {value.shape}")


class Program(Protocol):
    """What a :class:`GraphModule` runs. ``values``: those that inputs have from the beginning, by number."""

    inputs: Sequence[Slot]
    outputs: Sequence[Slot]
    values: Mapping[int, Tensor]
    text: str

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...


@guided
class GraphModule:
    """Runs a program: ``set_input``, ``run``, ``get_output``. Inputs that nobody has set are zeros.

    >>> module = GraphModule(lib["default"](pullback.cpu()))
    >>> module.set_input("x", array)
    >>> module.run()
    >>> module.get_output(0).numpy()
    """

    def __init__(self, module: Any, device: Device | None = None) -> None:
        if isinstance(module, GraphModule):
            module, device = module.program, device or module.device
        if not hasattr(module, "inputs"):
            hint = 'such as lib["default"](device), where lib is what relay.build returns'
            raise ArgumentError(f"a GraphModule runs a program, not {type(module).__name__}", hint=hint)
        self.program: Program = module
        self.device = device or cpu()
        self._inputs: list[Tensor | None] = [self.program.values.get(k) for k in range(len(self.program.inputs))]
        self._outputs: list[Tensor] | None = None
        self._numbers = {slot.name: k for k, slot in enumerate(self.program.inputs)}

    @property
    def module(self) -> GraphModule:
        return self

    # ---- inputs

    def set_input(self, key: Any = None, value: Any = None, **params: Any) -> None:
        """Set an input, by its name or number, and others by their names. Values are copied.

        Raises NameNotFound where there is no such input, ShapeError or DTypeError where a value does not fit.
        """
        if key is not None:
            self._set(self._number(key), value)
        for name, given in params.items():
            self._set(self._number(name), given)

    def set_input_zero_copy(self, key: Any = None, value: Any = None, **params: Any) -> None:
        """As :meth:`set_input`, but tensors and arrays are not copied: later changes are seen by :meth:`run`."""
        if key is not None:
            self._set(self._number(key), value, copy=None)
        for name, given in params.items():
            self._set(self._number(name), given, copy=None)

    def _set(self, number: int, value: Any, copy: bool | None = True) -> None:
        slot = self.program.inputs[number]
        if not isinstance(value, (Tensor, np.ndarray)):
            value = tensor(value, slot.dtype)
        held = value if isinstance(value, Tensor) else tensor(value)
        slot.check(held)
        self._inputs[number] = tensor(held, copy=True) if copy else held

    def load_params(self, params_bytes: bytes) -> None:
        """Set the inputs that a parameter dictionary holds (``relay.save_param_dict``)."""
        self.set_input(**load_param_dict(params_bytes))

    def share_params(self, other: GraphModule, params_bytes: bytes) -> None:
        """Take the tensors of the parameters from another module, without copies."""
        for name in load_param_dict(params_bytes):
            self._inputs[self._number(name)] = other.get_input(name)

    def get_input(self, index: int | str, out: Any = None) -> Tensor:
        """The tensor of an input, by name or number."""
        number = self._number(index)
        held = self._inputs[number]
        if held is None:
            held = self._inputs[number] = self._zeros(number)
        return held if out is None else held.copyto(out)

    def get_input_index(self, name: str) -> int:
        """The number of the input; -1 where there is none of that name."""
        return self._numbers.get(name, -1)

    def get_input_info(self) -> tuple[dict[str, tuple[int | None, ...]], dict[str, str]]:
        """The shapes and the dtypes of the inputs, by name."""
        inputs = self.program.inputs
        return {s.name: s.shape for s in inputs}, {s.name: s.dtype for s in inputs}

    def get_num_inputs(self) -> int:
        return len(self.program.inputs)

    def _number(self, key: int | str) -> int:
        if isinstance(key, str):
            if key not in self._numbers:
                hint = f"the inputs are {', '.join(self._numbers) or 'none'}"
                raise NameNotFound(f"there is no input {key!r}{suggestion(key, self._numbers)}", hint=hint)
            return self._numbers[key]
        return _checked_index("input", key, len(self.program.inputs))

    def _zeros(self, number: int) -> Tensor:
        slot = self.program.inputs[number]
        shape = tuple(size for size in slot.shape if size is not None)
        if len(shape) < len(slot.shape):
            hint = f"module.set_input({slot.name!r}, array)"
            raise ArgumentError(f"input {slot.name!r} is not set, and its sizes are not known", hint=hint)
        return zeros(shape, slot.dtype)

    # ---- running

    def run(self, **inputs: Any) -> None:
        """Compute the results, after setting the inputs that are given by name."""
        self.set_input(**inputs)
        self._outputs = self.program([self.get_input(k) for k in range(len(self._inputs))])

    def get_num_outputs(self) -> int:
        return len(self.program.outputs)

    def get_output(self, index: int, out: Any = None) -> Tensor:
        """A result of the last run; with ``out``, a tensor, copied into it.

        Raises ArgumentError where nothing has run yet.
        """
        number = _checked_index("output", index, len(self.program.outputs))
        if self._outputs is None:
            raise ArgumentError("there are no results yet", hint="call module.run() first")
        held = self._outputs[number]
        return held if out is None else held.copyto(out)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A method by its name: ``module["run"]()``."""
        known = (
            "set_input", "set_input_zero_copy", "run", "get_output", "get_num_outputs", "get_input", "get_num_inputs",
            "get_input_index", "load_params", "share_params", "get_input_info",
        )  # fmt: skip
        if name not in known:
            hint = f"there are {', '.join(known)}"
            raise NameNotFound(f"a graph module has no function {name!r}{suggestion(name, known)}", hint=hint)
        found: Callable[..., Any] = getattr(self, name)
        return found

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        end_to_end: bool = False,
        **inputs: Any,
    ) -> BenchmarkResult:
        """The seconds that a run takes: ``repeat`` means over ``number`` runs, or as many as take ``min_repeat_ms``.

        ``end_to_end``: setting the inputs and getting the results counts.
        """
        if func_name != "run":
            raise ArgumentError(f'"run" is measured, not {func_name!r}')
        self.run(**inputs)

        def once() -> None:
            self.run(**inputs if end_to_end else {})
            if end_to_end:
                [self.get_output(k).numpy() for k in range(self.get_num_outputs())]

        return measured(once, repeat, number, min_repeat_ms)


def _checked_index(what: str, index: Any, count: int) -> int:
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise ArgumentError(f"an {what} is named by a number or its name, got {index!r:.40}")
    if not 0 <= int(index) < count:
        raise ArgumentError(f"there is no {what} {int(index)}", hint=f"there are {count}, counted from 0")
    return int(index)


@dataclass(frozen=True)
class BenchmarkResult:
    """Seconds of a call, of each repetition; their mean, median and so on."""

    results: tuple[float, ...]
    mean: float = field(init=False)
    median: float = field(init=False)
    max: float = field(init=False)
    min: float = field(init=False)
    std: float = field(init=False)

    def __post_init__(self) -> None:
        values = {
            "mean": statistics.fmean(self.results),
            "median": statistics.median(self.results),
            "max": max(self.results),
            "min": min(self.results),
            "std": statistics.pstdev(self.results),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        head = "Execution time summary:\n" + "".join(
            f"{f'{n} (ms)':^14}" for n in ("mean", "median", "max", "min", "std")
        )
        values = (self.mean, self.median, self.max, self.min, self.std)
        return head + "\n" + "".join(f"{1e3 * v:^14.4f}" for v in values)


def measured(
    function: Callable[[], Any], repeat: int, number: int, min_repeat_ms: float | None = None
) -> BenchmarkResult:
    """The time of a function's calls."""
    if repeat < 1 or number < 1:
        raise ArgumentError(f"repeat and number must be 1 or more, got {repeat} and {number}")
    results: list[float] = []
    while len(results) < repeat:
        start = time.perf_counter()
        for _ in range(number):
            function()
        seconds = time.perf_counter() - start
        if min_repeat_ms and 1e3 * seconds < min_repeat_ms:
            number = int(number * max(1.5, 1.2e-3 * min_repeat_ms / max(seconds, 1e-9))) + 1
            continue
        results.append(seconds / number)
    return BenchmarkResult(tuple(results))
