# The condition of an if is one bool.
from pullback.script import relax as R


@R.function
def main(c: R.Tensor((2,), "bool"), x: R.Tensor((2, 3), "float32")):
    if c:
        y = R.exp(x)
    else:
        y = R.tanh(x)
    return y
