"""Tuned choices on disk: one JSON file for each target, in the directory of the object cache.

    {"format": 1, "compiler": fingerprint, "target": key, "choices": {group's key: choice}}

`python -m pullback tune` writes it; the compiler reads it when it is there. ``PULLBACK_TUNED=0`` leaves it alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pullback.driver.cache import compiler_fingerprint, object_cache
from pullback.driver.debug import switch
from pullback.schedule.tuning import Choice, Choices
from pullback.target import Target

_FORMAT = 1
_NONE = Choices()


def tuned_file(target: Target) -> Path:
    """Where the choices for a target are kept, whether there are any or not."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in target.cpu or target.arch)
    return object_cache().directory / f"tuned-{name}-{hashlib.sha256(target.key.encode()).hexdigest()[:12]}.json"


def tuned_choices(target: Target) -> Choices:
    """The choices for a target; none where nothing was tuned, and, with a warning, where the file is of no use."""
    if not switch("PULLBACK_TUNED", default="1"):
        return _NONE
    path = tuned_file(target)
    try:
        info = path.stat()
    except OSError:
        return _NONE
    return _read(path, target.key, (info.st_mtime_ns, info.st_size, info.st_ino))


def store_choices(target: Target, found: Mapping[str, Choice | None]) -> Path:
    """Add choices to those that are kept; None takes one away. Other processes see the old file or the new one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what could not be read is replaced
        known = dict(_parse(tuned_file(target), target.key).by_key)
    for key, choice in found.items():
        known.pop(key, None)
        if choice is not None:
            known[key] = choice
    path = tuned_file(target)
    content = {
        "format": _FORMAT, "compiler": compiler_fingerprint(), "target": target.key,
        "choices": {key: choice.to_json() for key, choice in sorted(known.items())},
    }  # fmt: skip
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1))
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return path


@functools.lru_cache(maxsize=16)
def _read(path: Path, key: str, version: tuple[int, int, int]) -> Choices:
    """The file's choices; read again when its ``version`` is another."""
    return _parse(path, key)


def _parse(path: Path, key: str) -> Choices:
    try:
        return Choices(_checked(json.loads(path.read_bytes()), key))
    except FileNotFoundError:
        return _NONE
    except (OSError, ValueError) as error:
        warnings.warn(
            f"the tuned choices in {path} are not used, kernels have their default tiles: {error}"
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


def tuned_digest(target: Target) -> str:
    """What a key of compiled code has to hold of the target's choices: nothing when there are none."""
    choices = tuned_choices(target)
    if not choices:
        return ""
    text = json.dumps({key: choice.to_json() for key, choice in sorted(choices.by_key.items())})
    return hashlib.sha256(text.encode()).hexdigest()
