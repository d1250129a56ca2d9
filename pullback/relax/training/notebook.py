"""Whether this is a notebook, and output there that is replaced."""

from __future__ import annotations

import sys
from typing import Any


def in_notebook() -> bool:
    """Whether the code runs in a kernel whose front end shows HTML: Jupyter, Colab, VS Code. (IPython in a terminal is
    none.)"""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def cell() -> Any:
    """The number of the cell that runs; None outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "execution_count", None)


class Area:
    """A place under the cell whose content is replaced: HTML, and text for what shows none."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str, text: str) -> None:
        from IPython.display import display

        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
