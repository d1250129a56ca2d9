"""Models of ONNX as modules that trainers take."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, ShapeError, UserError, suggestion
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax.expr import Constant
from pullback.relax.frontend.imported import Imported
from pullback.relax.frontend.onnx import load
from pullback.relax.frontend.onnx.nodes import check_nodes
from pullback.relax.frontend.onnx.replay import Replay, identifier
from pullback.relax.frontend.onnx.table import FIXED, VALUES, domain_of
from pullback.relax.frontend.onnx.types import tensor_type
from pullback.relax.matching import match_info
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.tir.expr import FLOATS
from pullback.tir.expr import Var as Size

__all__ = ["OnnxModel", "from_onnx"]

STATISTICS = (3, 4)  # the inputs of BatchNormalization that training moves


class OnnxModel(Imported):
    """A model of ONNX: what :func:`pullback.from_onnx` returns.

    Parameters and buffers have the names of the file's initialisers. ``model`` is the graph that is computed,
    ``source`` what it was read from.
    """

    def __init__(
        self, model: Any, shape_dict: Mapping[str, Sequence[Any]] | None = None, *,
        trainable: Sequence[str] | None = None, values: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        proto, path = load.read(model)
        data = bytes(model) if isinstance(model, (bytes, bytearray)) else None
        self.source: Path | bytes = path or data or proto.SerializeToString()
        self.folder = path.parent if path is not None else None
        check_nodes(proto)
        _fix_values(proto, values or {})
        _fix_shapes(proto, shape_dict or {})
        self.model = inferred(proto)
        held = _held(self.model.graph)
        entries = [v for v in self.model.graph.input if v.name not in held]
        sizes: dict[str, Size] = {}
        super().__init__([_type_of(v, sizes) for v in entries])
        self.inputs = [v.name for v in entries]
        self.outputs = [v.name for v in self.model.graph.output]
        self.paths: dict[str, str] = {}  # of parameters and buffers, by the names of initialisers
        self.constants: dict[str, np.ndarray] = {}
        self._take_values(trainable, set(values or ()))

    def _take_values(self, trainable: Sequence[str] | None, given: set[str]) -> None:
        """Make initialisers parameters, buffers and constants."""
        graph = self.model.graph
        arrays = {t.name: load.array_of(t, self.folder) for t in graph.initializer}
        arrays |= {s.values.name: load.sparse_array_of(s, self.folder) for s in graph.sparse_initializer}
        fixed, statistics = _roles(self.model)
        fixed |= given | {t.values.name for t in graph.sparse_initializer}
        statistics -= fixed
        for pattern in trainable or ():
            if not fnmatch.filter(arrays, pattern):
                raise NameNotFound(
                    f"no initialiser is called {pattern!r}{suggestion(pattern, arrays)}",
                    hint=f"they are {', '.join(list(arrays)[:20])}",
                )
        for name, array in arrays.items():
            chosen = trainable is not None and any(fnmatch.fnmatchcase(name, p) for p in trainable)
            if chosen and (name in fixed or array.dtype.name not in FLOATS):
                raise ArgumentError(
                    f"the initialiser {name} cannot be trained: it has no floats, or its value decides a shape"
                )
            if name in statistics:
                self._take(name, Buffer(array))
            elif chosen or (array.dtype.name in FLOATS and array.ndim > 0 and name not in fixed):
                self._take(name, Parameter(array, requires_grad=chosen or trainable is None))
            else:
                self.constants[name] = array
        del graph.initializer[:], graph.sparse_initializer[:]  # which are not kept twice

    def _take(self, name: str, variable: Parameter | Buffer) -> None:
        path = _path(name, set(self.held), set(vars(self)))
        self.hold(path, variable)
        self.paths[name] = path

    @property
    def forward(self) -> Any:
        """What the graph computes of its inputs, whose names are those of the graph's inputs."""

        def forward(*inputs: Any) -> Any:
            return self._replayed(inputs)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = _distinct([identifier(name) for name in self.inputs])
        vars(forward)["__signature__"] = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        return forward

    def _replayed(self, inputs: Sequence[Any]) -> Any:
        sizes: dict[Any, Any] = {}
        for name, wanted, value in zip(self.inputs, self.example, inputs, strict=True):
            if not match_info(wanted, value.struct_info, sizes):
                kind = ShapeError if value.struct_info.dtype == wanted.dtype else DTypeError
                raise kind(f"input {name} is {format_info(wanted)} in the file, got {format_info(value.struct_info)}")
        values: dict[str, Any] = {name: Constant(array) for name, array in self.constants.items()}
        values |= {name: self.value(path) for name, path in self.paths.items()}
        values |= dict(zip(self.inputs, inputs, strict=True))
        replay = Replay(self.model, self.folder, dict(zip(inputs, self.inputs, strict=True)))
        replay.buffers = {
            values[name]: partial(self.assign, path)
            for name, path in self.paths.items()
            if isinstance(self.held[path], Buffer)
        }
        results = replay.run(values)
        return results[0] if len(results) == 1 else tuple(results)

    def to_onnx(self, path: Any) -> None:
        """Write the model with its present weights: see :func:`pullback.relax.frontend.onnx.to_onnx`."""
        from pullback.relax.frontend.onnx.write import to_onnx

        to_onnx(self, path)


