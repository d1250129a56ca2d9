# A name that a function assigns is its own, as in Python.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    def f(y: R.Tensor((2, 3), "float32")):
        z = R.add(y, x)  # noqa: F823
        x = R.exp(z)
        return x

    return f(x)
