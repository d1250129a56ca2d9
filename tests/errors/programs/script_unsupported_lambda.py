# A lambda is no value of the graph.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    f = lambda v: R.exp(v)  # noqa: E731
    return f(x)
