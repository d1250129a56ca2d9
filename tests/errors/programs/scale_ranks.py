# Ranks that are no numbers.
from pullback.scale.predict import parse_ranks


def mistake():
    parse_ranks("2,4,many")
