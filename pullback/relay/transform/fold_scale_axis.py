"""FoldScaleAxis: scales of channels go into the weights around them, and are computed with these if they are constants.

It runs BackwardFoldScaleAxis, ForwardFoldScaleAxis and FoldConstant.
"""

from __future__ import annotations

from pullback.ir.passes import Sequential
from pullback.relay.transform.backward_fold_scale_axis import BackwardFoldScaleAxis
from pullback.relay.transform.fold_constant import FoldConstant
from pullback.relay.transform.forward_fold_scale_axis import ForwardFoldScaleAxis


def FoldScaleAxis() -> Sequential:  # noqa: N802
    """The pass that folds scales of channels into weights, backward and forward, and then folds constants.

        nn.conv2d(multiply(%x, %s), %w)      →      nn.conv2d(%x, multiply(%w, …))

    A pass above the context's level is left out, as in any :class:`Sequential`: the first two are of level 3.

    Checks: those of the three passes.
    """
    return Sequential([BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()], name="FoldScaleAxis")
