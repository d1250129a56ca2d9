# The branches of an If have different types.
from pullback import IRModule, relay


x, c = relay.var("x", shape=(2, 3)), relay.var("c", shape=(), dtype="bool")
branch = relay.If(c, x, relay.Tuple([x]))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([c, x], branch)))
