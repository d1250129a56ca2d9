# An executor's function gets an array of another shape.
import numpy as np

from pullback import relay


x = relay.var("x", shape=(2,))


def mistake():
    relay.create_executor("vm").evaluate(relay.Function([x], relay.exp(x)))(np.ones(3, "float32"))
