"""A module as HTML, for notebooks: the script of each function in colours that light and dark pages show well."""

from __future__ import annotations

from html import escape

from pullback.ir.module import IRModule
from pullback.script.printer.module import _function as function_lines

MOST_LINES = 300  # of a function that a page shows
LONGEST = 300  # characters of an attribute
OPEN_LINES = 60  # functions up to so many lines are shown open

# JupyterLab's own colours for code, and others of a middle lightness where there are none.
_COLOURS = {
    "Keyword": "var(--jp-mirror-editor-keyword-color, #2f8f46)",
    "Name.Decorator": "var(--jp-mirror-editor-meta-color, #a45bd1)",
    "Name.Function": "var(--jp-mirror-editor-def-color, #3b7ddd)",
    "Name.Class": "var(--jp-mirror-editor-def-color, #3b7ddd)",
    "Literal.String": "var(--jp-mirror-editor-string-color, #cc5a4a)",
    "Literal.Number": "var(--jp-mirror-editor-number-color, #b07d1e)",
    "Comment": "var(--jp-mirror-editor-comment-color, #7c8a8a)",
    "Operator.Word": "var(--jp-mirror-editor-keyword-color, #2f8f46)",
}


def html(module: IRModule) -> str:
    """The functions of a module one after the other; the long ones are folded."""
    names = tuple(module.functions)
    parts = [_folded(n, function_lines(f, n, names, False).text().split("\n")) for n, f in module.items()]
    if module.attrs:
        parts.insert(
            0, _folded("attributes", [f"{key} = {value!r}"[:LONGEST] for key, value in module.attrs.items()], 1)
        )
    return f"<div>{''.join(parts)}</div>"


def _folded(name: str, lines: list[str], open_lines: int = OPEN_LINES) -> str:
    shown = "\n".join(lines[:MOST_LINES])
    more = f"\n… {len(lines) - MOST_LINES:,} more lines: module.show()" if len(lines) > MOST_LINES else ""
    is_open = " open" if len(lines) <= open_lines else ""
    title = f"<b>{escape(name)}</b> <span style='opacity:0.65'>{len(lines):,} lines</span>"
    style = "margin:2px 0 8px 1.5em;background:none;color:inherit;overflow-x:auto"
    return (
        f"<details{is_open}><summary>{title}</summary>"
        f'<pre style="{style}">{highlighted(shown)}{escape(more)}</pre></details>'
    )


def highlighted(code: str) -> str:
    """Python code as HTML, its words in colours."""
    from pygments.lexers.python import PythonLexer  # rich brings it

    parts = []
    for kind, text in PythonLexer(ensurenl=False, stripnl=False).get_tokens(code):
        name = str(kind).removeprefix("Token.")
        colour = next((c for prefix, c in _COLOURS.items() if name.startswith(prefix)), None)
        parts.append(escape(text) if colour is None else f'<span style="color:{colour}">{escape(text)}</span>')
    return "".join(parts)
