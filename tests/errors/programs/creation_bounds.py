# Infinity is no bound.
from pullback.script import relax as R


@R.function
def main():
    y = R.arange(0, float("inf"))
    return y
