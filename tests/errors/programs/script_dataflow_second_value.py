# The second y ends with its block.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    y = R.exp(x)
    with R.dataflow():
        y = R.tanh(y)
        z = R.sin(y)
        R.output(z)
    return R.add(y, z)
