# An operator that there is not.
from pullback import relay


def mistake():
    relay.op.get("nn.dens")
