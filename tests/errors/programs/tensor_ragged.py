# The rows differ in length.
import pullback


def mistake():
    pullback.tensor([[1.0, 2.0], [3.0]])
