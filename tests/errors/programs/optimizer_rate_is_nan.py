# A learning rate is a finite number.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD(float("nan"))
