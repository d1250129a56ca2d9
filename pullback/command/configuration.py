"""Configurations: TOML files that say what is trained on what.

    [model]
    name = "net.py:Net"            # a file, and what it defines: layers, an IRModule, or a function that returns one
    width = 128                    # further keys are arguments

    [loss]
    name = "cross_entropy"

    [optimizer]
    name = "adamw"
    lr = { name = "OneCycleLR", max_lr = 1e-3, total_steps = 1000 }

    [data]
    file = "digits.npz"            # with the arrays x, y and, for validation, x_val, y_val

    [fit]
    epochs = 5
    batch_size = 64

    [callbacks.EarlyStopping]      # more of pullback.callbacks, or FILE.py:NAME in quotes
    patience = 3

    [output]
    folder = "runs/digits"

``loss = "cross_entropy"`` is short for a table with a name alone. Paths are relative to the file. The data come from
one of: ``file`` (an .npz archive), ``x`` and ``y`` (.npy files), ``csv`` with ``target``, or ``name``, a function.
"""

from __future__ import annotations

import csv
import inspect
import sys
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import pullback
from pullback import callbacks, nn, optim
from pullback.command.program import errors_with_lines, run
from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.words import explained, unknown_argument
from pullback.nn.train import LOSSES
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training import loss as losses
from pullback.relax.training.distribution import Distribution
from pullback.relax.training.trainer import Trainer
from pullback.runtime.ranks import current

SECTIONS = ("model", "loss", "optimizer", "trainer", "data", "fit", "callbacks", "output")
NEEDED = ("model", "loss", "optimizer", "data")
OUTPUT = ("folder", "monitor", "mode", "every_steps")
ARRAYS = {"x": ("x", "x_train"), "y": ("y", "y_train"), "x_val": ("x_val", "x_test"), "y_val": ("y_val", "y_test")}
SOURCES = ("name", "file", "csv", "x")  # of data: one of these keys says which

Table = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is to be trained: a trainer, what its ``fit`` is called with, and the table ``[output]``."""

    trainer: Trainer
    fit: Table
    output: Table


def read(path: Path, settings: Sequence[tuple[str, Any]]) -> Job:
    """The job that a file describes, with some settings changed."""
    tables = _tables(path, settings)
    missing = [section for section in NEEDED if section not in tables]
    if missing:
        raise ArgumentError(
            f"{path} lacks {_listed(missing)}", hint=f'such as {missing[0]} = "{_EXAMPLES[missing[0]]}"'
        )
    return _Configuration(path.parent, tables).job()


def read_output(path: Path, settings: Sequence[tuple[str, Any]]) -> Table:
    """The table ``[output]`` alone, checked; nothing is made of the others."""
    tables = _tables(path, settings)
    return _Configuration(path.parent, tables).output()


def _tables(path: Path, settings: Sequence[tuple[str, Any]]) -> Table:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {error}", hint="such as [optimizer], then lr = 1e-3") from None
    tables = {section: _as_table(section, value) for section, value in tables.items()}
    for name, value in settings:
        change(tables, name, value)
    return tables


_DATA = 'file = "data.npz"; x = "x.npy" and y = "y.npy"; csv = "data.csv" and target = "column"; name = "data.py:load"'
_EXAMPLES = {"model": "net.py:Net", "loss": "cross_entropy", "optimizer": "adam", "data": "data.py:load"}


def change(tables: Table, name: str, value: Any) -> None:
    """Set ``section.key`` (or ``section.key.key``) of tables."""
    section, *keys = name.split(".")
    _check_section(section)
    if not keys or not all(keys):
        raise ArgumentError(f"--set {name} names no setting", hint=f"such as --set {section}.name=value")
    at = tables.setdefault(section, {})
    for number, key in enumerate(keys[:-1], 1):
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            place = ".".join([section, *keys[:number]])
            raise ArgumentError(f"--set {name}: {place} is {at!r}, which has no settings", hint=f"--set {place}=value")
    at[keys[-1]] = value


def setting(text: str) -> tuple[str, Any]:
    """``optimizer.lr=1e-4`` as name and value: a value of TOML, or else the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ArgumentError(f"--set takes NAME=VALUE, got {text!r}", hint="such as --set optimizer.lr=1e-4")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def resolve(text: Any, folder: Path, where: str) -> Any:
    """What ``file.py:name`` stands for."""
    if not isinstance(text, str) or ":" not in text:
        raise ArgumentError(
            f"{where} must be FILE.py:NAME, got {text!r}", hint=f'such as "{_EXAMPLES.get(where, "net.py:Net")}"'
        )
    file, _, name = text.rpartition(":")
    path = folder / file
    if not path.is_file():
        raise ArgumentError(f"{where}: there is no file {path}", hint=_hint_of_file(path))
    values = module_of(path)
    if name not in values:
        own = [k for k, v in values.items() if not k.startswith("_") and not isinstance(v, types.ModuleType)]
        raise ArgumentError(f"{where}: {path} defines no {name!r}{suggestion(name, own)}; it has: {_listed(own)}")
    return values[name]


