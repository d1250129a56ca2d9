# A stage that there is not.
from pullback.scale.predict import parse_stages


def mistake():
    parse_stages("data,zero4")
