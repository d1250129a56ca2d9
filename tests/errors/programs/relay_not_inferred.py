# The type of an expression before inference.
from pullback import relay


x = relay.var("x", shape=(2,))


def mistake():
    return relay.exp(x).checked_type
