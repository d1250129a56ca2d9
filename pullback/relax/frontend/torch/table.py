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

HEAD = """# Operators of PyTorch

Written by `python -m pullback converters torch --markdown`; a test compares it with the table of conversions. A name
stands for all overloads, one with a third part for that overload alone. Operators that PyTorch composes of others, and
assignments in place (`add_`), come as others: `torch.export` takes them apart. One that is missing is added by
[`register_converter`](../../pullback/relax/frontend/converters.py).

Results are PyTorch's, and gradients too, within the rounding of their dtype. Random numbers have the same distribution
and other bits. Memory formats, devices and the layout of tensors mean nothing here.
"""

ATEN = Converters("torch", HEAD)

LEFT_OUT = ("device", "layout", "memory_format", "pin_memory", "generator", "non_blocking")  # arguments
