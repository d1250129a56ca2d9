"""How a contraction is blocked: from its problem to a finished :class:`~.blocking.Draft`."""
