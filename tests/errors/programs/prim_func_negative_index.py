# There is no index -1 from the end.
import pullback
from pullback.script import ir as I
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def last(A: T.Buffer(("n",), "float32"), B: T.Buffer((1,), "float32")):
        B[0] = A[-1]


def mistake():
    pullback.compile(Model)
