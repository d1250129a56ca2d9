# An executor's function lacks an argument.
import numpy as np

from pullback import relay


x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))


def mistake():
    relay.create_executor().evaluate(relay.Function([x, y], x + y))(np.ones(2, "float32"))
