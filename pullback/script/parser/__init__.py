"""Reading script: source text to IR.

``entry`` takes what was decorated, ``module`` reads classes, ``graph`` graph functions, ``loops`` loop functions; all
three evaluate expressions with ``evaluator``, which looks names up in a ``scope``. Of graph functions, ``branches``,
``repeats`` and ``closures`` read if, loops and functions inside; ``flow`` says which names are read later.
"""

from pullback.script import ir, relax, tir

__all__ = ["ir", "relax", "tir"]
