# A tensor is called.
from pullback import IRModule, relay


x = relay.var("x", shape=(2,))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.Call(x, [x]))))
