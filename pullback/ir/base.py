"""The same names as ``pullback.ir``, where ports of older programs look for them."""

from pullback.ir.digest import structural_hash
from pullback.ir.node import Node, assert_structural_equal, structural_equal

__all__ = ["Node", "assert_structural_equal", "structural_equal", "structural_hash"]
