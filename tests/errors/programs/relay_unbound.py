# A global function reads a variable that nothing binds.
from pullback import IRModule, relay


x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))


def mistake():
    relay.transform.InferType()(IRModule({"main": relay.Function([x], x + y)}))
