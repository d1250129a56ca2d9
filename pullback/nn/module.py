"""Module: the base of layers and models.

    class Net(nn.Module):
        def __init__(self):
            self.fc1, self.fc2 = nn.Linear(784, 128), nn.Linear(128, 10)

        def forward(self, x):
            return self.fc2(F.relu(self.fc1(x)))

Names, argument order and defaults are those of ``torch.nn``, and so are the names and shapes of parameters. ``forward``
runs once, when the module is exported or given to a trainer: it says what is computed, for a batch of any size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, NameNotFound, UserError, suggestion
from pullback.ir.words import guided, no_attribute
from pullback.nn.parameter import Buffer, Parameter, Variable, values_left_out
from pullback.nn.trace import current_trace
from pullback.relax.expr import Expr
from pullback.relax.training.state_dict import LoadedKeys, fitting, matching_keys
from pullback.relax.training.summary import Summary, show
from pullback.runtime.tensor import Tensor

__all__ = ["Module"]


class Module:
    """Base of layers and models: override ``__init__``, which makes parameters and submodules attributes, and
    ``forward``, which computes with ops, methods of tensors, ``nn.functional`` and submodules.

    Whether a step trains or predicts is the trainer's business, no state of the module: dropout and batch norm are
    exported once, and compiled in either form.
    """

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Buffer | None]
    _modules: dict[str, Module | None]
    is_frozen: bool = False  # whether steps compute it in the form for inference: see freeze
    _weight_updates: tuple[Any, ...] = ()  # of its own parameters: see nn/updates.py
    _merged_updates: tuple[Any, ...] = ()  # those that are part of the parameters
    _layer_adapter: Any = None  # behind its results

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        module = super().__new__(cls)
        for kind in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(module, kind, {})
        return module

    def __init__(self) -> None:
        """Subclasses may call it, and need not."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("pullback."):
            guided(cls)

    def forward(self, *inputs: Any) -> Any:
        """What the module computes of its inputs: overridden by each module.

        Args:
            inputs: graph values.

        Returns:
            graph values.
        """
        raise UserError(f"{type(self).__name__} has no forward", hint="write def forward(self, x): …")

    # ---- what an imported model says (relax/frontend/imported.py) ---------------------------------------------------

    def _own_example(self) -> Any:
        """The types of the inputs, where they need no example."""
        return None

    def _own_input_names(self) -> Any:
        """The names of the inputs, where they are not those of forward's parameters."""
        return None

    def _own_loss(self, loss: Any) -> Any:
        """A loss together with what the model adds to it."""
        return loss

    # ---- calls -------------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """In ``forward`` of another module: the layer's results. With arrays: the results for them, computed in the
        form for inference with the module's present values, compiled once for each shape of the inputs, in the tuples
        that forward returns.
        """
        trace = current_trace()
        if trace is not None:
            return trace.call(self, self.forward, inputs, named)
        if any(isinstance(value, Expr) for value in (*inputs, *named.values())):
            raise UserError(
                f"{type(self).__name__} is called with a graph value, but no model is being exported",
                hint="call it in the forward of a module, which net.export(example) or a trainer runs",
            )
        if named:
            raise ArgumentError("arrays are given one after the other, not by name")
        from pullback.nn.export import run

        return run(self, inputs)

    def export(self, *example: Any) -> Any:
        """The module as an IRModule: its function ``backbone`` takes inputs, parameters and states, and returns what
        ``forward`` returns and the new states.

        Args:
            example: for each input an array, of which only shape and dtype count, or its type, such as ``R.Tensor(("n",
                784), "float32")``. The first axis of an array is the batch, and symbolic in the result; a type says
                itself what is symbolic. Floats become the dtype of the parameters, integers stay where the model takes
                them as such, and become floats where not.

        Returns:
            an IRModule.

        Raises:
            UserError: with the layer and the line, for what cannot be computed.

        Examples:
            >>> sorted(net.export(x).functions)
            ['backbone']
        """
        from pullback.nn.export import export

        return export(self, example)

    # ---- attributes --------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._buffers and not isinstance(value, Variable) and value is not None:
            self._set_buffer(name, value)
            return
        if name in self._parameters and isinstance(value, Expr):
            raise UserError(
                f"{type(self).__name__}.{name} is a parameter, which only the optimizer changes",
                hint="what forward changes is a Buffer",
            )
        kinds: tuple[tuple[type, dict[str, Any]], ...] = (
            (Parameter, self._parameters), (Buffer, self._buffers), (Module, self._modules)
        )  # fmt: skip
        for kind, members in kinds:
            if isinstance(value, kind) or (value is None and name in members):
                self._forget(name, but=members)
                members[name] = value
                return
        self._forget(name)
        object.__setattr__(self, name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        buffer, trace = self._buffers[name], current_trace()
        if buffer is None:
            raise UserError(f"{type(self).__name__}.{name} is None: it cannot be assigned", hint="make it a Buffer")
        if trace is not None:
            trace.assign(buffer, name, value)
        elif isinstance(value, Expr):
            raise UserError(f"{name} is assigned a graph value, but no model is being exported")
        else:
            buffer.data = value

    def _forget(self, name: str, but: Any = None) -> None:
        """Drop an attribute of any kind; what replaces one of its own kind takes its place in the order."""
        kinds: tuple[dict[str, Any], ...] = (self._parameters, self._buffers, self._modules, self.__dict__)
        for members in kinds:
            if members is not but:
                members.pop(name, None)

    def __delattr__(self, name: str) -> None:
        if not any(name in m for m in (self._parameters, self._buffers, self._modules, self.__dict__)):
            raise AttributeError(name)
        self._forget(name)

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__
        for kind in ("_parameters", "_buffers"):
            if name in found.get(kind, ()):
                trace, variable = current_trace(), found[kind][name]
                return variable if trace is None or variable is None else trace.value(variable)
        if name in found.get("_modules", ()):
            return found["_modules"][name]
        if name == "training":
            raise UserError(
                "a module does not know whether it trains: the trainer compiles its forward in both forms",
                hint="dropout and batch norm differ by themselves; F.dropout(x, p) needs no argument training",
            )
        known = [*dir(type(self)), *found.get("_parameters", ()), *found.get("_modules", ()), *found]
        raise no_attribute(type(self).__name__, name, known)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make a parameter (or None) the attribute ``name``.

        Args:
            name: of the attribute.
            param: the parameter, or None.
        """
        self._register(name, param, Parameter, self._parameters)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Make an array, a Buffer or None an attribute: a tensor that is not trained.

        Args:
            name: of the attribute.
            tensor: an array, a Buffer or None.
            persistent: whether it is part of ``state_dict``.
        """
        buffer = tensor if tensor is None or isinstance(tensor, Buffer) else Buffer(tensor, persistent)
        self._register(name, buffer, Buffer, self._buffers)

    def register_module(self, name: str, module: Module | None) -> None:
        """Make a module (or None) the attribute ``name``.

        Args:
            name: of the attribute.
            module: the module, or None.
        """
        self._register(name, module, Module, self._modules)

    add_module = register_module

    def _register(self, name: str, member: Any, kind: type, members: dict[str, Any]) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(f"the name of a {kind.__name__} must be a string without dots, got {name!r}")
        if member is not None and not isinstance(member, kind):
            raise ArgumentError(f"{name} must be a {kind.__name__} or None, got {type(member).__name__}")
        self._forget(name, but=members)
        members[name] = member

    # ---- what it holds -----------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The submodules with their names.

        Returns:
            an iterator.
        """
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def children(self) -> Iterator[Module]:
        """The submodules.

        Returns:
            an iterator.
        """
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names; one that is held twice comes once.

        Args:
            prefix: what names begin with.
            remove_duplicate: whether one that is held twice comes once.

        Returns:
            an iterator.
        """
        seen: set[int] = set()
        waiting: list[tuple[str, Module]] = [(prefix, self)]
        while waiting:
            name, module = waiting.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            inner = [(f"{name}.{key}" if name else key, child) for key, child in module.named_children()]
            waiting += reversed(inner)

    def modules(self) -> Iterator[Module]:
        """This module and all below it.

        Returns:
            an iterator.
        """
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with dotted names; one that is held in two places comes once, under its first name.

        Args:
            prefix: what names begin with.
            recurse: whether those of submodules come too.
            remove_duplicate: whether one that is held twice comes once.

        Returns:
            an iterator.
        """
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once.

        Args:
            recurse: whether those of submodules come too.

        Returns:
            an iterator.
        """
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Buffer]]:
        """The buffers with dotted names.

        Args:
            prefix: what names begin with.
            recurse: whether those of submodules come too.
            remove_duplicate: whether one that is held twice comes once.

        Returns:
            an iterator.
        """
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        """The buffers, each once.

        Args:
            recurse: whether those of submodules come too.

        Returns:
            an iterator.
        """
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for name, module in self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]:
            for key, member in getattr(module, kind).items():
                if member is None or (remove_duplicate and id(member) in seen):
                    continue
                seen.add(id(member))
                yield f"{name}.{key}" if name else key, member

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; raises NameNotFound with the names that exist.

        Args:
            target: the dotted name.

        Returns:
            the module.
        """
        module: Module = self
        for part in target.split(".") if target else ():
            found = module._modules.get(part)
            if found is None:
                known = list(module._modules)
                raise NameNotFound(
                    f"there is no module {target!r}{suggestion(part, known)}",
                    hint=f"it has {', '.join(known) or 'none'}",
                )
            module = found
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name; raises NameNotFound with the names that exist.

        Args:
            target: the dotted name.

        Returns:
            the parameter.
        """
        found = dict(self.named_parameters(remove_duplicate=False)).get(target)
        if found is None:
            known = [name for name, _ in self.named_parameters()]
            raise NameNotFound(
                f"there is no parameter {target!r}{suggestion(target, known)}", hint=f"they are {', '.join(known)}"
            )
        return found

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """Call ``fn`` with each module, the inner ones first; returns this one.

        Args:
            fn: takes a module.

        Returns:
            the module.
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set for all parameters whether a trainer trains them; returns the module.

        Args:
            requires_grad: whether they are trained.

        Returns:
            the module.
        """
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def freeze(self) -> Any:
        """Have trainers made from now on leave the module as it is; returns it.

        No parameter is trained, and steps compute it in the form for inference, as ``predict`` does: batch norms take
        their running statistics, which stay as they are, and nothing is dropped.

        Returns:
            the module.
        """
        return self._set_frozen(True)

    def unfreeze(self) -> Any:
        """Have trainers made from now on train all of the module again; returns it.

        Returns:
            the module.
        """
        return self._set_frozen(False)

    def _set_frozen(self, is_frozen: bool) -> Any:
        for module in self.modules():
            module.is_frozen = is_frozen
        return self.requires_grad_(not is_frozen)

    def train(self, mode: bool = True) -> Any:
        """Return the module as it is: steps of the trainer train, ``predict`` and ``evaluate`` do not.

        Args:
            mode: ignored.

        Returns:
            the module.
        """
        return self

    def eval(self) -> Any:
        """Return the module as it is: ``predict`` and ``evaluate`` compute in the form for inference.

        Returns:
            the module.
        """
        return self

    def to(self, dtype: str) -> Any:
        """Give all parameters and buffers of float dtypes the dtype ``dtype``; returns the module.

        Args:
            dtype: of floats: "float32".

        Returns:
            the module.
        """
        if dtype in ("cpu", "cuda", "gpu", "mps") or not isinstance(dtype, str):
            raise ArgumentError(f"to() takes the name of a dtype, got {dtype!r}", hint="everything runs on the CPU")
        for variable in (*self.parameters(), *self.buffers()):
            if "float" in variable.dtype:
                variable.convert(dtype)
        return self

    # ---- values ------------------------------------------------------------------------------------------------------

    def init_parameters(self, seed: int = 0, init: Any = None, *, keep: bool = False) -> Any:
        """Draw the values of all parameters and buffers that have an initializer; returns the module.

        Args:
            seed: of the values.
            init: patterns of parameter names (as in ``fnmatch``, the first that matches counts) and initializers or
                their names, or one initializer for all. Parameters that no pattern matches begin as their layers say,
                and so do those of rank 0 and 1 under an initializer that needs fans. With ``keep``, values that are
                there stay, unless a pattern of ``init`` matches.
            keep: whether values that are there stay, unless a pattern of ``init`` matches.

        Returns:
            the module.

        Raises:
            ArgumentError: for a pattern that matches no parameter.
        """
        from pullback.nn.values import draw

        draw(self, seed, init, keep)
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """The values of parameters and persistent buffers by dotted name: copies, under PyTorch's names and shapes.

        They are those of the trainer once the module is trained. Values that were not needed yet are drawn, with the
        seed 0. One that is held in two places comes under both names.

        Returns:
            tensors by name, copies.
        """
        self.init_parameters(keep=True)
        return {name: variable.data for name, variable in self._variables()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadedKeys:
        """Take the values of parameters and buffers from a mapping by name: arrays, PyTorch tensors, anything with
        DLPack. They are cast to the dtypes of the module.

        Once the module is trained, its trainer takes them, and goes on from them. Returns the names that were missing
        and that were unexpected, and with ``strict`` raises ArgumentError if there are any.

        Args:
            state_dict: values by name.
            strict: whether names that are missing or unexpected are an ArgumentError.

        Returns:
            the names that were missing and that were unexpected.

        Raises:
            ShapeError: with nothing changed, when shapes differ.
        """
        own = dict(self._variables())
        keys = matching_keys(own, state_dict, strict, {n: id(v) for n, v in own.items()})
        new = {}
        for name, variable in own.items():
            if name in state_dict:
                new[name] = fitting(name, state_dict[name], variable.shape, variable.dtype)
        for name, value in new.items():
            own[name].data = value
        return keys

    def held_by(self, trainer: Any) -> None:
        """Have the values of parameters and persistent buffers in a trainer from now on, which calls this of the module
        that it trains: they are read with its ``value_of(name)``, and given with ``load_state_dict``.

        Args:
            trainer: has ``value_of`` and ``load_state_dict``.
        """
        for name, variable in (*self.named_parameters(), *self.named_buffers()):
            if getattr(variable, "persistent", True):
                variable.hold(trainer, name)

    def without_values(self) -> Any:
        """A deep copy of the module in which what is read from a trainer has no value.

        Returns:
            the copy.
        """
        with values_left_out():
            return copy.deepcopy(self)

    def _variables(self) -> Iterator[tuple[str, Variable]]:
        """Parameters and persistent buffers under all of their names, in PyTorch's order: module by module."""
        for prefix, module in self.named_modules(remove_duplicate=False):
            for key, member in (*module._parameters.items(), *module._buffers.items()):
                if member is not None and getattr(member, "persistent", True):
                    yield f"{prefix}.{key}" if prefix else key, member

    # ---- what one sees -----------------------------------------------------------------------------------------------

    def summary(self, *example: Any, depth: int | None = None) -> Summary:
        """Print and return what the module consists of: layers, parameters and states, and with an ``example`` of each
        input (as in :meth:`export`) the shapes of the layers' outputs, in which n is the batch.

        ``depth`` folds modules below so many dots of a name into those above. A trainer's summary has FLOPs and memory
        too.

        >>> net.summary(x_train)

        Args:
            example: of each input, as in :meth:`export`.
            depth: folds modules below so many dots of a name into those above.

        Returns:
            the summary, which has been printed.

        Raises:
            UserError: as :meth:`export` does.
        """
        from pullback.nn.describe import summary

        return show(summary(self, example, depth))

    def _repr_html_(self) -> str:
        from pullback.nn.describe import html

        return html(self)

    # ---- text --------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of the module's text.

        Returns:
            the text.
        """
        return ""

    def __repr__(self) -> str:
        from pullback.nn.describe import text

        return text(self)
