# None is no tensor.
import pullback


def mistake():
    pullback.tensor(None)
