"""The language of patterns: places of a dataflow graph that match one are found, rewritten, or made functions.

    class Fuse(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x, self.y = wildcard(), wildcard()
            self.pattern = is_op("add")(is_op("multiply")(self.x, self.y), self.x)

        def callback(self, pre, post, node_map):
            x, y = node_map[self.x][0], node_map[self.y][0]
            return x * (y + relay.const(1.0))

    rewrite(Fuse(), expr)

``patterns.py`` has the language, ``matcher.py`` says what matches, ``groups.py`` which places do not overlap,
``rewrite.py`` replaces them.
"""

from pullback.relay.dataflow_pattern.matcher import match
from pullback.relay.dataflow_pattern.patterns import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from pullback.relay.dataflow_pattern.rewrite import DFPatternCallback, partition, rewrite

__all__ = [
    "AltPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DFPatternCallback",
    "DataTypePattern",
    "DominatorPattern",
    "ExprPattern",
    "FunctionPattern",
    "IfPattern",
    "LetPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "VarPattern",
    "WildcardPattern",
    "dominates",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "is_constant",
    "is_expr",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "match",
    "partition",
    "rewrite",
    "wildcard",
]
