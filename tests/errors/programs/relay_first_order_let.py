# A first-order gradient of a function with a let.
from pullback import relay


x, y = relay.var("x", shape=(2, 3)), relay.var("y")
f = relay.Function([x], relay.Let(y, relay.exp(x), y * y))


def mistake():
    relay.transform.gradient(f, mode="first_order")
