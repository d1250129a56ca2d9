# Python would have f read the second w.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    w = R.exp(x)

    def f(y: R.Tensor((2, 3), "float32")):
        return R.add(y, w)

    w = R.tanh(x)
    return f(w)
