# ignore_index is an integer.
from pullback.relax.training import loss


def mistake():
    loss.CrossEntropyLoss(ignore_index=None)
