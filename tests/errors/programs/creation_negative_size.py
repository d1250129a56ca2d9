# A size is negative.
from pullback.script import relax as R


@R.function
def main():
    y = R.zeros((2, -1), "float32")
    return y
