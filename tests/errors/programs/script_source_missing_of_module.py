# A class that exec defined has no source text.
from pullback.script import ir as I
from pullback.script import relax as R

TEXT = """
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return x
"""


def mistake():
    exec(TEXT, {"I": I, "R": R})
