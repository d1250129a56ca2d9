# A function that calls itself says what it returns.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    def f(y: R.Tensor((2, 3), "float32")):
        return f(R.exp(y))

    return f(x)
