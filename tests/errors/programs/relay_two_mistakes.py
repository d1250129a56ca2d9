# Two calls do not fit: both are listed.
from pullback import IRModule, relay


x = relay.var("x", shape=(2, 3))
left = relay.nn.dense(x, relay.const([[1.0, 2.0]]))
right = relay.reshape(x, (4, 2))


def mistake():
    relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.Tuple([left, right]))))
