"""Modules that run what was compiled ahead of time: the same as those of graphs."""

from pullback.runtime.graph_module import GraphModule


class AotModule(GraphModule):
    """Runs a program: see :class:`GraphModule`."""


__all__ = ["AotModule", "GraphModule"]
