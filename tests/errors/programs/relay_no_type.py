# The type of a parameter cannot be found out.
from pullback import IRModule, relay


x = relay.var("x")


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.exp(x))))
