# The text has an equals sign too many.
import pullback
from pullback.script import relax as R


def mistake():
    pullback.script.from_source('''
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = = x
    return y
''', file="model.py")