def module_of(path: Path) -> Table:
    """The names of a file, which is run once."""
    place = path.resolve()
    if place not in _modules:
        module = types.ModuleType(f"pullback_program_{path.stem}")  # not the name of another module
        run(path, module)
        _modules[place] = sys.modules[module.__name__] = module
        sys.path.append(str(place.parent))  # for imports in functions
    return vars(_modules[place])


_modules: dict[Path, types.ModuleType] = {}


def call(function: Any, arguments: Table, where: str, path: Path | None = None) -> Any:
    """A function or class with arguments from tables; what does not fit is an error that names the place."""
    name = getattr(function, "__name__", str(function))
    try:
        if path is None:
            return explained(function, name)(**arguments)
        with errors_with_lines(path):
            return explained(function, name)(**arguments)
    except UserError as error:
        raise type(error)(f"{where}: {error.message}", span=error.span, hint=error.hint) from error


class _Configuration:
    """The tables of a file in a folder."""

    def __init__(self, folder: Path, tables: Table) -> None:
        self.folder, self.tables = folder, tables

    def job(self) -> Job:
        fit, output = dict(self.tables.get("fit", {})), self.output()
        check_fit(fit)
        loss, optimizer = self.loss(), self.optimizer()  # what is quick comes first
        if "callbacks" in self.tables:
            fit["callbacks"] = [self.callback(name, table) for name, table in self.tables["callbacks"].items()]
        model, data = self.model(), self.data()
        example = data.pop("example", None)
        if isinstance(model, nn.Module):
            example = _example(data["x"]) if example is None else example
        options = self.tables.get("trainer", {})
        given = {"model": model, "loss": loss, "optimizer": optimizer} | (
            {} if example is None else {"example": example}
        )
        _check_keys("trainer", options, [k for k in _parameters(pullback.trainer) if k not in (*given, "device")])
        trainer = call(pullback.trainer, given | options | self.distributed(options), "[trainer]")
        if "csv" in self.tables["data"]:
            data = {k: _like_targets(v, trainer) for k, v in data.items()}
        return Job(trainer, data | fit, output)

    def output(self) -> Table:
        output = self.tables.get("output", {})
        _check_keys("output", output, OUTPUT)
        if "folder" in output:
            output = output | {"folder": self.path(output["folder"], "output.folder")}
        return output

    def path(self, value: Any, where: str) -> Path:
        if not isinstance(value, str) or not value:
            raise ArgumentError(f"{where} must be a path, got {value!r}")
        return self.folder / Path(value).expanduser()

    def model(self) -> Any:
        table = dict(self.tables["model"])
        name = _name(table, "model")
        found = resolve(name, self.folder, "model")
        if isinstance(found, (nn.Module, pullback.IRModule)):
            _check_keys("model", table, ())
            return found
        if not callable(found):
            message = f"model: {name} is a {type(found).__name__}"
            raise ArgumentError(message, hint="layers (nn.Module), an IRModule, or a function that returns one")
        return call(found, table, "model", self.folder / name.rpartition(":")[0])

    def distributed(self, options: Table) -> Table:
        """The argument ``distributed`` of the trainer: several ranks train together, whether a file says so or not."""
        chosen = options.get("distributed", "data" if current().size > 1 else None)
        if isinstance(chosen, dict):
            chosen = call(Distribution, chosen, "[trainer.distributed]")
        return {"distributed": chosen}

    def loss(self) -> Any:
        known = LOSSES | {n: k for n, k in vars(losses).items() if isinstance(k, type) and issubclass(k, losses.Loss)}
        return self.made(
            self.tables["loss"], "loss", known, tuple(LOSSES), is_called=lambda loss: isinstance(loss, type)
        )

    def optimizer(self) -> Any:
        table = self.tables["optimizer"]
        if table.keys() == {"name"} and table["name"] in optim.BY_NAME:
            return optim.BY_NAME[table["name"]]()
        classes = {name: getattr(optim, name) for name in optim.__all__ if callable(getattr(optim, name))}
        short = {name.lower(): kind for name, kind in classes.items() if name.lower() in optim.BY_NAME}
        return self.made(table, "optimizer", classes | short, tuple(optim.BY_NAME))

    def callback(self, name: str, table: Any) -> Any:
        if not isinstance(table, dict):
            raise ArgumentError(f"callbacks.{name} must be a table, got {table!r}", hint=f"write [callbacks.{name}]")
        kinds = {n: k for n, k in vars(callbacks).items() if isinstance(k, type) and issubclass(k, callbacks.Callback)}
        return self.made({"name": name, **table}, f"callbacks.{name}", kinds, kinds)

    def made(
        self, table: Table, where: str, known: Mapping[str, Any], names: Iterable[str],
        is_called: Callable[[Any], bool] = callable,
    ) -> Any:  # fmt: skip
        """What a table with a name stands for; its other keys are arguments, tables with names among them too."""
        arguments = dict(table)
        name = _name(arguments, where)
        file = None
        if isinstance(name, str) and ":" in name:
            found, file = resolve(name, self.folder, where), self.folder / name.rpartition(":")[0]
        elif name in known:
            found = known[name]
        else:
            hint = f"the names are {_listed(names)}; or FILE.py:NAME"
            raise ArgumentError(f"{where}: there is no {name!r}{suggestion(str(name), known)}", hint=hint)
        for key, value in arguments.items():
            if isinstance(value, dict) and "name" in value:
                arguments[key] = self.made(value, f"{where}.{key}", known, names)
        if not is_called(found) and not arguments:
            return found
        return call(found, arguments, f"[{where}]", file)

    # ---- data

    def data(self) -> Table:
        """x, y and validation, as ``fit`` takes them."""
        table = dict(self.tables["data"])
        kinds = [key for key in SOURCES if key in table]
        if "file" in kinds and "x" in kinds:
            kinds.remove("x")  # the name of an array
        if len(kinds) != 1:
            told = f"says where the data are by {_listed(kinds)}" if kinds else "does not say where the data are"
            raise ArgumentError(f"[data] {told}: one of {_listed(SOURCES)} does", hint=_DATA)
        found = {"name": self._called, "file": self._archive, "csv": self._table, "x": self._files}[kinds[0]](table)
        if ("x_val" in found) != ("y_val" in found):
            raise ArgumentError(
                f"[data] has x_val or y_val alone: it has {_listed(found)}", hint="validation takes both"
            )
        if "x_val" in found:
            found["validation"] = (found.pop("x_val"), found.pop("y_val"))
        return found

    def _called(self, table: Table) -> Table:
        name = _name(table, "data")
        function = resolve(name, self.folder, "data")
        if not callable(function):
            raise ArgumentError(f"data: {name} is a {type(function).__name__}", hint="it must be a function")
        found = call(function, table, "[data]", self.folder / name.rpartition(":")[0])
        if isinstance(found, dict):
            return dict(found)
        if isinstance(found, (tuple, list)) and len(found) in (2, 4):
            return dict(zip(("x", "y", "x_val", "y_val"), found, strict=False))
        hint = "return (x, y), (x, y, x_val, y_val), or a dict of arguments of fit"
        raise ArgumentError(f"data: {name} returned {_described(found)}", hint=hint)

    def _archive(self, table: Table) -> Table:
        _check_keys("data", table, ("file", *ARRAYS))
        path = self.path(table["file"], "data.file")
        try:
            found = np.load(_existing(path, "data.file"), allow_pickle=False)
            if isinstance(found, np.ndarray):
                raise ValueError("it holds one array: write x = and y =")
            with found as arrays:
                names = {key: self._array_name(key, table, arrays.files, path) for key in ARRAYS}
                return {key: arrays[name] for key, name in names.items() if name is not None}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ArgumentError(
                f"data.file: {path} cannot be read: {error}", hint="numpy.savez writes such files"
            ) from None

    def _array_name(self, key: str, table: Table, there: Sequence[str], path: Path) -> str | None:
        """The name in the archive of x, y, x_val or y_val; None for what it does not have."""
        asked = [table[key]] if key in table else ARRAYS[key]
        found = next((name for name in asked if name in there), None)
        if found is None and (key in table or key in ("x", "y")):
            hint = f'{key} = "…" says which array is {key}'
            raise ArgumentError(f"data.file: {path} has no array {asked[0]!r}; it has: {_listed(there)}", hint=hint)
        return found

    def _files(self, table: Table) -> Table:
        _check_keys("data", table, tuple(ARRAYS))
        if "y" not in table:
            raise ArgumentError("[data] has x and no y", hint='y = "y.npy"')
        found = {}
        for key, value in table.items():
            several = value if isinstance(value, list) else [value]
            arrays = [self._array(one, f"data.{key}") for one in several]
            found[key] = arrays if isinstance(value, list) else arrays[0]
        return found

    def _array(self, value: Any, where: str) -> Any:
        path = _existing(self.path(value, where), where)
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ArgumentError(
                f"{where}: {path} is no .npy file: {error}", hint="numpy.save writes such files"
            ) from None
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"{where}: {path} holds several arrays", hint=f'file = "{value}"')
        return array

    def _table(self, table: Table) -> Table:
        _check_keys("data", table, ("csv", "target", "columns", "delimiter", "validation_csv"))
        if "target" not in table:
            raise ArgumentError("[data] has csv and no target", hint='target = "column", the one to predict')
        found = dict(zip(("x", "y"), self._columns(table["csv"], "data.csv", table), strict=True))
        if "validation_csv" in table:
            more = self._columns(table["validation_csv"], "data.validation_csv", table)
            found |= dict(zip(("x_val", "y_val"), more, strict=True))
        return found

    def _columns(self, value: Any, where: str, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """The features and the targets of a file with a heading."""
        path = _existing(self.path(value, where), where)
        delimiter = table.get("delimiter", ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise ArgumentError(f"data.delimiter must be one character, got {delimiter!r}")
        try:
            with path.open(newline="", encoding="utf-8") as file:
                heading, *rows = [row for row in csv.reader(file, delimiter=delimiter) if row] or [[]]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ArgumentError(f"{where}: {path} cannot be read: {error}") from None
        names = [name.strip() for name in heading]
        targets = table["target"] if isinstance(table["target"], list) else [table["target"]]
        features = table.get("columns", [name for name in names if name not in targets])
        for name in [*targets, *features]:
            if name not in names:
                raise ArgumentError(
                    f"{where}: {path} has no column {name!r}{suggestion(str(name), names)}; it has: {_listed(names)}"
                )
        numbers = _numbers(rows, names, path, where)
        x, y = (numbers[:, [names.index(n) for n in chosen]] for chosen in (features, targets))
        is_whole = bool((y == np.round(y)).all())
        return x.astype(np.float32), (y if len(targets) > 1 else y[:, 0]).astype(np.int64 if is_whole else np.float32)


def check_fit(table: Table) -> None:
    """The keys are arguments of ``fit`` that a file can give."""
    _check_keys(
        "fit", table, [k for k in _parameters(Trainer.fit) if k not in ("self", "x", "y", "validation", "resume")]
    )


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _check_keys(section: str, table: Table, known: Iterable[str]) -> None:
    known = list(known)
    for key in table:
        if key not in known:
            hint = unknown_argument(key, known, f"it has: {_listed(known)}")
            raise ArgumentError(f"[{section}] has no setting {key!r}", hint=hint)


def _check_section(section: str) -> None:
    if section not in SECTIONS:
        message = f"there is no section {section!r}{suggestion(section, SECTIONS)}"
        raise ArgumentError(message, hint=f"the sections are {_listed(SECTIONS)}")


def _as_table(section: str, value: Any) -> Table:
    _check_section(section)
    if isinstance(value, str) and section in NEEDED:
        return {"name": value}
    if not isinstance(value, dict):
        raise ArgumentError(
            f"{section} must be a table, got {value!r}", hint=f"write [{section}], and its settings below"
        )
    return value


def _name(table: Table, where: str) -> Any:
    if "name" not in table:
        example = _EXAMPLES.get(where.partition(".")[0], "…")
        raise ArgumentError(f"[{where}] has no name; it has: {_listed(table)}", hint=f'such as name = "{example}"')
    return table.pop("name")


def _existing(path: Path, where: str) -> Path:
    if not path.is_file():
        raise ArgumentError(f"{where}: there is no file {path}", hint=_hint_of_file(path))
    return path


def _hint_of_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}; paths are relative to the configuration"
    there = sorted(p.name for p in path.parent.iterdir() if p.suffix == path.suffix)
    return f"{path.parent} has: {_listed(there[:20])}"


def _numbers(rows: Sequence[Sequence[str]], names: Sequence[str], path: Path, where: str) -> np.ndarray:
    if not rows:
        raise ArgumentError(f"{where}: {path} has no rows", hint="a heading, then numbers")
    numbers = np.empty((len(rows), len(names)))
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise ArgumentError(f"{where}: {path}, row {number + 1} has {len(row)} cells, the heading {len(names)}")
        for column, text in enumerate(row):
            try:
                numbers[number, column] = float(text)
            except ValueError:
                hint = "cells are numbers: encode words first, and fill what is missing"
                raise ArgumentError(
                    f"{where}: {path}, row {number + 1}, {names[column]} is {text!r}", hint=hint
                ) from None
    return numbers


def _example(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


def _like_targets(value: Any, trainer: Trainer) -> Any:
    """Targets of one column as the loss takes them: those of a regression have an axis for it."""
    info = trainer._interface.targets[0].info
    if isinstance(value, tuple):  # of validation
        return value[0], _like_targets(value[1], trainer)
    is_column = isinstance(info, TensorStructInfo) and info.ndim == 2
    return value[:, None] if value.ndim == 1 and is_column else value


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"


def _described(value: Any) -> str:
    return (
        f"a {type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
    )
