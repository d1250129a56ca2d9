# Text without its version.
from pullback import relay


def mistake():
    relay.fromtext("fn (%x: float32) { %x }")