def from_onnx(
    model: Any, shape_dict: Mapping[str, Sequence[Any]] | None = None, *, trainable: Sequence[str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> OnnxModel:  # fmt: skip
    """A model that ``pullback.trainer`` takes, from a file of ONNX.

    Parameters have the names of the initialisers; running statistics of batch norms are buffers, which training moves.
    BatchNormalization and Dropout take their training form in steps, and their form for inference in ``predict``,
    however the file was exported.

    >>> model = pullback.from_onnx("classifier.onnx")
    >>> trainer = pullback.trainer(model, "cross_entropy", "adam")
    >>> trainer.fit(x, y, epochs=3)
    >>> model.to_onnx("trained.onnx")

    Args:
        model: a path, the bytes of a file, or an ``onnx.ModelProto``. Its opset is one that the installed package
            ``onnx`` knows, from 7 on; older versions of an operator are refused where they mean something else.
        shape_dict: shapes of inputs, where the file leaves them open or they are to be others: ints, names of symbolic
            sizes, or None for what the file says. A name that becomes a number does so in all inputs.
        trainable: patterns of the names of initialisers that are trained, such as ``["head.*"]``. By default all floats
            are but scalars and those whose values decide shapes or are scales of quantized numbers.
        values: arrays for inputs that become constants of the model, such as one that says a shape.

    Returns:
        a model; ``model.to_onnx(path)`` writes its weights back.

    Raises:
        UserError: for a file that is none of ONNX or not valid, for a newer opset, and for external data outside of the
            model's folder.
        UnsupportedOps: listing all operators that are not converted.
        UnsupportedType: for strings, sequences, float8 and 4-bit numbers. A trainer, or ``export``, raises.
        NeedsValue: where a shape depends on data.
    """
    return OnnxModel(model, shape_dict, trainable=trainable, values=values)


# -- inputs


def _held(graph: Any) -> set[str]:
    return {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}


def _fix_values(proto: Any, values: Mapping[str, Any]) -> None:
    """Make inputs initialisers, with these values."""
    onnx, graph = load.onnx_package(), proto.graph
    known = [v.name for v in graph.input]
    for name, value in values.items():
        if name not in known:
            raise NameNotFound(f"the model has no input {name!r}{suggestion(name, known)}")
        entry = next(v for v in graph.input if v.name == name)
        dtype, sizes = tensor_type(entry.type, f"input {name}")
        array = np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))
        wanted = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        if array.dtype != wanted and (
            array.dtype.kind != wanted.kind or not np.array_equal(array.astype(wanted), array)
        ):
            raise ArgumentError(f"the value of input {name} must be {dtype}, got {array.dtype}")
        if sizes is not None and (
            len(sizes) != array.ndim
            or any(isinstance(s, int) and s != n for s, n in zip(sizes, array.shape, strict=True))
        ):
            raise ShapeError(f"the value of input {name} must have the shape {tuple(sizes)}, got {array.shape}")
        graph.input.remove(entry)
        for tensor in [t for t in graph.initializer if t.name == name]:
            graph.initializer.remove(tensor)
        graph.initializer.append(onnx.numpy_helper.from_array(array.astype(wanted, copy=False), name))


