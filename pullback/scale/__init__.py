"""Training on many machines, by simulation: what a step takes, and what each rank holds, before there are any.

A model is measured on this machine (:mod:`.measure`). :mod:`.program` says which kernels and collectives a rank runs
in which order, :mod:`.engine` what a collective asks of links and processors, and :mod:`.simulate` plays it through.
"""

from pullback.scale.network import Link, Network, parse_bandwidth, parse_link, parse_seconds

__all__ = ["Link", "Network", "parse_bandwidth", "parse_link", "parse_seconds"]
