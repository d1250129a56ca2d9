# Two arguments have different dtypes.
from pullback import IRModule, relay


x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3), dtype="int32")


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x, y], relay.multiply(x, y))))
