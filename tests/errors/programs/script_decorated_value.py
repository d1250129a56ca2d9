# R.function decorates functions.
from pullback.script import relax as R


def mistake():
    R.function(3)
