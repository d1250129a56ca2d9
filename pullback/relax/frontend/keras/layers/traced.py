"""Layers whose ``call`` is made of operations: Keras's own code says what they compute."""

from __future__ import annotations

from pullback.relax.frontend.keras.table import by_call

_SIZED = ("AveragePooling", "MaxPooling", "GlobalAveragePooling", "GlobalMaxPooling", "AdaptiveAveragePooling",
          "AdaptiveMaxPooling", "Conv", "Cropping", "UpSampling", "ZeroPadding")  # fmt: skip

by_call(
    "layers.Activation", "layers.ActivityRegularization", "layers.Add", "layers.AdditiveAttention", "layers.Attention",
    "layers.Average", "layers.Concatenate", "layers.Dense", "layers.Dot", "layers.ELU", "layers.EinsumDense",
    "layers.Embedding", "layers.Flatten", "layers.GroupNormalization", "layers.GroupedQueryAttention",
    "layers.Identity", "layers.Lambda", "layers.LayerNormalization", "layers.LeakyReLU", "layers.Masking",
    "layers.Maximum",
    "layers.Minimum", "layers.MultiHeadAttention", "layers.Multiply", "layers.PReLU", "layers.Permute",
    "layers.RMSNormalization", "layers.ReLU", "layers.RepeatVector", "layers.Reshape", "layers.ReversibleEmbedding",
    "layers.SeparableConv1D", "layers.SeparableConv2D", "layers.DepthwiseConv1D", "layers.DepthwiseConv2D",
    "layers.Subtract", "layers.UnitNormalization", "layers.GRUCell", "layers.LSTMCell",
    "layers.SimpleRNNCell", "layers.StackedRNNCells", "layers.Conv1DTranspose", "layers.Conv2DTranspose",
    "layers.Conv3DTranspose", "layers.Functional", "layers.Sequential", "layers.Model", "layers.ConvLSTMCell",
    *(f"layers.{name}{rank}D" for name in _SIZED for rank in (1, 2, 3)),
)  # fmt: skip
