# The return stands inside the dataflow block.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        y = R.exp(x)
        R.output(y)
        return y
