# There is one CPU.
import pullback


def mistake():
    pullback.cpu(1)