def _fix_shapes(proto: Any, shape_dict: Mapping[str, Sequence[Any]]) -> None:
    """Give inputs the shapes that are asked for."""
    entries = {v.name: v for v in proto.graph.input}
    fixed: dict[str, int] = {}
    for name, shape in shape_dict.items():
        if name not in entries:
            raise NameNotFound(
                f"the model has no input {name!r}{suggestion(name, entries)}", hint=f"it has {', '.join(entries)}"
            )
        _, sizes = tensor_type(entries[name].type, f"input {name}")
        if isinstance(shape, (str, int)) or (sizes is not None and len(sizes) != len(shape)):
            raise ShapeError(f"input {name} has {len(sizes or ())} axes, got the shape {shape!r}")
        dims = entries[name].type.tensor_type.shape.dim
        found = sizes if sizes is not None else [None] * len(shape)
        entries[name].type.tensor_type.shape.SetInParent()
        for axis, (size, old) in enumerate(zip(shape, found, strict=True)):
            entry = dims[axis] if axis < len(dims) else dims.add()
            if size is None:
                continue
            if isinstance(size, str):
                if isinstance(old, int):
                    raise ShapeError(
                        f"axis {axis} of input {name} has the size {old} in the file, not {size!r}",
                        hint="what follows from it is written in the file too: export it with a size of any value",
                    )
                entry.dim_param = size
                continue
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
                raise ArgumentError(f"a size of input {name} must be an int, a name or None, got {size!r}")
            if isinstance(old, int) and old != size:
                raise ShapeError(
                    f"axis {axis} of input {name} has the size {old} in the file, not {size}",
                    hint="what follows from it is written in the file too: export the model with another size",
                )
            if isinstance(old, str) and fixed.setdefault(old, int(size)) != size:
                raise ShapeError(f"the size {old!r} is to be {fixed[old]} and {size}")
            entry.dim_value = int(size)
    for entry in proto.graph.input:
        if entry.type.WhichOneof("value") == "tensor_type":
            for dimension in entry.type.tensor_type.shape.dim:
                if dimension.dim_param in fixed:
                    dimension.dim_value = fixed[dimension.dim_param]


def _type_of(entry: Any, sizes: dict[str, Size]) -> TensorStructInfo:
    """The type of an input; sizes that have a name in the file are symbols of that name."""
    dtype, shape = tensor_type(entry.type, f"input {entry.name}")
    if shape is None:
        raise UserError(
            f"nothing says how many axes the input {entry.name} has",
            hint=f"from_onnx(model, shape_dict={{{entry.name!r}: shape}})",
        )
    found: list[Any] = []
    for axis, size in enumerate(shape):
        name = f"{entry.name}_{axis}" if size is None else size
        found.append(size if isinstance(size, int) else sizes.setdefault(name, Size(identifier(name), "int64")))
    return TensorStructInfo(tuple(found), dtype)


def inferred(proto: Any) -> Any:
    """The model with the types of all values that ONNX's shape inference finds."""
    onnx = load.onnx_package()
    del proto.graph.value_info[:]
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:  # of C++: one that is raised for types which do not fit, and one for models above 2 GiB
        if proto.ByteSize() >= 2**31:
            return proto
        raise UserError(f"the model is not valid: {str(error).strip().splitlines()[0]}") from None


# -- initialisers


def _roles(model: Any) -> tuple[set[str], set[str]]:
    """The names of initialisers whose values have to be known, and of running statistics of batch norms."""
    fixed: set[str] = set()
    statistics: set[str] = set()
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            graphs += load.subgraphs(node)
            if domain_of(node.domain):
                continue
            for place, name in enumerate(node.input):
                if name and place in (*VALUES.get(node.op_type, ()), *FIXED.get(node.op_type, ())):
                    fixed.add(name)
                if node.op_type == "BatchNormalization" and place in STATISTICS:
                    statistics.add(name)
    return fixed, statistics


def _path(name: str, taken: set[str], attributes: set[str]) -> str:
    """The dotted name of a parameter: that of the initialiser, where modules and attributes can have it."""
    parts = name.split(".")
    outer = {".".join(parts[:k]) for k in range(1, len(parts))}
    inner = any(other.startswith(f"{name}.") for other in taken)
    if not all(parts) or outer & taken or inner or parts[0] in attributes:
        name = identifier(name)
    while name in taken or name in attributes:
        name += "_"
    return name


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        while name in found or not name.isidentifier():
            name = f"{name}_"
        found.append(name)
    return found
