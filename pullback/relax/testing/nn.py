"""Small modules over a BlockBuilder, as the reference's ``relax.testing.nn`` has them, and checkpoints in a function.

    bb = relax.BlockBuilder()
    with bb.function("main"):
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        data = nn.Placeholder((32, 784), name="data")
        output = nn.emit_checkpoint_sequential(list(model), 2, data)
        bb.emit_func_output(output, params=[data, *model.parameters()])
    params = nn.init_params(bb.get())

What lies between the marks of a checkpoint is not kept for the backward part: ``Gradient`` computes it again there,
from what went in. For models that are trained, ``pullback.nn`` has more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder, open_builder
from pullback.relax.expr import Expr, Var
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.runtime import Tensor, tensor

_parameters: WeakSet[Var] = WeakSet()


def _builder() -> BlockBuilder:
    return open_builder("relax.testing.nn")


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind an expression in the function that is being built."""
    return _builder().emit(expr, name_hint or None)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Bind a call of a function of tensor expressions in the function that is being built."""
    return _builder().emit_te(func, *args, **kwargs)


def Placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> Var:  # noqa: N802
    """A variable for an input."""
    return Var(_builder().unique(name), TensorStructInfo(shape, dtype))


def Parameter(shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> Var:  # noqa: N802
    """A variable for a parameter, which :meth:`Module.parameters` finds."""
    parameter = Var(_builder().unique(name), TensorStructInfo(shape, dtype))
    _parameters.add(parameter)
    return parameter


class Module:
    """Base of modules: subclasses have parameters and other modules as attributes, and a method ``forward``."""

    def parameters(self) -> list[Var]:
        """The parameters of the module and of those in it, in the order of assignment, each once."""
        return list(dict.fromkeys(_found(vars(self))))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        name = type(self).__name__
        raise UserError(f"{name} has no forward", hint="write def forward(self, input): return nn.emit(…)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _found(value: Any) -> Iterator[Var]:
    if isinstance(value, Var) and value in _parameters:
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _found(part)


class Sequential(Module):
    """Modules one after another."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Module:
        return self.modules[index]

    def __len__(self) -> int:
        return len(self.modules)

    def forward(self, input: Expr) -> Expr:
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: Expr) -> Var:
        return emit(Op.get("nn.relu")(input))


class LogSoftmax(Module):
    """Log-softmax along the last axis."""

    def forward(self, input: Expr) -> Var:
        return emit(Op.get("nn.log_softmax")(input))


class Linear(Module):
    """``x @ weight + bias``: a weight of shape (in_features, out_features), a bias of shape (out_features,)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:
        y = emit(Op.get("matmul")(input, self.weight))
        return y if self.bias is None else emit(Op.get("add")(y, self.bias))


def init_params(mod: IRModule) -> list[Tensor]:
    """Random values in [0, 1) for the parameters of ``main`` whose names do not begin with "data".

    Raises ArgumentError where a size is not known.
    """
    params = []
    for param in mod["main"].params:
        if param.name.startswith("data"):
            continue
        info = param.struct_info
        if not isinstance(info, TensorStructInfo) or not info.is_static:
            message = f"init_params: the sizes of {param.name} are not known: it is {format_info(info)}"
            raise ArgumentError(message, hint="parameters have sizes that are numbers")
        params.append(tensor(np.random.rand(*info.static_shape).astype(info.dtype)))
    return params


# -- checkpoints


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``func`` gives, with marks around: the gradient computes what it has inside once more.

    ``func`` returns an expression, or a list or tuple of them.
    """
    return _checkpoint(func, args, kwargs, lambda expr: expr)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """:func:`checkpoint`, with the marks bound to variables of the function that is being built."""
    return _checkpoint(func, args, kwargs, emit)


def _checkpoint(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], bound: Callable[[Expr], Expr]
) -> Any:
    start, end = Op.get("grad.start_checkpoint"), Op.get("grad.end_checkpoint")

    def begun(value: Any) -> Any:
        return bound(start(value)) if isinstance(value, Expr) else value

    def ended(value: Any) -> Any:
        if not isinstance(value, Expr):
            return value
        return bound(end(value if isinstance(value, Var) else bound(value)))

    begun_args = [begun(a) for a in args]
    result = func(*begun_args, **{k: begun(v) for k, v in kwargs.items()})
    if isinstance(result, (list, tuple)):
        return [ended(r) for r in result]
    if not isinstance(result, Expr):
        hint = "it returns what it computes: an expression, or a list of them"
        raise ArgumentError(f"a checkpoint's function returned {result!r:.80}", hint=hint)
    return ended(result)


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int | Sequence[int],
    input: Expr,
    checkpoint_last: bool = False,
) -> Expr:
    """Functions one after another, in segments: of each but the last, unless ``checkpoint_last``, only the input is
    kept for the backward part.

    ``segments``: into how many, or the numbers of the functions at which they begin: ``[0, 3, 4]``.
    """
    count = len(functions)
    if isinstance(segments, int):
        if not 1 <= segments <= max(count, 1):
            message = f"emit_checkpoint_sequential: {count} functions cannot be {segments} segments"
            raise ArgumentError(message, hint=f"choose a number from 1 to {count}")
        starts = list(range(0, count, count // segments)) if count else [0]
    else:
        starts = list(segments)
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts or starts[-1] > count:
            message = f"emit_checkpoint_sequential: segments cannot begin at {starts} of {count} functions"
            raise ArgumentError(message, hint="they begin at 0 and rise: [0, 3, 4]")
    ends = [*starts[1:], count]

    def segment(start: int, end: int) -> Callable[[Expr], Expr]:
        def run(value: Expr) -> Expr:
            for function in functions[start:end]:
                value = function(value)
            return value

        return run

    parts = [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
    for number, (start, end) in enumerate(parts):
        is_kept = number == len(parts) - 1 and not checkpoint_last
        run = segment(start, end)
        input = run(input) if is_kept else emit_checkpoint(run, input)
    return input
