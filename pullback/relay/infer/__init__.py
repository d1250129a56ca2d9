"""Type inference: unknown types, constraints between them, and expressions that have their types written in.

``solver.py`` knows unknowns and constraints, ``inferencer.py`` what each expression demands, ``operators.py`` waits
for the types of operators' arguments, ``annotate.py`` writes the result, ``module.py`` takes modules.
"""

from pullback.relay.infer.errors import TypeInferenceError
from pullback.relay.infer.module import infer_expr, infer_module

__all__ = ["TypeInferenceError", "infer_expr", "infer_module"]
