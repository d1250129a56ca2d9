"""From a module of PyTorch to a model: what torch.export is asked, and what its errors mean."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.frontend.torch.lengths import define, lengths_free
from pullback.relax.frontend.torch.program import TorchModel
from pullback.relax.frontend.torch.replay import Converting
from pullback.relax.frontend.torch.sizes import add_functions_of, number

__all__ = ["from_torch", "imported_torch"]


def imported_torch() -> Any:
    """The package torch; an ArgumentError that says what to install where it is missing or too old."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ArgumentError(f"PyTorch cannot be imported: {error}", hint="pip install 'pullback[torch]'") from error
    if not hasattr(torch, "export") or tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        raise ArgumentError(
            f"PyTorch {torch.__version__} is too old: models are taken from 2.9 on", hint="pip install -U 'torch>=2.9'"
        )
    add_functions_of(torch)
    define(torch)
    return torch


def from_torch(
    module: Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    outputs: str | Sequence[str] | None = None,
    converters: Converting | None = None,
) -> TorchModel:
    """A model that ``pullback.trainer`` takes, from a module of PyTorch and an example of its inputs.

    >>> model = pullback.from_torch(net, torch.zeros(2, 3, 32, 32))
    >>> trainer = pullback.trainer(model, "cross_entropy", optim.SGD(lr=0.1))
    >>> trainer.to_torch(net)                                # after training

    Parameters, buffers and their names are those of the module, with copies of its values; tied weights are one
    parameter, and those with ``requires_grad=False`` stay as they are. Buffers are states, which steps of the trainer
    move. One import serves training and inference: ``module`` is exported in its training form, whatever mode it is in
    (which is left as it was), and ``predict`` and ``evaluate`` drop nothing and take running statistics. Parts in
    ``eval()`` of a module that is in ``train()`` always keep their form for inference, as in PyTorch. A model that asks
    ``self.training`` for something else than dropout and norms is exported in both forms.

    Args:
        module: an ``nn.Module``, or an ``ExportedProgram`` (then without an example).
        example_inputs: a tensor, a tuple of positional or a dict of keyword arguments; what they hold may be nested.
            Only shapes and dtypes of tensors count; anything else, such as ``True``, is fixed at its value.
        dynamic_shapes: as torch.export takes it. By default the first axis of all inputs is the batch, and the second
            one of integers (N, T), as of tokens, the length; both of any size. Where the model fixes one, or
            torch.export cannot keep it free, a warning says so, and the size is that of the example. ``()`` fixes all.
        outputs: the names of the outputs to keep, of several; ``model.output_names`` has them.
        converters: functions by the names of operators ("aten.relu", "mylib.op"), before those of the table: see
            ``register_converter``.

    Returns:
        a model; ``trainer.to_torch(module)`` writes its weights back.

    Raises:
        UserError: with what torch.export said, and what to do, for a model that it does not take.
        UnsupportedOps: a list of all operators that have no converter, with their places.
        ArgumentError: where the model does not take the example.
    """
    torch = imported_torch()
    if isinstance(module, torch.export.ExportedProgram):
        if example_inputs is not None or dynamic_shapes is not None:
            raise ArgumentError("an ExportedProgram has its example and its shapes already", hint="leave them out")
        return TorchModel(module, _names(outputs), converters)
    if not isinstance(module, torch.nn.Module):
        hint = "a function f becomes one as the forward of a torch.nn.Module"
        raise ArgumentError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}", hint=hint)
    if example_inputs is None:
        raise ArgumentError("from_torch needs an example of the module's inputs", hint="from_torch(net, x[:2])")
    args, kwargs = _arguments(torch, example_inputs)
    with _modes_kept(module):
        if not module.training:
            module.train()
        program, shapes = _exported(torch, module, args, kwargs, dynamic_shapes)
        inference = _inference_form(torch, module, program, shapes)
    return TorchModel(program, _names(outputs), converters, inference)


def _names(outputs: Any) -> Any:
    return [outputs] if isinstance(outputs, str) else outputs


