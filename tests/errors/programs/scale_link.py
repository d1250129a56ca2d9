# Only a bandwidth.
from pullback.scale import parse_link


def mistake():
    parse_link("100Gb")
