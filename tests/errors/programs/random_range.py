# The numbers don't fit into the dtype.
from pullback.script import relax as R


@R.function
def main(state: R.Tensor((2,), "uint64")):
    y = R.random.randint(state, (2, 3), 0, 1000, dtype="uint8")
    return y
