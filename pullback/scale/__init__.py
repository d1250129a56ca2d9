"""Training on many machines, by simulation: what a step takes, and what each rank holds, before there are any.

A model's step is measured on this machine (:mod:`.measure`), compiled as each of many ranks would run it; that is a
:mod:`.step`, a :mod:`.program` for any number of ranks. :mod:`.engine` knows what its collectives ask of links and
processors (:mod:`.network`), :mod:`.simulate` plays it through, and :mod:`.predict` says what came of it.
"""

from pullback.scale.network import Link, Network, parse_bandwidth, parse_link, parse_seconds

__all__ = ["Link", "Network", "parse_bandwidth", "parse_link", "parse_seconds"]
