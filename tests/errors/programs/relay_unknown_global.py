# A call of a function that the module lacks.
from pullback import IRModule, relay


x = relay.var("x", shape=(2, 3))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.GlobalVar("helper")(x))))
