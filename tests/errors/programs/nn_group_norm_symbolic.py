# The number of channels is known.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, "c", 4), "float32"), g: R.Tensor(("c",), "float32")):
    y = R.nn.group_norm(x, g, g, num_groups=2, channel_axis=1, axes=[2])
    return y
