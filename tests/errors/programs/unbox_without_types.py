# Types say what is in a box.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3,), "float32")):
    h = R.box([x])
    values = R.unbox(h, (3,))
    return values[0]
