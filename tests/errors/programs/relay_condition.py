# The condition of an If is no scalar.
from pullback import IRModule, relay


x = relay.var("x", shape=(2, 3))
branch = relay.If(relay.less(x, relay.zeros_like(x)), x, relay.negative(x))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], branch)))
