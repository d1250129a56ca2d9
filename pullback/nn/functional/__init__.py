"""Functions of tensors under PyTorch's names, argument order and defaults: ``from pullback.nn import functional as F``.

    >>> def forward(self, x):
    ...     return F.log_softmax(self.fc(F.relu(x)), dim=1)

They build calls of ops (``docs/ops.md``), which have no hidden state; the layers of ``pullback.nn`` call them too.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.nn.functional.activation import (
    celu,
    elu,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    rrelu,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from pullback.nn.functional.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from pullback.nn.functional.embedding import cdist, cosine_similarity, embedding, embedding_bag, pairwise_distance
from pullback.nn.functional.form import in_train_phase
from pullback.nn.functional.linear import bilinear, linear
from pullback.nn.functional.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)

__all__ = [
    "alpha_dropout", "batch_norm", "bilinear", "cdist", "celu", "cosine_similarity", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "embedding", "embedding_bag", "feature_alpha_dropout", "gelu", "glu",
    "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "in_train_phase",
    "instance_norm", "layer_norm", "leaky_relu", "linear", "local_response_norm", "log_softmax", "logsigmoid",
    "mish", "normalize", "pairwise_distance", "prelu", "relu", "relu6", "rms_norm", "rrelu", "selu", "sigmoid",
    "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip

__getattr__ = missing_from(globals())
