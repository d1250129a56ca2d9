# A time in minutes.
from pullback.scale import parse_link


def mistake():
    parse_link("100Gb/1min")
