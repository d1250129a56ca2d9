# There is no dtype "double precision".
from pullback.script import relax as R


@R.function
def main():
    y = R.ones((2,), "double precision")
    return y
