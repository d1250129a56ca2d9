# The dataflow block has no R.output.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        y = R.exp(x)
    return y
