"""Questions about relay's expressions, types and modules; one file a subject."""

from pullback.relay.analysis.variables import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
)
from pullback.relay.visitor import post_order_visit

__all__ = [
    "all_type_vars",
    "all_vars",
    "bound_type_vars",
    "bound_vars",
    "free_type_vars",
    "free_vars",
    "post_order_visit",
]
