# A constant holds numbers.
from pullback.script import relax as R


@R.function
def main():
    y = R.const(["a", "b"])
    return y
