# A for of Python is no loop of the graph.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    for _ in range(3):
        y = R.exp(x)
    return y
