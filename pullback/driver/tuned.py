"""Tuned choices on disk: one JSON file for each target, in the directory of the object cache.

    {"format": 1, "compiler": fingerprint, "target": key, "choices": {group's key: choice}}

`python -m pullback tune` writes it; the compiler reads it when it is there. ``PULLBACK_TUNED=0`` leaves it alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pullback.driver.cache import compiler_fingerprint, object_cache
from pullback.driver.folder import Folder, FolderError
from pullback.ir.environment import switch
from pullback.ir.errors import UserError
from pullback.schedule.tuning import Choice, Choices
from pullback.target import Target

_FORMAT = 1
_MOST_BYTES = 1 << 24
_NONE = Choices()


def tuned_file(target: Target) -> Path:
    """Where the choices for a target are kept, whether there are any or not."""
    return object_cache().directory / _name(target)


def _name(target: Target) -> str:
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in target.cpu or target.arch)
    return f"tuned-{name}-{hashlib.sha256(target.key.encode()).hexdigest()[:12]}.json"


def tuned_choices(target: Target) -> Choices:
    """The choices for a target; none where nothing was tuned, and, with a warning, where the file is of no use."""
    if not switch("PULLBACK_TUNED", default="1"):
        return _NONE
    folder, name = object_cache().folder, _name(target)
    try:
        with folder.opened() as files:
            info = files.stat(name)
    except OSError:
        return _NONE
    return _NONE if info is None else _read(folder, name, target.key, (info.st_mtime_ns, info.st_size, info.st_ino))


def store_choices(target: Target, found: Mapping[str, Choice | None]) -> Path:
    """Add choices to those that are kept; None takes one away. Other processes see the old file or the new one.

    Raises UserError where the folder of the object cache cannot be written."""
    folder, name = object_cache().folder, _name(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what could not be read is replaced
        known = dict(_parse(folder, name, target.key).by_key)
    for key, choice in found.items():
        known.pop(key, None)
        if choice is not None:
            known[key] = choice
    content = {
        "format": _FORMAT, "compiler": compiler_fingerprint(), "target": target.key,
        "choices": {key: choice.to_json() for key, choice in sorted(known.items())},
    }  # fmt: skip
    try:
        folder.prepare()
        with folder.opened() as files:
            files.write(name, json.dumps(content, indent=1).encode())
    except OSError as problem:
        reason = problem if isinstance(problem, FolderError) else f"can't be written ({problem.strerror})"
        message = f"what was tuned can't be kept: {folder.directory} {reason}"
        raise UserError(message, hint="set PULLBACK_CACHE_DIR to a directory that you can write") from None
    return folder.path / name


def forget_choices(target: Target) -> int:
    """Take away what was tuned for a target; returns how many choices that were. UserError where it stays."""
    folder, name = object_cache().folder, _name(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = len(_parse(folder, name, target.key).by_key)
    try:
        with folder.opened() as files:
            files.remove(name)
            left = files.stat(name)
    except FileNotFoundError:
        return 0
    except OSError as problem:
        raise UserError(f"{folder.path} can't be used: {problem}", hint="look at who may write it") from None
    if left is not None:
        raise UserError(f"{folder.path / name} can't be removed", hint="it is no file that this user alone can write")
    return count


@functools.lru_cache(maxsize=16)
def _read(folder: Folder, name: str, key: str, version: tuple[int, int, int]) -> Choices:
    """The file's choices; read again when its ``version`` is another."""
    return _parse(folder, name, key)


def _parse(folder: Folder, name: str, key: str) -> Choices:
    try:
        with folder.opened() as files:
            there, data = files.stat(name), files.read(name, _MOST_BYTES)
        if there is None:
            return _NONE
        if data is None:
            raise ValueError("it is no file that this user alone can write")
        return Choices(_checked(json.loads(data), key))
    except OSError:  # the folder is not there, or not ours
        return _NONE
    except (ValueError, RecursionError) as error:
        warnings.warn(
            f"the tuned choices in {folder.path / name} are not used, kernels have their default tiles: {error}"
            f" (run `python -m pullback tune` again, delete the file, or set PULLBACK_TUNED=0)",
            RuntimeWarning,
            stacklevel=2,
        )
        return _NONE


def _checked(data: Any, key: str) -> dict[str, Choice]:
    """The choices of a file's content; a ValueError says what is wrong with it."""
    if not isinstance(data, dict) or data.get("format") != _FORMAT or not isinstance(data.get("choices"), dict):
        raise ValueError("it does not hold tuned choices")
    if data.get("target") != key:
        raise ValueError("they are for another target")
    if data.get("compiler") != compiler_fingerprint():
        raise ValueError("they were made by another version of the compiler")
    return {name: Choice.from_json(choice) for name, choice in data["choices"].items()}
