"""The older face's ``contrib``: what runs compiled graphs."""

from pullback.contrib import graph_executor

__all__ = ["graph_executor"]
