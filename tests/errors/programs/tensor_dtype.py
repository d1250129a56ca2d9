# There is no dtype float31.
import pullback


def mistake():
    pullback.tensor([1.0], dtype="float31")
