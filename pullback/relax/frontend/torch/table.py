"""The table of ATen's operators.

A converter is called as the operator's schema says: with all arguments in their order, those that are given by keyword
alone as keywords, and defaults filled in. Tensors are graph values; sizes are ints or symbolic sizes; a dtype is its
name here ("float32") or None; device, layout, memory format and generator are left out.

    # aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    @ATEN.register("aten.addmm")
    def addmm(input, mat1, mat2, *, beta, alpha): ...

A result that hardly anything reads may be a function without arguments, which is called where it is taken.

``aten.add`` stands for all overloads, ``aten.add.Tensor`` for one; the more exact name counts.
"""

from __future__ import annotations

from pullback.relax.frontend.converters import Converters

ATEN = Converters("torch")

LEFT_OUT = ("device", "layout", "memory_format", "pin_memory", "generator", "non_blocking")  # arguments
