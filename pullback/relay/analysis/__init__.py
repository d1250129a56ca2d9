"""Questions about relay's expressions, types and modules; one file a subject."""

from pullback.relay.analysis.call_graph import CallGraph
from pullback.relay.analysis.counts import (
    all_dtypes,
    count_layers,
    extract_intermdeiate_expr,
    extract_intermediate_expr,
    get_total_mac_number,
    list_op_freqs,
    search_fc_transpose,
)
from pullback.relay.analysis.equality import alpha_equal, assert_alpha_equal, assert_graph_equal, graph_equal
from pullback.relay.analysis.feature import Feature, check_features, detect_feature
from pullback.relay.analysis.fused import extract_fused_functions
from pullback.relay.analysis.kinds import check_kind
from pullback.relay.analysis.matches import unmatched_cases
from pullback.relay.analysis.normal_form import check_basic_block_normal_form, check_constant
from pullback.relay.analysis.variables import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
)
from pullback.relay.analysis.well_formed import well_formed
from pullback.relay.visitor import post_order_visit

__all__ = [
    "CallGraph",
    "Feature",
    "all_dtypes",
    "all_type_vars",
    "all_vars",
    "alpha_equal",
    "assert_alpha_equal",
    "assert_graph_equal",
    "bound_type_vars",
    "bound_vars",
    "check_basic_block_normal_form",
    "check_constant",
    "check_features",
    "check_kind",
    "count_layers",
    "detect_feature",
    "extract_fused_functions",
    "extract_intermdeiate_expr",
    "extract_intermediate_expr",
    "free_type_vars",
    "free_vars",
    "get_total_mac_number",
    "graph_equal",
    "list_op_freqs",
    "post_order_visit",
    "search_fc_transpose",
    "unmatched_cases",
    "well_formed",
]
