# The rows of a constant differ in length.
from pullback.script import relax as R


@R.function
def main():
    y = R.const([[1.0, 2.0], [3.0]], "float32")
    return y
