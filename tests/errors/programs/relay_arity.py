# A function is called with too many arguments.
from pullback import IRModule, relay


x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
f = relay.Function([y], y)


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], f(x, x))))
