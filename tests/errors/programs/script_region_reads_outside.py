# A region reads its parameters alone.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    @R.region
    def f(y: R.Tensor((2, 3), "float32")):
        return (R.add(y, x),)

    return R.branch(c, (x,), then=f, otherwise=f)
