# There is no such device.
import pullback


def mistake():
    pullback.device("cuda", 0)
