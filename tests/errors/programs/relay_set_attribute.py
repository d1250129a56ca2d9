# An attribute of a call is set.
from pullback import relay


call = relay.sum(relay.var("x", shape=(2, 3)), axis=0)


def mistake():
    call.attrs.axis = 1
