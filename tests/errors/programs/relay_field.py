# A field that a tuple lacks.
from pullback import IRModule, relay


x = relay.var("x", shape=(2,))
pair = relay.var("pair", relay.TupleType([relay.TensorType((2,)), relay.TensorType((2,))]))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([pair], relay.TupleGetItem(pair, 2))))
