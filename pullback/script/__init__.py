"""Script: both IRs as Python text, read by a parser and written by a printer.

    from pullback.script import ir as I, relax as R, tir as T

``@I.ir_module`` on a class, ``@R.function`` and ``@T.prim_func`` on a function read the *source* of what they decorate:
its body never runs as Python, but each expression in it is evaluated: a text is a program of whoever wrote it
(docs/security.md). Printing a node and parsing the text back gives a structurally equal node.
"""

from pullback.script import ir, relax, tir
from pullback.script.ir import ir_module
from pullback.script.parser.entry import from_source
from pullback.script.printer import script  # installs the printer of all nodes

__all__ = ["from_source", "ir", "ir_module", "relax", "script", "tir"]
