"""Trained weights back into files of ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.nn.updates import merged_values
from pullback.relax.frontend.onnx import load
from pullback.relax.frontend.onnx.model import OnnxModel
from pullback.relax.frontend.onnx.wire import with_initialisers
from pullback.runtime.files import path_of, write_atomically

__all__ = ["to_onnx"]


def to_onnx(model: Any, path: Any) -> None:
    """Write the file that a model was read from, with the model's present weights.

    ``model``: what :func:`pullback.from_onnx` returned, or a trainer of it. Only the values of initialisers that
    changed are others; every other byte is as it was. Of a model with external data, the data files are written beside
    the new file under their names.

    >>> trainer.fit(x, y, epochs=3)
    >>> to_onnx(trainer, "trained.onnx")

    Raises ArgumentError for a model that is not from ONNX; UserError where the file was changed since it was read, or
    where external data would overwrite that of the original.
    """
    imported = model if isinstance(model, OnnxModel) else getattr(model, "model", None)
    if not isinstance(imported, OnnxModel):
        raise ArgumentError(
            f"to_onnx writes models that from_onnx read, got {type(model).__name__}",
            hint="other models are exported: trainer.export(folder)",
        )
    target = Path(path_of(path, '"trained.onnx"'))
    data = _source(imported)
    onnx = load.onnx_package()
    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    values = merged_values(imported)
    inside: dict[str, np.ndarray] = {}
    outside: dict[Path, list[tuple[int, np.ndarray]]] = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location == 1:
            file, offset, _ = load.external_place(tensor, imported.folder, f"tensor {tensor.name}")
            outside.setdefault(file, [])
        if tensor.name not in imported.paths:
            continue
        old = load.array_of(tensor, imported.folder)
        new = values[imported.paths[tensor.name]]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise UserError(
                f"the initialiser {tensor.name} is {old.dtype}{old.shape} in the file now, {new.dtype}{new.shape} in"
                " the model",
                hint="the file was changed since it was read",
            )
        if old.tobytes() == new.tobytes():
            continue
        if tensor.data_location == 1:
            outside[file].append((offset, new))
        else:
            inside[tensor.name] = new
    missing = sorted(set(imported.paths) - {t.name for t in proto.graph.initializer})
    if missing:
        raise UserError(f"the file has no initialiser {missing[0]} any more", hint="it was changed since it was read")
    _write_data(imported, outside, target)
    write_atomically(target, with_initialisers(data, inside) if inside else data)


def _source(imported: OnnxModel) -> bytes:
    if isinstance(imported.source, bytes):
        return imported.source
    try:
        return imported.source.read_bytes()
    except OSError as error:
        raise UserError(
            f"{imported.source} cannot be read: {error.strerror}", hint="the file that the model came from is needed"
        ) from None


def _write_data(imported: OnnxModel, files: dict[Path, list[tuple[int, np.ndarray]]], target: Path) -> None:
    """Write the files of external data beside the new file."""
    if not files:
        return
    assert imported.folder is not None and isinstance(imported.source, Path)  # data in files are of a model in a file
    source, folder = imported.folder.resolve(), target.resolve().parent
    if folder == source and target.resolve() != imported.source.resolve():
        raise UserError(
            f"{target} would share its external data with {imported.source}",
            hint="write it into another folder, where its data files get their own",
        )
    for file, changes in files.items():
        data = bytearray(file.read_bytes())
        for offset, array in changes:
            raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            data[offset : offset + len(raw)] = raw
        place = folder / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, bytes(data))
