# An executor's function gets an argument that it lacks.
import numpy as np

from pullback import relay


x = relay.var("x", shape=(2,))


def mistake():
    relay.create_executor().evaluate(relay.Function([x], relay.exp(x)))(np.ones(2, "float32"), w=np.ones(2, "float32"))
