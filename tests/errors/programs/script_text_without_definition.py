# The text defines nothing.
import pullback


def mistake():
    pullback.script.from_source("x = 1")
