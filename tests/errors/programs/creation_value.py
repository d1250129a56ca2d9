# 0.5 is no int32.
from pullback.script import relax as R


@R.function
def main():
    y = R.full((2,), 0.5, "int32")
    return y
