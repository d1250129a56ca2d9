# A function that exec defined has no source text.
from pullback.script import relax as R

TEXT = """
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    return x
"""


def mistake():
    exec(TEXT, {"R": R})
