# A mode of gradients that there is not.
from pullback import relay


x = relay.var("x", shape=(2, 3))


def mistake():
    relay.transform.gradient(relay.Function([x], relay.exp(x)), mode="second_order")
