"""Exported programs of PyTorch as modules, and as IRModules."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError, suggestion
from pullback.nn.functional.form import in_train_phase
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax.expr import const
from pullback.relax.frontend.imported import Imported
from pullback.relax.frontend.torch.decompose import taken_apart
from pullback.relax.frontend.torch.dtypes import name_of
from pullback.relax.frontend.torch.lengths import CONVERTERS
from pullback.relax.frontend.torch.replay import (
    Converting,
    Replay,
    attribute_of,
    check_graph,
    graphs_of,
    is_operator,
    layer_of,
    values_of,
)
from pullback.relax.frontend.torch.sizes import SizeNames
from pullback.relax.struct_info import TensorStructInfo
from pullback.runtime.dtype import NUMPY_DTYPES

__all__ = ["Form", "TorchModel", "functional"]


def functional(program: Any) -> Any:
    """The program without assignments in place, and with no operator taken apart: what a training step computes stays
    convolutions, norms, attention and recurrent layers. One that PyTorch cannot write so, as it is for loops whose
    carries are also read inside, is taken as it is, if nothing in it is assigned in place."""
    try:
        with _without_gradients_detached(program), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # of PyTorch's own calls
            return program.run_decompositions({})
    except Exception as error:
        written = sorted(
            {str(node.target) for graph in graphs_of(program.graph) for node in graph.nodes if _writes(node)}
        )
        if not written:
            return program
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"PyTorch cannot write the program without assignments in place ({', '.join(written)}): {said}",
            hint="ep.run_decompositions({}) shows all that it said; y = y + 1 in the place of y += 1 needs none",
        ) from error


@contextlib.contextmanager
def _without_gradients_detached(program: Any) -> Iterator[None]:
    """Results of parts under torch.no_grad() are detached in these parts: PyTorch writes the parts out, and forgets."""
    import torch

    detach, added = torch.ops.aten.detach.default, []
    try:
        for graph in list(graphs_of(program.graph)):
            for node in graph.nodes:
                if getattr(node.target, "__name__", "") != "wrap_with_set_grad_enabled" or node.args[0]:
                    continue
                part = attribute_of(graph, node.args[1].target)
                output = next(n for n in part.graph.nodes if n.op == "output")
                for value in output.all_input_nodes:
                    if not getattr(value.meta.get("val"), "is_floating_point", bool)():
                        continue
                    with part.graph.inserting_before(output):
                        new = part.graph.call_function(detach, (value,))
                    new.meta = dict(value.meta)
                    output.replace_input_with(value, new)
                    added.append((part, output, new, value))
                part.recompile()
        yield
    finally:
        for part, output, new, value in added:
            output.replace_input_with(new, value)
            part.graph.erase_node(new)
            part.recompile()


def _writes(node: Any) -> bool:
    return is_operator(node) and bool(node.target._schema.is_mutable)


class Form:
    """A program in one form, for training or for inference, without assignments in place.

    ``placeholders``: the names of its tensor inputs; ``fixed``: inputs that are no tensors, with their values;
    ``constants``: arrays; ``held_as``: the names of parameters and buffers in the module.
    """

    def __init__(self, program: Any, converters: Converting | None) -> None:
        self.program, self.converters = functional(program), {**CONVERTERS, **(converters or {})}
        with contextlib.suppress(Exception):  # what PyTorch fails to take apart is listed as missing below
            self.program = taken_apart(self.program, self.converters)
        self.fixed: dict[str, Any] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.held_as: dict[str, str] = {}
        self.placeholders: list[str] = []
        self.types = {n.name: n.meta.get("val") for n in self.program.graph.nodes if n.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            kind, name = spec.kind.name, spec.arg.name
            if kind == "USER_INPUT" and hasattr(spec.arg, "value"):
                self.fixed[name] = spec.arg.value
            elif kind == "USER_INPUT":
                self.placeholders.append(name)
            elif kind == "CONSTANT_TENSOR":
                self.constants[name] = values_of(self.program.constants[spec.target])
            elif kind in ("PARAMETER", "BUFFER"):
                self.held_as[name] = spec.target
            else:
                raise _not_converted(kind, spec.target)
        check_graph(self.program.graph, self.converters)

    def __deepcopy__(self, memo: Any) -> Form:
        return self  # nothing changes it

    def __reduce__(self) -> Any:
        import torch

        file = io.BytesIO()
        torch.export.save(self.program, file)
        own = {name: f for name, f in self.converters.items() if name not in CONVERTERS}
        return _read, (file.getvalue(), own)

    def computed(self, model: Imported, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """All outputs, and the new values of buffers by name."""
        values: dict[str, Any] = dict(zip(self.placeholders, inputs, strict=True)) | self.fixed
        values |= {name: model.value(held) for name, held in self.held_as.items()}
        values |= {name: const(array) for name, array in self.constants.items()}
        shapes = [(self.types[name].shape, x.shape) for name, x in zip(self.placeholders, inputs, strict=True)]
        found = Replay(self.program.graph, values, self.converters, SizeNames.bound(shapes)).run()
        results, buffers = [], {}
        for spec, value in zip(self.program.graph_signature.output_specs, found, strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                buffers[spec.target] = value
            elif kind == "USER_OUTPUT":
                results.append(value)
            elif kind == "USER_INPUT_MUTATION":
                message = f"the model writes into its input {spec.target}: here inputs stay as they are"
                warnings.warn(message, stacklevel=3)
            else:
                raise _not_converted(kind, spec.target)
        return results, buffers


def _read(program: bytes, converters: Converting) -> Form:
    """A form from a pickle."""
    from pullback.relax.frontend.torch.exporting import imported_torch

    return Form(imported_torch().export.load(io.BytesIO(program)), converters)


class TorchModel(Imported):
    """An exported program as a module: what :func:`from_torch` returns.

    ``input_names`` and ``output_names``: those of the flat inputs and outputs. Parameters have the names that they have
    in PyTorch, ``model.state_dict()`` those of PyTorch's. ``outputs``: the names of the outputs to keep.

    ``inference``: the program in its form for inference, where that is another one than follows from dropout and norms.
    """

    input_names: Sequence[str]

    def __init__(
        self,
        program: Any,
        outputs: Sequence[str] | None = None,
        converters: Converting | None = None,
        inference: Any = None,
    ) -> None:
        self.form = Form(program, converters)
        self.inference = None if inference is None else Form(inference, converters)
        sizes = SizeNames()
        super().__init__([_type_of(name, self.form.types[name], sizes) for name in self.form.placeholders])
        self.input_names = list(self.form.placeholders)
        self.output_names = _output_names(self.program)
        self.kept = self._chosen(outputs)
        self._hold_values()
        for node in self.program.graph.nodes:
            self.part(layer_of(node) or "")

    @property
    def program(self) -> Any:
        """The program that is trained, without assignments in place."""
        return self.form.program

    def _chosen(self, outputs: Sequence[str] | None) -> list[int]:
        """The places of the outputs that ``forward`` returns."""
        specs = [s for s in self.program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
        tensors = [k for k, s in enumerate(specs) if type(s.arg).__name__ == "TensorArgument"]
        if outputs is None:
            found = tensors
        else:
            wanted = [outputs] if isinstance(outputs, str) else list(outputs)
            known = {self.output_names[k]: k for k in tensors}
            for name in wanted:
                if name not in known:
                    hint = f"its outputs are {', '.join(known)}"
                    raise ArgumentError(f"the model has no output {name!r}{suggestion(name, known)}", hint=hint)
            found = [known[name] for name in wanted]
        if not found:
            raise UserError("the model returns no tensor, so there is nothing to train or predict")
        self.output_names = [self.output_names[k] for k in found]
        return found

    # ---- values ------------------------------------------------------------------------------------------------------

    def _hold_values(self) -> None:
        """Parameters and buffers with their values; one tensor under two names is one here."""
        known: dict[int, Any] = {}
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        for form in (self.form, self.inference) if self.inference else (self.form,):
            program = form.program
            for spec in program.graph_signature.input_specs:
                kind, name = spec.kind.name, spec.target
                if kind not in ("PARAMETER", "BUFFER") or name in self.held:
                    continue
                tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
                if id(tensor) not in known:
                    _check_dtype(name, tensor)
                    known[id(tensor)] = (
                        Parameter(values_of(tensor), tensor.requires_grad)
                        if kind == "PARAMETER"
                        else Buffer(values_of(tensor), bool(spec.persistent) or name in written)
                    )
                self.hold(name, known[id(tensor)])
            for name, tensor in program.state_dict.items():
                if name not in self.held and id(tensor) in known:
                    self.hold(name, known[id(tensor)])

    # ---- the computation ---------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any) -> Any:
        """What the program computes: its output, or a tuple of them in the order of ``output_names``."""
        self._check(inputs)
        others = None if self.inference is None else self.inference.computed(self, inputs)[0]
        results, buffers = self.form.computed(self, inputs)
        for name, value in buffers.items():
            self.assign(name, in_train_phase(value, self.value(name)))
        kept = tuple(results[k] if others is None else in_train_phase(results[k], others[k]) for k in self.kept)
        return kept[0] if len(kept) == 1 else kept

    def _check(self, inputs: Sequence[Any]) -> None:
        """Raise ShapeError or DTypeError for inputs that are not of the types of the example."""
        if len(inputs) != len(self.example):
            names = ", ".join(self.input_names)
            raise ArgumentError(f"the model takes {len(self.example)} inputs ({names}), got {len(inputs)}")
        for name, wanted, given in zip(self.input_names, self.example, inputs, strict=True):
            sizes = zip(wanted.sizes, given.shape, strict=False)
            fits = len(wanted.sizes) == len(given.shape) and all(
                a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int)
            )
            if not fits or wanted.dtype != given.dtype:
                kind = DTypeError if fits else ShapeError
                raise kind(
                    f"input {name} must be {wanted}, got {given.struct_info}",
                    hint="sizes that are numbers are those of the example that the model was made with",
                )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n}: {t}" for n, t in zip(self.input_names, self.example, strict=True))
        count = len({id(variable) for variable in self.held.values()})
        return f"TorchModel({inputs} -> {', '.join(self.output_names)}; {count} parameters and buffers)"


def _not_converted(kind: str, name: Any) -> UserError:
    what = kind.lower().replace("_", " ")
    return UserError(
        f"an exported program with a {what} ({name}) cannot be converted",
        hint="torch.export.export of a module, without effect tokens, custom objects or gradients, is converted",
    )


def _check_dtype(name: str, tensor: Any) -> None:
    if name_of(tensor.dtype) not in NUMPY_DTYPES:
        raise UserError(f"{name} has the dtype {tensor.dtype}, which there is not here")
    if tensor.is_sparse or tensor.is_quantized:
        raise UserError(f"{name} is a {'sparse' if tensor.is_sparse else 'quantized'} tensor", hint="make it dense")


def _type_of(name: str, value: Any, sizes: SizeNames) -> TensorStructInfo:
    """The type of an input; sizes that are symbols in PyTorch are symbols here."""
    if not hasattr(value, "dtype"):
        raise ArgumentError(
            f"input {name} is a {type(value).__name__}, not a tensor",
            hint="numbers are part of the model, by their values in the example; dynamic_shapes cannot vary them",
        )
    shape = tuple(sizes.size(size, axis) for axis, size in enumerate(value.shape))
    return TensorStructInfo(shape, name_of(value.dtype))


def _output_names(program: Any) -> list[str]:
    """Names of all outputs: ``logits``, ``hidden_states.0``; of those that have none ``output``, or ``output.0``
    and so on."""
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    specs = [s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    names = [""] * len(specs)
    if spec is not None and spec.num_leaves == len(specs):
        paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(len(specs))), spec))[0]
        names = [".".join(filter(None, map(_key, path))) for path, _ in paths]
    for k, name in enumerate(names):
        if not name or name.isdigit():  # of a tuple, or the only one
            names[k] = "output" if len(names) == 1 else f"output.{name or k}"
    return names


def _key(key: Any) -> str:
    """A part of a path: a key, an index, or an attribute."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
