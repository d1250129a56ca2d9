"""Helpers under PyTorch's names: ``nn.utils.rnn``."""

from pullback.nn.utils import rnn

__all__ = ["rnn"]
