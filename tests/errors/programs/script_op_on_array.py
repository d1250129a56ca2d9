# An op outside a script takes variables or constants, not a list of lists.
from pullback.script import relax as R


def mistake():
    R.exp([[1.0, 2.0], [3.0]])
