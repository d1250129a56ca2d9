"""Writing script: IR to text.

``names`` gives unique Python names, ``literals`` writes attributes and arrays, ``scalars`` the expressions of the loop
IR, ``types`` struct infos, ``graph`` and ``loops`` functions, and ``module`` puts a module together. Of graph
functions, ``branches`` writes if, ``control`` loops and functions inside; ``uses`` says which names are free again.
"""

from pullback.ir.node import set_printer
from pullback.script.printer.module import script
from pullback.script.printer.page import html

set_printer(script, html)

__all__ = ["script"]
