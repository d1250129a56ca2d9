"""relay: the older language in front of the graph IR."""
