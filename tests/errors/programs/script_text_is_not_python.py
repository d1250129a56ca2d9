# The text has a parenthesis too few.
import pullback
from pullback.script import relax as R


def mistake():
    pullback.script.from_source('''
@R.function
def main(x: R.Tensor((2, 3), "float32"):
    return x
''', file="model.py")