def _arguments(torch: Any, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args: tuple[Any, ...]
    if isinstance(example, Mapping):
        args, kwargs = (), dict(example)
    elif isinstance(example, (tuple, list)):
        args, kwargs = tuple(example), {}
    else:
        args, kwargs = (example,), {}
    pytree = torch.utils._pytree

    def as_tensor(value: Any) -> Any:
        is_array = hasattr(value, "__array__") and hasattr(value, "dtype") and not isinstance(value, torch.Tensor)
        return torch.as_tensor(value.numpy() if hasattr(value, "numpy") else value) if is_array else value

    args, kwargs = pytree.tree_map(as_tensor, (args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
        raise ArgumentError("the example has no tensor", hint="from_torch(net, torch.zeros(2, 784))")
    return args, kwargs


@contextlib.contextmanager
def _modes_kept(module: Any) -> Iterator[None]:
    """In the end all parts are in the mode that they were in."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


# -- what torch.export is asked


Asked = tuple[Any, dict[str, Any], Any]  # arguments, keyword arguments, dynamic_shapes


def _exported(torch: Any, module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> tuple[Any, Asked]:
    """The program, and what torch.export was asked for it."""
    if dynamic_shapes is not None:
        asked: Asked = (args, kwargs, dynamic_shapes or None)
        try:
            return _export(torch, module, asked), asked
        except Exception as error:
            raise _refused(torch, module, args, kwargs, error) from error
    is_one_row = _is_one_row(torch, (args, kwargs))
    free = _twice(torch, (args, kwargs)) if is_one_row else (args, kwargs)
    asked = (*free, _free_axes(torch, module, *free))
    try:
        program = _export(torch, module, asked)
    except Exception as first:
        asked = (args, kwargs, None)
        try:
            program = _export(torch, module, asked)
        except Exception as error:
            raise _refused(torch, module, args, kwargs, error) from error
        warnings.warn(
            f"all sizes are those of the example: torch.export cannot keep the batch free ({_first_line(first)})",
            stacklevel=3,
        )
        return program, asked
    fixed = _fixed_axes(torch, program)
    if is_one_row and any(axis == 0 for _, axis, _ in fixed):
        asked = (args, kwargs, _free_axes(torch, module, args, kwargs))
        program = _export(torch, module, asked)
        fixed = _fixed_axes(torch, program)
    for name, axis, size in fixed:
        what = "batch" if axis == 0 else "length"
        warnings.warn(
            f"the model takes a {what} of {size} alone, as in the example (axis {axis} of {name}): it computes with the"
            " size as a number",
            stacklevel=3,
        )
    return program, asked


# Operators that have both forms here, so that a program in training form is also that for inference.
_OF_BOTH_FORMS = (
    "aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default",
    "aten.feature_alpha_dropout.default", "aten.batch_norm.default", "aten.rrelu.default",
)  # fmt: skip


def _inference_form(torch: Any, module: Any, program: Any, asked: Asked) -> Any:
    """The program in eval(), where modules of the user's ask whether they train and compute something else then."""
    if not any(_asks_for_training(part) for part in module.modules()):
        return None
    module.eval()
    try:
        inference = _export(torch, module, asked)
    except Exception as error:
        warnings.warn(
            f"{type(module).__name__} asks whether it trains, and torch.export does not take it in eval()"
            f" ({_first_line(error)}): predict computes what it computes in train(), without dropout",
            stacklevel=3,
        )
        return None
    if _operators(program) == _operators(inference):
        return None
    if _results(program) != _results(inference):
        warnings.warn(
            f"{type(module).__name__} returns other tensors in eval(): predict returns those of train(), with nothing"
            " dropped",
            stacklevel=3,
        )
        return None
    return inference


def _asks_for_training(part: Any) -> bool:
    """Whether a module that is none of PyTorch's reads ``training`` in its own methods."""
    if type(part).__module__.partition(".")[0] == "torch":
        return False
    methods = [f for f in (*vars(type(part)).values(), type(part).forward) if hasattr(f, "__code__")]
    return any("training" in method.__code__.co_names for method in methods)


def _operators(program: Any) -> list[str]:
    """What a program computes, but for operators that have both forms and what counts batches."""
    found = []
    for node in program.graph.nodes:
        is_count = str(node.target) == "aten.add_.Tensor" and node.args[0].op == "placeholder"
        if node.op == "call_function" and not is_count and str(node.target) not in _OF_BOTH_FORMS:
            found.append(str(node.target))
    return sorted(found)


def _results(program: Any) -> list[Any]:
    """The ranks and dtypes of a program's results."""
    values = next(node.args[0] for node in program.graph.nodes if node.op == "output")
    kept = values[-sum(s.kind.name == "USER_OUTPUT" for s in program.graph_signature.output_specs) :]
    types: list[Any] = [getattr(value, "meta", {}).get("val") for value in kept]
    return [(t.dim(), t.dtype) if hasattr(t, "dim") else None for t in types]


_NOISE = ("The tensor attributes? self", "`isinstance\\(treespec, LeafSpec\\)`", ".*was not registered as a pytree")


_LOGS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")  # what they print is in the error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """PyTorch prints no traces of errors that it raises anyway."""
    loggers = [logging.getLogger(name) for name in _LOGS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _export(torch: Any, module: Any, asked: Asked) -> Any:
    args, kwargs, shapes = asked
    own: list[str] = []
    with lengths_free(torch), _functions_recorded(torch, own), quiet(), warnings.catch_warnings():
        for message in _NOISE:
            warnings.filterwarnings("ignore", message=message)
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    for name in own:
        warnings.warn(
            f"the model uses {name}, a torch.autograd.Function: torch.export keeps what its forward computes, which is"
            " differentiated here, and not its backward",
            stacklevel=4,
        )
    return program


@contextlib.contextmanager
def _functions_recorded(torch: Any, names: list[str]) -> Iterator[None]:
    """The names of the user's classes of torch.autograd.Function that are applied."""
    base = torch.autograd.Function
    before = base.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.partition(".")[0] != "torch" and cls.__name__ not in names:
            names.append(cls.__name__)
        return before.__get__(None, cls)(*args, **kwargs)

    base.apply = classmethod(apply)
    try:
        yield
    finally:
        base.apply = before


def _is_one_row(torch: Any, example: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves(example)
    return all(leaf.shape[0] == 1 for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim())


def _twice(torch: Any, example: Any) -> Any:
    """The example with its row twice: torch.export takes a size of 1 for fixed."""
    return torch.utils._pytree.tree_map(
        lambda leaf: torch.cat([leaf, leaf]) if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf, example
    )


def _free(torch: Any, tensor: Any) -> tuple[int, ...]:
    """The axes of an input that are of any size: the batch, and of tokens the length."""
    if not isinstance(tensor, torch.Tensor) or not tensor.dim():
        return ()
    is_tokens = tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32, torch.bool)
    return (0, 1) if is_tokens and isinstance(tensor.shape[1], int) and tensor.shape[1] > 1 else (0,)


def _free_axes(torch: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """What torch.export is told of it, by the names of forward's parameters."""
    auto = torch.export.Dim.AUTO

    def axes(leaf: Any) -> Any:
        return dict.fromkeys(_free(torch, leaf), auto) or None

    return _by_parameter(module, *torch.utils._pytree.tree_map(axes, (args, kwargs)))


def _by_parameter(module: Any, args: Any, kwargs: Any) -> Any:
    """By the names of forward's parameters, as torch.export wants it of keyword arguments."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ArgumentError(
            f"{type(module).__name__}.forward does not take the example: {error}",
            hint=f"its arguments are {signature}: several inputs are a tuple, or a dict by name",
        ) from error
    parameters = signature.parameters
    return {
        name: value if parameters[name].kind is not inspect.Parameter.VAR_KEYWORD else dict(value)
        for name, value in bound.items()
    }


def _fixed_axes(torch: Any, program: Any) -> list[tuple[str, int, int]]:
    """The axes that were to be free and are not: the input, the axis and its size."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    sizes = [(name, axis, number(values[name].shape[axis])) for name in names for axis in _free(torch, values[name])]
    return [(name, axis, size) for name, axis, size in sizes if size is not None]


# -- what its errors mean


def _first_line(error: BaseException) -> str:
    """What an error says, without the pages that follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[0])[:300] if lines else type(error).__name__


def _refused(torch: Any, module: Any, args: Any, kwargs: Any, error: Exception) -> UserError:
    """The error of torch.export as ours: the example's where the module itself fails on it."""
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        with torch.no_grad(), quiet():
            module(*args, **kwargs)
    except Exception as own:
        shapes = [
            f"{tuple(leaf.shape)} {leaf.dtype}".replace("torch.", "")
            for leaf in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        ]
        return ArgumentError(
            f"{type(module).__name__} fails on the example in PyTorch itself: {type(own).__name__}: {_first_line(own)}",
            hint=f"the example is {', '.join(shapes)}; its shapes and dtypes are those of the model's inputs",
        )
    finally:
        module.load_state_dict(kept)
    return UserError(
        f"torch.export does not take {type(module).__name__}: {type(error).__name__}: {_first_line(error)}",
        hint=_advice(f"{type(error).__name__} {error}"),
    )


_ADVICE = (
    (
        r"data-dependent|[Cc]ould not guard|GuardOnDataDependent|TensorVariable|bool\(\)|unbacked|\.item\(\)",
        "the model decides in Python by the values of tensors: write torch.where(condition, a, b), or torch.cond with"
        " two functions, which becomes a branch here; a loop becomes torch._higher_order_ops.while_loop, and what only"
        " checks values is left out while torch.compiler.is_exporting()",
    ),
    (
        r"[Cc]onstraints violated|dynamic_shapes|Dim\(|specializ",
        "dynamic_shapes does not fit the model: it fixes one of these sizes, or relates two; leave dynamic_shapes out,"
        " or give ()",
    ),
    (r"numpy|\.numpy\(\)", "the model computes with NumPy: write it with torch's functions"),
)


def _advice(text: str) -> str:
    found = next((advice for pattern, advice in _ADVICE if re.search(pattern, text)), None)
    return found or "torch.export.export(module, example, strict=False) shows all that it said"
