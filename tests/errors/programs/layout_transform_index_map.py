# Six places are no multiple of four: the digits 4 and 1 of them overlap.
from pullback.script import relax as R


def mistake():
    @R.function
    def main(x: R.Tensor((3, 6), "float32")):
        y = R.layout_transform(x, index_map=(((0, 1),), ((1, 4),), ((1, 3),), ((1, 1),)))
        return y
