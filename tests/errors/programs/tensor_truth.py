# A tensor of two elements is neither true nor false.
import pullback


def mistake():
    bool(pullback.tensor([1.0, 2.0]))
