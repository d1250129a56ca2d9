"""Programs as JSON. A language that has such a form installs it (relay does)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import UserError

_save: Callable[[Any], str] | None = None
_load: Callable[[str], Any] | None = None
_HINT = "import pullback.relay first: programs of relay can be saved as JSON; script() is the text of others"


def set_json(save: Callable[[Any], str], load: Callable[[str], Any]) -> None:
    """Install the functions that write and read programs (``relay/shown.py`` does so on import)."""
    global _save, _load
    _save, _load = save, load


def save_json(node: Any) -> str:
    """A module or a node of relay as JSON, each shared node once: :func:`pullback.relay.text.save_json`.

    Args:
        node: a module, expression, type or pattern of relay.

    Returns:
        the text.

    Raises:
        UserError: for what is no program of relay, and before ``pullback.relay`` is imported.
    """
    if _save is None:
        raise UserError(f"{type(node).__name__} cannot be saved as JSON", hint=_HINT)
    return _save(node)


def load_json(text: str) -> Any:
    """What :func:`save_json` wrote.

    Args:
        text: the JSON.

    Returns:
        the module or node, structurally equal to what was saved.

    Raises:
        ScriptError: where the text is something else.
        UserError: before ``pullback.relay`` is imported.
    """
    if _load is None:
        raise UserError("no program can be read from JSON", hint=_HINT)
    return _load(text)
