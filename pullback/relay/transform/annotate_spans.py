"""AnnotateSpans: the program as it is read back from its own text, so that each expression has a place in that.

nn.relu(%x)      →      nn.relu(%x) /* span=GeneratedSource:4:3 */
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.expr import Function
from pullback.relay.text import astext, parse


@dataclass(frozen=True)
class AnnotateSpans(Pass):
    """Give every expression a span in the text of the module.

    Checks: the module has to be one that its text can express. Structure and types stay.
    """

    def run(self, module: IRModule) -> IRModule:
        found = parse(astext(module), "GeneratedSource")
        result = module.copy()
        for name, function in found.items():
            if isinstance(function, Function):
                result[name] = function
        result.type_definitions = dict(found.type_definitions)
        return result
