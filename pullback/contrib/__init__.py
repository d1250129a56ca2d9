"""The older face's ``contrib``: what runs compiled graphs."""

from pullback.contrib import graph_executor

graph_runtime = graph_executor  # its name before 0.8

__all__ = ["graph_executor", "graph_runtime"]
