# There is no reduction "average".
from pullback.relax.training import loss


def mistake():
    loss.CrossEntropyLoss(reduction="average")
