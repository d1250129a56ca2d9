# An array larger than any memory.
import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main():
    y = R.zeros((2**40, 2**40), "float32")
    return y


def mistake():
    VirtualMachine(pullback.compile(main))["main"]()
