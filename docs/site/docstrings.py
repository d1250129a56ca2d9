"""Docstrings for the site: roles of Sphinx (:class:`X`) and examples outside of sections are written as code, and what
the decorator `deprecated` adds when a module is loaded is added where it is only read."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?<![^\n])>>> .*(?:\n.+)*")  # at the left margin, up to an empty line
FORMULA = re.compile(r"←|\S {3,}\S")  # in a paragraph whose lines are formulas, with remarks beside them
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Changes docstrings before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", ROLE.sub(r"``\1``", obj.docstring.value))
            obj.docstring.value = "\n\n".join(map(_with_formulas, text.split("\n\n")))
        for decorator in getattr(obj, "decorators", []):
            aged = _arguments(str(decorator.value))
            if aged is not None:
                text = (
                    f"\n\nDeprecated:\n    {aged['since']}: Will be removed in {aged['removed_in']}: use {aged['use']}."
                )
                old = obj.docstring.value if obj.docstring is not None else ""
                obj.docstring = griffe.Docstring(old + text, parent=obj)


def _with_formulas(paragraph: str) -> str:
    """The paragraph, as a block where it consists of formulas: its lines stay."""
    is_block = paragraph.startswith((" ", "```")) or re.match(r"\w+:\n", paragraph)
    return f"```text\n{paragraph}\n```" if FORMULA.search(paragraph) and not is_block else paragraph


def _arguments(decorator: str) -> dict[str, str] | None:
    """The keyword arguments of a call of ``deprecated``, None for any other decorator."""
    call = ast.parse(decorator, mode="eval").body
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("deprecated"):
        return None
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg is not None}
