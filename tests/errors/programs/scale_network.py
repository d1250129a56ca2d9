# A bandwidth without a unit.
from pullback.scale import parse_link


def mistake():
    parse_link("100/10us")
