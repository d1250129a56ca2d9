# The annotation is a Python type.
from pullback.script import relax as R


@R.function
def main(x: float):
    return R.exp(x)
