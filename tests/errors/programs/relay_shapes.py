# The shapes of two arguments do not broadcast.
from pullback import IRModule, relay


x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4,))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x, y], x + y)))
