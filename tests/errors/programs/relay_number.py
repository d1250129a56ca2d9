# A Python number beside an expression.
from pullback import relay


x = relay.var("x", shape=(2, 3))


def mistake():
    return x * 2.0
