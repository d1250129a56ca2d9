# from_source takes text.
import pullback


def mistake():
    pullback.script.from_source(3)
