"""Files of ONNX: reading them, and the tensors they hold.

A file is what anyone may have written. External data is read only from the folder of the model, whatever links lead out
of it; how many bytes a tensor has is compared with its shape before anything is allocated.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.frontend.onnx.table import domain_of
from pullback.relax.frontend.onnx.types import dtype_of
from pullback.runtime.dtype import numpy_dtype

SPARSE_LIMIT = 1 << 30  # bytes of a sparse tensor that is written out


def onnx_package() -> Any:
    """The package onnx; a UserError that says how to install it."""
    try:
        import onnx
    except ImportError:
        raise UserError(
            "models of ONNX need the package onnx, which is not installed", hint="pip install 'pullback[onnx]'"
        ) from None
    return onnx


def read(model: Any) -> tuple[Any, Path | None]:
    """A ModelProto, whose external data stays where it is, and the file it came from.

    ``model``: a path, the bytes of a file, or a ModelProto. Raises UserError for what is no model of ONNX, and for one
    of an opset that the installed package does not know.
    """
    onnx = onnx_package()
    path = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        proto = _parsed(onnx, data, str(path))
    elif isinstance(model, (bytes, bytearray)):
        proto = _parsed(onnx, bytes(model), "these bytes")
    elif isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
    else:
        raise ArgumentError(
            f"a model is a path, bytes or an onnx.ModelProto, got {type(model).__name__}",
            hint='from_onnx("model.onnx")',
        )
    _check_versions(onnx, proto)
    _check_model(onnx, proto)
    return proto, path


def _parsed(onnx: Any, data: bytes, what: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, which is another class in each implementation
        raise UserError(f"{what}: this is no model of ONNX ({error})") from None
    if not proto.HasField("graph") or not proto.graph.node:
        raise UserError(f"{what}: this is no model of ONNX: it has no graph")
    return proto


def _check_versions(onnx: Any, proto: Any) -> None:
    newest = {
        "": onnx.defs.onnx_opset_version(),
        "ai.onnx.ml": onnx.defs.onnx_ml_opset_version(),
        "ai.onnx.training": 1,
        "ai.onnx.preview.training": 1,
    }
    for entry in proto.opset_import:
        domain = domain_of(entry.domain)
        known, name = newest.get(domain), domain or "ai.onnx"
        if known is not None and entry.version > known:
            raise UserError(
                f"the model uses opset {entry.version} of {name}, onnx {onnx.__version__} knows opsets up to {known}",
                hint="install a newer onnx, or export the model with an older opset",
            )


def _check_model(onnx: Any, proto: Any) -> None:
    """Have onnx check names, their order, and attributes."""
    try:
        onnx.checker.check_model(_for_checker(onnx, proto), full_check=False)
    except ValueError:  # of a model above 2 GiB, which the checker cannot take
        return
    except onnx.checker.ValidationError as error:
        raise UserError(f"the model is not valid: {str(error).strip().splitlines()[0]}") from None


def _for_checker(onnx: Any, proto: Any) -> Any:
    """A copy whose external tensors look like small ones, as the checker would open their files, and in which inputs
    and results have shapes, which it demands."""
    without_shape = [v for v in (*proto.graph.input, *proto.graph.output) if _lacks_shape(v)]
    if not without_shape and not any(t.data_location == 1 for t in tensors(proto.graph)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in (*copy.graph.input, *copy.graph.output):
        if _lacks_shape(value):
            value.type.tensor_type.shape.SetInParent()
    for tensor in tensors(copy.graph):
        if tensor.data_location == 1:
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            del tensor.dims[:]
            tensor.dims.append(0)
            tensor.raw_data = b""
    return copy


def _lacks_shape(value: Any) -> bool:
    return value.type.WhichOneof("value") == "tensor_type" and not value.type.tensor_type.HasField("shape")


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph, those of attributes and subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in subgraphs(node):
            yield from tensors(inner)


# -- tensors


def array_of(tensor: Any, folder: Path | None) -> np.ndarray:
    """The values of a TensorProto; ``folder`` is that of the model's file, where external data lies."""
    onnx = onnx_package()
    what = f"tensor {tensor.name or '(unnamed)'}"
    dtype = numpy_dtype(dtype_of(tensor.data_type, what))
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise UserError(f"{what} has the shape {shape}")
    nbytes = math.prod(shape) * dtype.itemsize
    if tensor.data_location == 1:
        return _external(tensor, folder, what, dtype, shape, nbytes)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != nbytes:
        raise UserError(f"{what} of shape {shape} has {len(tensor.raw_data)} bytes, not {nbytes}")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor), dtype).reshape(shape)
    except ValueError as error:
        raise UserError(f"{what} of shape {shape} has another number of elements: {error}") from None


def external_place(tensor: Any, folder: Path | None, what: str) -> tuple[Path, int, int | None]:
    """File, offset and length of a tensor's external data; a UserError for a file that is not in the folder."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise UserError(
            f"{what} lies in the file {location!r}, and the model was not read from a file",
            hint="give from_onnx the path of the model",
        )
    parts = Path(location.replace("\\", "/")).parts
    root = folder.resolve()
    file = (root / location).resolve()
    is_outside = not location or ".." in parts or Path(location).is_absolute() or not file.is_relative_to(root)
    if is_outside or ":" in location:
        raise UserError(f"{what} lies in {location!r}, which is not in the folder of the model")
    if not file.is_file():
        raise UserError(f"{what} lies in {location!r}, which is no file", hint="it belongs beside the model")
    try:
        offset = int(fields.get("offset", "0"))
        length = int(fields["length"]) if "length" in fields else None
    except ValueError:
        raise UserError(f"{what} has the offset {fields.get('offset')!r} and length {fields.get('length')!r}") from None
    return file, offset, length


def _external(
    tensor: Any, folder: Path | None, what: str, dtype: np.dtype, shape: tuple[int, ...], nbytes: int
) -> np.ndarray:  # fmt: skip
    file, offset, length = external_place(tensor, folder, what)
    available = file.stat().st_size
    if offset < 0 or (length is not None and length != nbytes) or offset + nbytes > available:
        raise UserError(
            f"{what} of shape {shape} needs {nbytes} bytes from {offset} on, and is said to have {length} in a file of"
            f" {available}"
        )
    if nbytes == 0:
        return np.zeros(shape, dtype)
    with file.open("rb") as stream:
        stream.seek(offset)
        data = np.fromfile(stream, dtype.newbyteorder("<"), math.prod(shape))
    return data.astype(dtype, copy=False).reshape(shape)


def sparse_array_of(sparse: Any, folder: Path | None) -> np.ndarray:
    """The values of a SparseTensorProto, written out."""
    values, indices = array_of(sparse.values, folder), array_of(sparse.indices, folder).astype(np.int64)
    shape = tuple(sparse.dims)
    what = f"sparse tensor {sparse.values.name or '(unnamed)'}"
    size = math.prod(shape) if all(s >= 0 for s in shape) else -1
    if not 0 <= size * values.dtype.itemsize <= SPARSE_LIMIT:
        raise UserError(f"{what} of shape {shape} would take {size * values.dtype.itemsize} bytes")
    if indices.ndim == 2:
        if indices.shape != (len(values), len(shape)) or ((indices < 0) | (indices >= shape)).any():
            raise UserError(f"{what} has indices outside of its shape {shape}")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if len(shape) else indices.reshape(-1)
    if indices.shape != (len(values),) or ((indices < 0) | (indices >= size)).any():
        raise UserError(f"{what} has indices outside of its shape {shape}")
    dense = np.zeros(size, values.dtype)
    dense[indices] = values.reshape(-1)
    return dense.reshape(shape)
