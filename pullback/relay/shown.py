"""Nodes of relay are shown as relay text and saved as JSON; modules import its standard library. All of it is loaded
when it is first used."""

from __future__ import annotations

from typing import Any

from pullback.ir.module import IRModule, set_import_from_std
from pullback.ir.node import Node
from pullback.ir.saved import set_json


class Shown(Node):
    """Base of expressions, types and patterns: ``str(node)`` and ``node.astext()``."""

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """The node as relay text, with the version line first: :func:`pullback.relay.text.astext`."""
        return Shown.text_of(self, show_meta_data=show_meta_data, annotate=annotate)

    def script(self, **options: Any) -> str:
        """:meth:`astext`."""
        return Shown.text_of(self, **options)

    def __str__(self) -> str:
        return Shown.text_of(self, to_read=True)

    @staticmethod
    def text_of(node: Any, to_read: bool = False, **options: Any) -> str:
        """A node or a module of such functions as text; ``to_read``: without what only machines need."""
        from pullback.relay.text import astext, pretty_print

        return pretty_print(node) if to_read else astext(node, **options)


def _save(node: Any) -> str:
    from pullback.relay.text import save_json

    return save_json(node)


def _load(text: str) -> Any:
    from pullback.relay.text import load_json

    return load_json(text)


def _import(module: IRModule, name: str) -> None:
    from pullback.relay.prelude import import_from_std

    import_from_std(module, name)


set_json(_save, _load)
set_import_from_std(_import)
