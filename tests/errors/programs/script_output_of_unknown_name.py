# R.output names a value that the block does not compute.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        lv = R.exp(x)
        R.output(gv)
    return lv
