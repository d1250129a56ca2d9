"""The loops of a blocked contraction."""
