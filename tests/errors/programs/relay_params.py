"""Parameters of another name are bound."""

import numpy as np

from pullback import relay


x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))


def mistake():
    relay.build_module.bind_params_by_name(relay.Function([x, w], relay.nn.dense(x, w)), {"weight": np.ones((4, 3))})
