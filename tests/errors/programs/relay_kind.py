# An executor of a kind that there is not.
from pullback import relay


def mistake():
    relay.create_executor("jit")
