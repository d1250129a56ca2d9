"""Docstrings for the site: roles of Sphinx (:class:`X`) and examples outside of sections are written as code, and what
the decorator `deprecated` adds when a module is loaded is added where it is only read."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?<![^\n])>>> .*(?:\n.+)*")  # at the left margin, up to an empty line
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Changes docstrings before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            text = ROLE.sub(r"``\1``", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)
        for decorator in getattr(obj, "decorators", []):
            aged = _arguments(str(decorator.value))
            if aged is not None:
                text = (
                    f"\n\nDeprecated:\n    {aged['since']}: Will be removed in {aged['removed_in']}: use {aged['use']}."
                )
                old = obj.docstring.value if obj.docstring is not None else ""
                obj.docstring = griffe.Docstring(old + text, parent=obj)


def _arguments(decorator: str) -> dict[str, str] | None:
    """The keyword arguments of a call of ``deprecated``, None for any other decorator."""
    call = ast.parse(decorator, mode="eval").body
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("deprecated"):
        return None
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg is not None}
