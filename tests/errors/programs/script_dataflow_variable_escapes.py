# lv is read after its dataflow block, which does not output it.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        lv = R.exp(x)
        gv = R.add(lv, x)
        R.output(gv)
    return lv
