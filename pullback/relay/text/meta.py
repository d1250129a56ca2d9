"""Objects that text only refers to: ``meta[relay.Constant][0]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SECTION = "#[metadata]"
OMITTED = "// meta data omitted. you can use show_meta_data=True to include meta data"


class MetaTable:
    """Objects by the kind of node that they are, each once."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {}
        self._index: dict[int, int] = {}

    def reference(self, value: Any) -> str:
        """The text that refers to the object."""
        key = kind_of(value)
        entries = self.table.setdefault(key, [])
        index = self._index.get(id(value))
        if index is None:
            index = self._index[id(value)] = len(entries)
            entries.append(value)
        return f"meta[{key}][{index}]"

    def section(self, attrs: Mapping[str, Any]) -> str:
        """The section of the objects and of the module's attributes; nothing when there are none."""
        if not self.table and not attrs:
            return ""
        from pullback.relay.text.saved import metadata_text

        return f"{SECTION}\n{metadata_text(self.table, attrs)}\n"


def kind_of(value: Any) -> str:
    """What a meta table calls a kind of object: ``relay.Constant``."""
    kind = type(value)
    room = kind.__module__.split(".")[1] if kind.__module__.startswith("pullback.") else ""
    return f"{room}.{kind.__name__}" if room else kind.__name__
