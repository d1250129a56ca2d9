# The channels are not named again.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 6, 4), "float32"), g: R.Tensor((6,), "float32")):
    y = R.nn.group_norm(x, g, g, num_groups=2, channel_axis=1, axes=[1, 2])
    return y
