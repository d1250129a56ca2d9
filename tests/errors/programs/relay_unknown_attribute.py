# An operator is called with an attribute that it lacks.
from pullback import relay


x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))


def mistake():
    relay.nn.conv2d(x, w, stride=(2, 2))
